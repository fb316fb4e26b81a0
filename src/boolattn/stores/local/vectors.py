"""Exact neighbours among the memory-mapped vectors of a local store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boolattn.scoring.exact import Ranked, top_k
from boolattn.stores.base import similarities

if TYPE_CHECKING:
    from boolattn.stores.base import Array, Mask
    from boolattn.stores.local.segments import Rows

#: Maximum number of scores in memory: 256 MB.
_MAX_SCORES = 1 << 26
#: Rows of vectors that are rounded when stored and restored at once: they stay in the cache.
_BLOCK = 2048


class ExactVectors:
    """Compares a vector with every row; stores nothing of its own."""

    is_exact = True

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @property
    def n_queries(self) -> int:
        """How many queries are compared with every row at once."""
        return max(1, _MAX_SCORES // max(1, len(self._rows)))

    def search(self, queries: Array, n: int, mask: Mask | None) -> Ranked:
        """Return the ``n`` nearest allowed rows of each query, best first; -1 pads."""
        answers = []
        for start in range(0, len(queries), self.n_queries):
            scores = self.scores(queries[start : start + self.n_queries])
            if mask is not None:
                scores[:, ~mask] = -np.inf
            answers.append(best(scores, n))
        return Ranked(*(np.concatenate(column) for column in zip(*answers, strict=True)))

    def document_scores(self, queries: Array) -> Array:
        """Return the similarity of every document's best row. Shape ``(queries, documents)``."""
        scores = self.scores(queries)
        if not self._rows.has_passages:
            return scores
        return np.asarray(np.maximum.reduceat(scores, self._rows.first_rows[:-1], axis=1))

    def scores(self, queries: Array) -> Array:
        """Return the similarity of every row. Shape ``(queries, rows)``."""
        scores = np.empty((len(queries), len(self._rows)), np.float32)
        for start, segment in zip(self._rows.starts, self._rows.segments, strict=False):
            size = segment.count if segment.vectors.dtype == np.float32 else _BLOCK
            for first in range(0, segment.count, size):
                last = min(first + size, segment.count)
                block = segment.block(slice(first, last))
                scores[:, start + first : start + last] = similarities(queries, block)
        return scores


def best(scores: Array, n: int) -> Ranked:
    """Return the ``n`` highest of each row of scores; -1 stands for a row at -inf.

    >>> best(np.array([[0.1, 0.7, -np.inf]], np.float32), 3).rows.tolist()
    [[1, 0, -1]]
    """
    ranked = top_k(scores, n)
    ranked.rows[ranked.scores == -np.inf] = -1
    return ranked
