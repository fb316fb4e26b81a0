"""How hard an approximate engine searches: doubled until its recall is high enough.

Measured once for few results and once for the many candidates of a composed query.
May import: boolattn.search.engines.base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from boolattn.search.engines.base import Flat, Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from boolattn.search.engines.base import Found
    from boolattn.search.index.segments import Rows

    Array = NDArray[np.float32]

#: Results for which the recall is measured, and the recall that is tried for.
TARGETS = {10: 0.98, 1000: 0.95}
_TIE = 1e-6


class Tunable(Protocol):
    """An engine whose effort can be set."""

    efforts: dict[int, float]

    def search(self, queries: Array, n: int, selection: Selection) -> Found:
        """Return the nearest rows, nearly always."""
        ...


def tune(
    engine: Tunable, rows: Rows, queries: Array, effort: float, limit: float
) -> dict[int, float]:
    """Set how hard an engine searches, and return the recall that it then has.

    Args:
        engine: Its efforts are set.
        rows: What it searches.
        queries: To measure with.
        effort: To begin with.
        limit: The most that is tried.

    Returns:
        Recall against exact search, by number of results.
    """
    recalls: dict[int, float] = {}
    for depth, target in TARGETS.items():
        n = min(depth, len(rows))
        exact = Flat(rows).search(queries, n, Selection())
        while True:
            engine.efforts[depth] = effort
            recalls[depth] = recall(exact, engine.search(queries, n, Selection()))
            if recalls[depth] >= target or effort >= limit:
                break
            effort *= 2
    return recalls


def effort_for(efforts: Mapping[int, float], n: int) -> float:
    """Return the effort that was measured for the next larger number of results."""
    depths = sorted(efforts)
    return efforts[next((depth for depth in depths if n <= depth), depths[-1])]


def as_settings(
    efforts: Mapping[int, float], recalls: Mapping[int, float], n_sample: int
) -> dict[str, Any]:
    """Return what the manifest keeps; JSON's keys are text."""
    return {
        "effort": {str(depth): effort for depth, effort in efforts.items()},
        "recall": {str(depth): round(value, 4) for depth, value in recalls.items()},
        "n_sample": n_sample,
    }


def efforts_of(settings: Mapping[str, Any]) -> dict[int, float]:
    """Read the efforts back."""
    return {int(depth): float(effort) for depth, effort in settings["effort"].items()}


def recall(exact: Found, found: Found) -> float:
    """Return the share of the nearest that was found; others as near are as good."""
    shares = []
    for wanted, got in zip(exact.scores, found.scores, strict=True):
        wanted = wanted[wanted > -np.inf]
        if len(wanted):
            n_found = int((got >= wanted.min() - _TIE).sum())
            shares.append(min(n_found, len(wanted)) / len(wanted))
    return float(np.mean(shares)) if shares else 1.0
