"""Paired tests of significance between two systems, over their queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError
from boolattn.files import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

N_DRAWS = 10_000
# Draws computed at once, to bound memory.
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Comparison:
    """Means of two systems over the ``n`` queries for which both have a value.

    ``difference`` is second minus first, ``low`` and ``high`` its 95% interval, ``p_value``
    that of the two-sided paired randomisation test.
    """

    n: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float


def compare(first: Floats, second: Floats, *, seed: int = 0) -> Comparison:
    """Compare the values of two systems on the same queries; queries with a nan are left out.

    The p value is that of Fisher's paired randomisation test: under the null hypothesis every
    query's difference has a random sign. The observed difference counts as one of the draws, so it
    is never 0. The interval of the mean difference is the percentile bootstrap's.
    """
    require("significance", ("scipy",), "evaluate")
    from scipy.stats import bootstrap, monte_carlo_test

    if first.shape != second.shape or first.ndim != 1:
        raise ConfigError(
            f"both systems must have one value for each query; got {first.shape} and {second.shape}"
        )
    is_known = ~np.isnan(second - first)
    if not is_known.any():
        raise ConfigError("no query has a value of both systems")
    first, second = first[is_known], second[is_known]
    difference = second - first
    rng = np.random.default_rng(seed)
    options: dict[str, Any] = {"n_resamples": N_DRAWS, "batch": _BATCH, "vectorized": True}
    test = monte_carlo_test(
        difference,
        # The signs are drawn here: scipy's own permutation_test takes 2.6 s for 2,100 queries and
        # 10,000 draws, this 0.17 s.
        lambda size: difference * (2 * rng.integers(0, 2, size, dtype=np.int8) - 1),
        lambda values, axis: np.abs(np.sum(values, axis=axis)),
        alternative="greater",
        **options,
    )
    low = high = mean = float(difference.mean())
    if len(difference) > 1:
        options |= {"rng": np.random.default_rng(seed), "method": "percentile"}
        low, high = bootstrap((difference,), np.mean, **options).confidence_interval
    return Comparison(
        n=len(difference),
        first=float(first.mean()),
        second=float(second.mean()),
        difference=mean,
        low=float(low),
        high=float(high),
        p_value=float(test.pvalue),
    )
