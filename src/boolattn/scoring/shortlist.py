"""The shortlist: the documents of highest values, and statistics of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

#: Documents of the shortlist; of few documents a quarter, but at least :data:`BEST`.
SHORTLIST = 100
#: How far the first value is above the next ones where a text describes one document.
LEAD, _FIRST = 3.0, 10
#: Documents whose mean is the level of a good match.
BEST = 10
#: Values of a sample of many.
_SAMPLE = 2048
#: The floor of NOT: so many standard deviations below the shortlist's mean.
FIT = 1.0


def shortlist_spread(values: Array, size: int | None = None) -> float:
    """Return the standard deviation of the shortlist's values."""
    return float(values[shortlist(values, size)].std()) if len(values) else 0.0


def shortlist_size(n_documents: int) -> int:
    """Return the length of the shortlist."""
    return min(SHORTLIST, max(BEST, n_documents // 4), n_documents)


def shortlist(values: Array, size: int | None = None) -> NDArray[np.int64]:
    """Return the places of the highest values; all places where the values are equal."""
    if not len(values) or values.max() == values.min():
        return np.arange(len(values))
    size = shortlist_size(len(values)) if size is None else min(size, len(values))
    return highest(values, size)


def highest(values: Array, n: int) -> NDArray[np.int64]:
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


def level(values: Array) -> float:
    """Return the mean of the highest values."""
    n = min(BEST, len(values))
    return float(values[highest(values, n)].mean())


def floor(values: NDArray[np.floating]) -> float:
    """Return the lowest score that NOT may give to a document with a higher one."""
    return float(values.mean() - FIT * values.std())


def leader(values: Array) -> int | None:
    """Return the row that is far above the next nine; ``None`` where there is no such row.

    The distance is measured in standard deviations of the shortlist.
    """
    first = shortlist(values, min(_FIRST, len(values)))
    spread = shortlist_spread(values)
    if len(first) < _FIRST or not spread:
        return None
    best, *others = sorted(first.tolist(), key=lambda row: -values[row])
    return best if values[best] - values[others].mean() > LEAD * spread else None
