"""The interface of engines, which find the nearest vectors; similarity is the inner product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from boolattn.composition.exact import Ranked, top_k

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.search.filters import Condition
    from boolattn.search.storage.manifest import Manifest
    from boolattn.search.storage.segments import Rows

    Array = NDArray[np.float32]
    Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Selection:
    """Which rows may be found."""

    mask: Mask | None = None  # None: all
    conditions: tuple[Condition, ...] = ()  # the mask's, for an engine that stores metadata

    def allows(self, rows: NDArray[np.int64]) -> Mask:
        """Return which of some rows may be found; padding may not."""
        inside = rows >= 0
        return inside if self.mask is None else inside & self.mask[rows]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Rows to add to an engine."""

    folder: Path
    manifest: Manifest  # as it will be, but for the engine's part
    rows: Rows  # the old ones too
    first_row: int  # of the new ones
    uri: str  # of Milvus
    sample: Callable[[], Array]  # vectors of queries, to measure the recall with


class Engine(Protocol):
    """An open engine."""

    @property
    def limit(self) -> int | None:
        """Most results of one search, if there is a limit."""
        ...

    def search(self, queries: Array, n: int, selection: Selection) -> Ranked:
        """Return the ``n`` nearest selected rows of each query, best first; -1 pads."""
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


def best(scores: Array, n: int) -> Ranked:
    """Return the ``n`` highest of each row of scores; -1 stands for a row at -inf.

    >>> best(np.array([[0.1, 0.7, -np.inf]], np.float32), 3).rows.tolist()
    [[1, 0, -1]]
    """
    found = top_k(scores, n)
    found.rows[found.scores == -np.inf] = -1
    return found
