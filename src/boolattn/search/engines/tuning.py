"""Effort of an approximate engine: doubled until its recall is high enough.

Measured for few results, and for the many candidates of a composed query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.search.engines.base import Engine, Selection
from boolattn.search.engines.flat import Flat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from boolattn.scoring.exact import Ranked
    from boolattn.search.storage.segments import Array, Rows

#: Numbers of results, and the recall that tuning aims at.
TARGETS = {10: 0.98, 1000: 0.95}
_TIE = 1e-6


class TunedEngine(Engine):
    """An approximate engine; its efforts, by number of results, are in the manifest."""

    def __init__(self, rows: Rows, settings: Mapping[str, Any]) -> None:
        super().__init__(rows)
        efforts = settings.get("effort", {})
        self._efforts = {int(depth): float(effort) for depth, effort in efforts.items()}

    def effort_for(self, n: int) -> float:
        """Return the effort for the next larger number of results that was measured."""
        depths = sorted(self._efforts)
        return self._efforts[next((depth for depth in depths if n <= depth), depths[-1])]

    def tune(self, queries: Array, effort: float, limit: float) -> dict[str, Any]:
        """Set the efforts; return them, and the recall against exact search, as settings."""
        recalls: dict[str, float] = {}  # keys in JSON are text
        for depth, target in TARGETS.items():
            n = min(depth, len(self._rows))
            exact = Flat(self._rows).search(queries, n, Selection())
            while True:
                self._efforts[depth] = effort
                found = recall(exact, self.search(queries, n, Selection()))
                if found >= target or effort >= limit:
                    break
                effort *= 2
            recalls[str(depth)] = round(found, 4)
        efforts = {str(depth): effort for depth, effort in self._efforts.items()}
        return {"effort": efforts, "recall": recalls, "n_sample": len(queries)}


def recall(exact: Ranked, found: Ranked) -> float:
    """Return the share of the nearest rows that was found; ties are interchangeable."""
    shares = []
    for expected, got in zip(exact.scores, found.scores, strict=True):
        expected = expected[expected > -np.inf]
        if len(expected):
            n_found = int((got >= expected.min() - _TIE).sum())
            shares.append(min(n_found, len(expected)) / len(expected))
    return float(np.mean(shares)) if shares else 1.0
