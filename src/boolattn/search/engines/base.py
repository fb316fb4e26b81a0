"""Engines that find the nearest vectors, behind one small interface.

``flat`` is exact: one matrix product over the memory-mapped vectors, which needs no second copy
of them. ``ivf`` and ``hnsw`` (faiss) are approximate and say their recall. ``milvus`` is in a
file of its own. May import: boolattn.search, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.search.filters import Condition
    from boolattn.search.index.manifest import Manifest
    from boolattn.search.index.segments import Rows

    Array = NDArray[np.float32]
    Mask = NDArray[np.bool_]

#: Scores held at once: 256 MB.
_MAX_SCORES = 1 << 26


class Found(NamedTuple):
    """The nearest rows of each query, best first; -1 pads. Both shapes ``(queries, n)``."""

    rows: NDArray[np.int64]
    scores: Array


@dataclass(frozen=True)
class Selection:
    """Which rows may be found.

    Attributes:
        mask: One value a row; ``None``: all.
        conditions: The filters it was made from, for an engine that has the metadata itself.
    """

    mask: Mask | None = None
    conditions: tuple[Condition, ...] = ()

    def keeps(self, rows: NDArray[np.int64]) -> Mask:
        """Say which of some rows may be found; padding may not."""
        inside = rows >= 0
        return inside if self.mask is None else inside & self.mask[rows]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an engine is to take up.

    Attributes:
        folder: Of the index.
        manifest: As it will be, but for the engine's part.
        rows: All of them.
        first_row: Where the new ones begin; 0 for a new index.
        uri: Of Milvus.
        sample: Gives vectors as queries have them, to measure the recall with.
    """

    folder: Path
    manifest: Manifest
    rows: Rows
    first_row: int
    uri: str
    sample: Callable[[], Array]


class Engine(Protocol):
    """What finds the nearest vectors. Similarity is the inner product."""

    @property
    def is_exact(self) -> bool:
        """Whether nothing nearer is ever missed."""
        ...

    @property
    def limit(self) -> int | None:
        """Most results of one search, if there is a limit."""
        ...

    def search(self, queries: Array, n: int, selection: Selection) -> Found:
        """Return the ``n`` nearest of the rows that may be found, for each query."""
        ...

    def vectors(self, rows: NDArray[np.int64]) -> Array:
        """Return the vectors of some rows. Shape ``(rows, dim)``."""
        ...


class Flat:
    """Exact search."""

    is_exact = True
    limit = None

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._blocks = [torch.from_numpy(segment.vectors) for segment in rows.segments]

    def vectors(self, rows: NDArray[np.int64]) -> Array:
        """Return the vectors of some rows."""
        return self._rows.vectors(rows)

    @property
    def n_queries(self) -> int:
        """How many are compared with every row at once."""
        return max(1, _MAX_SCORES // max(1, len(self._rows)))

    def search(self, queries: Array, n: int, selection: Selection) -> Found:
        """Compare with every row that may be found."""
        step = self.n_queries
        parts = [
            self._search(queries[start : start + step], n, selection)
            for start in range(0, len(queries), step)
        ]
        return Found(*(np.concatenate(own) for own in zip(*parts, strict=True)))

    def scores(self, queries: Array) -> Array:
        """Return the similarity of every row. Shape ``(queries, rows)``."""
        found = np.empty((len(queries), len(self._rows)), np.float32)
        asked, start = torch.from_numpy(np.ascontiguousarray(queries)), 0
        for block in self._blocks:
            # This way round two or three queries cost hardly more than one.
            own = asked @ block.T if len(asked) > 1 else torch.mv(block, asked[0])[None]
            found[:, start : start + len(block)] = own.numpy()
            start += len(block)
        return found

    def _search(self, queries: Array, n: int, selection: Selection) -> Found:
        scores = self.scores(queries)
        if selection.mask is not None:
            scores[:, ~selection.mask] = -np.inf
        return best(scores, n)


def best(scores: Array, n: int) -> Found:
    """Return the ``n`` highest of each row of scores, in order; what is at -inf is not found.

    >>> best(np.array([[0.1, 0.7, -np.inf]], np.float32), 3).rows.tolist()
    [[1, 0, -1]]
    """
    n = min(n, scores.shape[1])
    rows = np.argpartition(-scores, n - 1, axis=1)[:, :n] if n else np.zeros((len(scores), 0), int)
    own = np.take_along_axis(scores, rows, 1)
    # Equal scores in the order of the rows, so that an answer is the same every time.
    order = np.lexsort((rows, -own), axis=1)
    rows = np.take_along_axis(rows, order, 1).astype(np.int64)
    own = np.take_along_axis(own, order, 1)
    rows[own == -np.inf] = -1
    return Found(rows, own)
