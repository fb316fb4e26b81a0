"""Exact search by one vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from boolattn.arrays import Array, is_tensor, same_type, to_numpy
from boolattn.errors import DataError
from boolattn.scoring.shortlist import highest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

#: Scores computed at once: queries times documents.
_BLOCK = 1 << 23


class Ranked(NamedTuple):
    """Rows of documents, best first, and their scores. Both shapes ``(queries, depth)``."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


def top_k(scores: Array, k: int) -> Ranked:
    """Return the ``k`` highest of each row of scores, equal scores by column.

    Args:
        scores: Shape ``(queries, documents)``.
        k: How many; never more than there are documents come back.

    >>> top_k(np.array([[0.1, 0.7, 0.1]]), 3).rows.tolist()
    [[1, 0, 2]]
    """
    k = min(k, scores.shape[1])
    if is_tensor(scores):
        best = scores.topk(k)
        rows, values = to_numpy(best.indices), to_numpy(best.values.float())
    else:
        rows = np.array([highest(row, k) for row in scores] if k else [], np.int64)
        rows = rows.reshape(len(scores), k)
        values = np.take_along_axis(scores, rows, 1).astype(np.float32)
    if np.isnan(values).any():
        raise DataError("scores are not numbers (NaN); check the model's weights")
    order = np.lexsort((rows, -values), axis=1)
    return Ranked(np.take_along_axis(rows, order, 1), np.take_along_axis(values, order, 1))


def exact_search(
    queries: Array,
    documents: Array,
    depth: int,
    similarity: Callable[[Array, Array], Array] | None = None,
) -> Ranked:
    """Find the best documents of each query among all, block by block.

    Args:
        queries: Shape ``(queries, dim)``.
        documents: In the library that computes. Shape ``(documents, dim)``.
        depth: How many; never more than there are documents come back.
        similarity: From queries and documents to scores; by default the inner product.
    """
    compare = similarity or (lambda some, all_: some @ all_.T)
    size = max(1, _BLOCK // max(1, len(documents)))
    queries = same_type(queries, documents)
    blocks = [
        top_k(compare(queries[start : start + size], documents), depth)
        for start in range(0, len(queries), size)
    ]
    if not blocks:
        depth = min(depth, len(documents))
        return Ranked(np.zeros((0, depth), np.int64), np.zeros((0, depth), np.float32))
    return Ranked(*(np.concatenate(column) for column in zip(*blocks, strict=True)))
