"""Exact search over the memory-mapped vectors; it stores nothing of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boolattn.scoring.exact import Ranked
from boolattn.search.engines.base import Engine, best, similarities

if TYPE_CHECKING:
    from boolattn.search.engines.base import Selection
    from boolattn.search.storage.segments import Array

#: Most scores in memory: 256 MB.
_MAX_SCORES = 1 << 26


class Flat(Engine):
    """Exact search."""

    @property
    def n_queries(self) -> int:
        """How many queries are compared with every row at once."""
        return max(1, _MAX_SCORES // max(1, len(self._rows)))

    def search(self, queries: Array, n: int, selection: Selection) -> Ranked:
        """Compare with every row."""
        parts = []
        for start in range(0, len(queries), self.n_queries):
            scores = self.scores(queries[start : start + self.n_queries])
            if selection.mask is not None:
                scores[:, ~selection.mask] = -np.inf
            parts.append(best(scores, n))
        return Ranked(*(np.concatenate(own) for own in zip(*parts, strict=True)))

    def document_scores(self, queries: Array) -> Array:
        """Return the similarity of every document's best row. Shape ``(queries, documents)``."""
        found = self.scores(queries)
        if not self._rows.has_passages:
            return found
        return np.asarray(np.maximum.reduceat(found, self._rows.first_rows[:-1], axis=1))

    def scores(self, queries: Array) -> Array:
        """Return the similarity of every row. Shape ``(queries, rows)``."""
        found = np.empty((len(queries), len(self._rows)), np.float32)
        for start, segment in zip(self._rows.starts, self._rows.segments, strict=False):
            found[:, start : start + segment.count] = similarities(queries, segment.vectors)
        return found
