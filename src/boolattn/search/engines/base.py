"""The interface of engines, which find the nearest vectors; similarity is the inner product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.search.filters import Condition
    from boolattn.search.index.manifest import Manifest
    from boolattn.search.index.segments import Rows

    Array = NDArray[np.float32]
    Mask = NDArray[np.bool_]


class Found(NamedTuple):
    """The nearest rows of each query, best first; -1 pads. Both shapes ``(queries, n)``."""

    rows: NDArray[np.int64]
    scores: Array


@dataclass(frozen=True)
class Selection:
    """Which rows may be found.

    Attributes:
        mask: One value for each row; ``None``: all.
        conditions: The filters of the mask, for an engine that stores the metadata itself.
    """

    mask: Mask | None = None
    conditions: tuple[Condition, ...] = ()

    def allows(self, rows: NDArray[np.int64]) -> Mask:
        """Return which of some rows may be found; padding may not."""
        inside = rows >= 0
        return inside if self.mask is None else inside & self.mask[rows]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Rows to add to an engine.

    Attributes:
        folder: Of the index.
        manifest: As it will be, but for the engine's part.
        rows: All of them.
        first_row: Of the new ones; 0 for a new index.
        uri: Of Milvus.
        sample: Returns vectors of queries, to measure the recall with.
    """

    folder: Path
    manifest: Manifest
    rows: Rows
    first_row: int
    uri: str
    sample: Callable[[], Array]


class Engine(Protocol):
    """An open engine."""

    @property
    def limit(self) -> int | None:
        """Most results of one search, if there is a limit."""
        ...

    def search(self, queries: Array, n: int, selection: Selection) -> Found:
        """Return the ``n`` nearest selected rows of each query."""
        ...

    def vectors(self, rows: NDArray[np.int64]) -> Array:
        """Return the vectors of some rows. Shape ``(rows, dim)``."""
        ...


def similarities(queries: Array, vectors: Array) -> Array:
    """Return inner products. Shape ``(queries, vectors)``."""
    # By torch: numpy's threads spin when they are done, and delay the next query's encoder.
    import torch

    left, right = (torch.from_numpy(np.ascontiguousarray(m)) for m in (queries, vectors))
    # A product with a vector is faster than one with a matrix of one row.
    found = left @ right.T if len(left) > 1 else torch.mv(right, left[0])[None]
    return np.asarray(found.numpy(), np.float32)


def best(scores: Array, n: int) -> Found:
    """Return the ``n`` highest of each row of scores; those at -inf are not found.

    >>> best(np.array([[0.1, 0.7, -np.inf]], np.float32), 3).rows.tolist()
    [[1, 0, -1]]
    """
    n = min(n, scores.shape[1])
    rows = np.argpartition(-scores, n - 1, axis=1)[:, :n] if n else np.zeros((len(scores), 0), int)
    own = np.take_along_axis(scores, rows, 1)
    order = np.lexsort((rows, -own), axis=1)
    rows = np.take_along_axis(rows, order, 1).astype(np.int64)
    own = np.take_along_axis(own, order, 1)
    rows[own == -np.inf] = -1
    return Found(rows, own)
