"""Effort of an approximate engine: doubled until its recall is high enough.

Measured for few results, and for the many candidates of a composed query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from boolattn.search.engines.base import Engine, Selection
from boolattn.search.engines.flat import Flat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from boolattn.composition.exact import Ranked
    from boolattn.search.storage.segments import Rows

    Array = NDArray[np.float32]

#: Numbers of results, and the recall that tuning aims at.
TARGETS = {10: 0.98, 1000: 0.95}
_TIE = 1e-6


class Tunable(Engine, Protocol):
    """An engine with efforts, by number of results."""

    efforts: dict[int, float]


def tune(
    engine: Tunable, rows: Rows, queries: Array, effort: float, limit: float
) -> dict[int, float]:
    """Set the efforts of an engine; return its recall against exact search, by depth."""
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
    """Return the effort for the next larger number of results that was measured."""
    depths = sorted(efforts)
    return efforts[next((depth for depth in depths if n <= depth), depths[-1])]


def as_settings(
    efforts: Mapping[int, float], recalls: Mapping[int, float], n_sample: int
) -> dict[str, Any]:
    """Return what the manifest stores; keys in JSON are text."""
    return {
        "effort": {str(depth): effort for depth, effort in efforts.items()},
        "recall": {str(depth): round(value, 4) for depth, value in recalls.items()},
        "n_sample": n_sample,
    }


def efforts_of(settings: Mapping[str, Any]) -> dict[int, float]:
    """Return the efforts from the manifest."""
    return {int(depth): float(effort) for depth, effort in settings["effort"].items()}


def recall(exact: Ranked, found: Ranked) -> float:
    """Return the share of the nearest rows that was found; ties are interchangeable."""
    shares = []
    for expected, got in zip(exact.scores, found.scores, strict=True):
        expected = expected[expected > -np.inf]
        if len(expected):
            n_found = int((got >= expected.min() - _TIE).sum())
            shares.append(min(n_found, len(expected)) / len(expected))
    return float(np.mean(shares)) if shares else 1.0
