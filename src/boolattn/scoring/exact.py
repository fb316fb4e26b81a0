"""The highest scores: exact search by one vector; the shortlist, and statistics of its values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boolattn.errors import DataError

Values = NDArray[np.float32]

#: Scores computed at once: queries times documents.
_BLOCK = 1 << 23
#: Documents of the shortlist; of few documents a quarter, but at least :data:`BEST`.
SHORTLIST = 100
#: How far the first value is above the next ones where a text describes one document.
LEAD, _FIRST = 3.0, 10
#: Documents whose mean is the level of a good match.
BEST = 10
#: Values of a sample of many.
_SAMPLE = 2048


class Ranked(NamedTuple):
    """Rows of documents, best first, and their scores. Both shapes ``(queries, depth)``."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


def top_k(scores: Values, k: int) -> Ranked:
    """Return the ``k`` highest of each row of scores, equal ones by column.

    >>> top_k(np.array([[0.1, 0.7, 0.1]]), 2).rows.tolist()
    [[1, 0]]
    """
    k = min(k, scores.shape[1])
    rows = np.zeros((len(scores), k), np.int64)
    for number, values in enumerate(scores if k else ()):
        floor = values[highest(values, k)].min()
        if np.isnan(floor):
            raise DataError("scores are not numbers (NaN); check the model's weights")
        best = np.flatnonzero(values >= floor)
        rows[number] = best[np.argsort(-values[best], kind="stable")[:k]]
    return Ranked(rows, np.take_along_axis(scores, rows, 1).astype(np.float32))


def exact_search(queries: Values, documents: Values, depth: int) -> Ranked:
    """Find the documents of highest inner product with each query, block by block."""
    size = max(1, _BLOCK // max(1, len(documents)))
    blocks = [
        top_k(queries[start : start + size] @ documents.T, depth)
        for start in range(0, max(1, len(queries)), size)
    ]
    return Ranked(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def shortlist_spread(values: Values, size: int | None = None) -> float:
    """Return the standard deviation of the shortlist's values."""
    return float(values[shortlist(values, size)].std()) if len(values) else 0.0


def shortlist_size(n_documents: int) -> int:
    """Return the length of the shortlist."""
    return min(SHORTLIST, max(BEST, n_documents // 4), n_documents)


def shortlist(values: Values, size: int | None = None) -> NDArray[np.int64]:
    """Return the places of the highest values; all places where the values are equal."""
    if not len(values) or values.max() == values.min():
        return np.arange(len(values))
    size = shortlist_size(len(values)) if size is None else min(size, len(values))
    return highest(values, size)


def highest(values: Values, n: int) -> NDArray[np.int64]:
    """Return the places of the ``n`` highest values, in no order.

    >>> sorted(highest(np.array([0.3, 0.1, 0.2], np.float32), 2).tolist())
    [0, 2]
    """
    step = len(values) // _SAMPLE
    if step > 1 and 8 * n < len(values):
        # Few values are above what a sample says, and only these are compared with each other.
        rank = min(4 * n // step + 8, _SAMPLE)
        rows = np.flatnonzero(values >= np.partition(values[::step], -rank)[-rank])
        if len(rows) >= n:
            return rows[np.argpartition(-values[rows], n - 1)[:n]]
    return np.argpartition(-values, n - 1)[:n]


def level(values: Values) -> float:
    """Return the mean of the highest values."""
    return float(values[highest(values, min(BEST, len(values)))].mean())


def leader(values: Values) -> int | None:
    """Return the row that is far above the next nine; ``None`` where there is no such row.

    The distance is measured in standard deviations of the shortlist.
    """
    first = shortlist(values, _FIRST)
    spread = shortlist_spread(values)
    if len(first) < _FIRST or not spread:
        return None
    best, *others = sorted(first.tolist(), key=lambda row: -values[row])
    return best if values[best] - values[others].mean() > LEAD * spread else None
