"""Whether one system is better than another, query by query.

May import: boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

N_DRAWS = 10_000
# Draws made at once: memory stays small whatever the number of queries.
_BLOCK = 500


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of two systems over the queries for which both have a value.

    Attributes:
        n: How many queries.
        first: Mean of the first system.
        second: Mean of the second.
        difference: Mean of second less first.
        low: Lower end of the difference's interval.
        high: Upper end of it.
        p_value: Of the paired randomisation test, two-sided.
    """

    n: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float


def compare(
    first: Floats,
    second: Floats,
    *,
    confidence: float = 0.95,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Comparison:
    """Compare two systems' values of the same queries; nan leaves a query out."""
    difference = _differences(first, second)
    is_known = ~np.isnan(second - first)
    low, high = bootstrap_interval(first, second, confidence=confidence, n_draws=n_draws, seed=seed)
    return Comparison(
        n=len(difference),
        first=float(first[is_known].mean()),
        second=float(second[is_known].mean()),
        difference=float(difference.mean()),
        low=low,
        high=high,
        p_value=randomisation_test(first, second, n_draws=n_draws, seed=seed),
    )


def randomisation_test(
    first: Floats, second: Floats, *, n_draws: int = N_DRAWS, seed: int = 0
) -> float:
    """Return the p value of the paired randomisation test (Fisher's), two-sided.

    Were the systems alike, the sign of every query's difference would be a coin's throw. The p
    value is how often thrown signs give a mean difference as large as the one seen, which counts
    as one of the draws: it is never 0.
    """
    difference = _differences(first, second)
    seen = abs(difference.sum())
    rng = np.random.default_rng(seed)
    # Sums of the same numbers in another order differ in their last digits.
    slack = 1e-9 * np.abs(difference).sum()
    n_as_large = 1
    for start in range(0, n_draws, _BLOCK):
        signs = _coins(rng, min(_BLOCK, n_draws - start), len(difference))
        sums = 2 * (signs @ difference) - difference.sum()
        n_as_large += int((np.abs(sums) >= seen - slack).sum())
    return n_as_large / (n_draws + 1)


def bootstrap_interval(
    first: Floats,
    second: Floats,
    *,
    confidence: float = 0.95,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the interval of the mean difference, second less first, over drawn queries.

    Percentiles of the means of ``n_draws`` samples, each of as many queries as there are, drawn
    with putting back.
    """
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must lie between 0 and 1; got {confidence}")
    difference = _differences(first, second)
    rng = np.random.default_rng(seed)
    means = np.empty(n_draws)
    for start in range(0, n_draws, _BLOCK):
        stop = min(start + _BLOCK, n_draws)
        drawn = rng.integers(0, len(difference), (stop - start, len(difference)), dtype=np.int32)
        means[start:stop] = difference[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _differences(first: Floats, second: Floats) -> Floats:
    if first.shape != second.shape or first.ndim != 1:
        raise ConfigError(
            f"two systems want one value a query each; got {first.shape} and {second.shape}"
        )
    difference = second - first
    difference = difference[~np.isnan(difference)]
    if not len(difference):
        raise ConfigError("no query has a value of both systems")
    return difference


def _coins(rng: np.random.Generator, n_draws: int, n: int) -> Floats:
    """Throw coins, eight for a byte. Shape ``(n_draws, n)``, 0 or 1."""
    n_bytes = -(-n // 8)
    packed = rng.integers(0, 256, (n_draws, n_bytes), dtype=np.uint8)
    return np.unpackbits(packed, axis=1, count=n).astype(np.float64)
