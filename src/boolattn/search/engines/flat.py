"""Exact search over the memory-mapped vectors; it stores nothing of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.exact import Ranked
from boolattn.search.engines.base import best, similarities

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.search.engines.base import Job, Selection
    from boolattn.search.storage.manifest import FileEntry, Manifest
    from boolattn.search.storage.segments import Rows

    Array = NDArray[np.float32]

#: Most scores in memory: 256 MB.
_MAX_SCORES = 1 << 26


class Flat:
    """Exact search."""

    limit = None

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.vectors = rows.vectors

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

    def scores(self, queries: Array) -> Array:
        """Return the similarity of every row. Shape ``(queries, rows)``."""
        found = np.empty((len(queries), len(self._rows)), np.float32)
        for start, segment in zip(self._rows.starts, self._rows.segments, strict=False):
            found[:, start : start + segment.count] = similarities(queries, segment.vectors)
        return found


def write_engine(_job: Job) -> tuple[dict[str, Any], dict[str, FileEntry]]:
    """Store nothing."""
    return {}, {}


def open_engine(_folder: Path, _manifest: Manifest, rows: Rows) -> Flat:
    """Search the rows themselves."""
    return Flat(rows)


def delete_rows(_folder: Path, _manifest: Manifest, _rows: NDArray[np.int64]) -> None:
    """Do nothing: deleted rows are masked."""
