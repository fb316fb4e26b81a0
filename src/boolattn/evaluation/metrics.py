"""The metrics: a ranking and judgements in, one number for each query out.

All of them read one board: for every place of every ranking, whether a gold, an excluded or a
partly matching document stands there. May import: boolattn.evaluation, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.evaluation.judgements import Judgements, RowSets
    from boolattn.evaluation.ranking import Ranking

    Floats = NDArray[np.float64]

DEFAULT = (
    "recall@20",
    "recall@50",
    "recall@100",
    "recall@1000",
    "mrr@10",
    "ndcg@10",
    "r_precision",
    "mrecall@100",
    "leak",
    "violations@10",
    "partial_before_full",
    "excluded_before_full",
)
#: Metrics of which less is better.
LOWER_IS_BETTER = frozenset({"leak", "violations", "partial_before_full", "excluded_before_full"})
#: How many results are read for pairs, so that systems are compared at one depth.
PAIRS_DEPTH = 1000

_GOLD, _EXCLUDED, _PARTIAL = (np.uint8(1 << bit) for bit in range(3))


class Board:
    """What stands at each place of each ranking.

    Args:
        ranking: One row for each query of the judgements.
        judgements: What is right.
        width: How many places are read.
    """

    def __init__(self, ranking: Ranking, judgements: Judgements, width: int) -> None:
        self.judgements = judgements
        rows = ranking.rows[:, :width]
        self.marks = _marks(rows, judgements)
        _refuse_repeats(rows, self.marks, judgements)
        self.n_gold = judgements.gold.sizes
        self.n_excluded = judgements.excluded.sizes
        self.n_partial = judgements.partial.sizes

    @cached_property
    def is_gold(self) -> NDArray[np.bool_]:
        """Where a gold document stands. Shape ``(queries, width)``."""
        return (self.marks & _GOLD).astype(bool)

    @cached_property
    def gold(self) -> NDArray[np.int32]:
        """Gold documents in the first 0, 1, 2… places. Shape ``(queries, width + 1)``."""
        return _running(self.is_gold)

    @cached_property
    def excluded(self) -> NDArray[np.int32]:
        """Excluded documents in the first 0, 1, 2… places. Shape ``(queries, width + 1)``."""
        return _running((self.marks & _EXCLUDED).astype(bool))

    @cached_property
    def partial(self) -> NDArray[np.int32]:
        """Partly matching ones in the first 0, 1, 2… places. Shape ``(queries, width + 1)``."""
        return _running((self.marks & _PARTIAL).astype(bool))

    def within(
        self, running: NDArray[np.int32], depth: int | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Read a running count at one depth, or at one depth for each query."""
        places = np.minimum(depth, running.shape[1] - 1)
        counts: NDArray[np.int64] = running[np.arange(len(running)), places].astype(np.int64)
        return counts


def recall(board: Board, k: int) -> Floats:
    """Share of the gold documents among the first ``k`` results."""
    return _share(board.within(board.gold, k), board.n_gold)


def mrr(board: Board, k: int) -> Floats:
    """One by the rank of the first gold document, 0 when none is among the first ``k``."""
    head = board.is_gold[:, :k]
    if not head.shape[1]:
        return _share(np.zeros(len(head)), board.n_gold)
    first = np.where(head.any(axis=1), 1 / (head.argmax(axis=1) + 1), 0.0)
    return np.where(board.n_gold > 0, first, np.nan)


def ndcg(board: Board, k: int) -> Floats:
    r"""Gain of the first ``k`` results, each gold document counting 1, by the best possible.

    .. math:: \sum_{i \le k,\, d_i \in G} \frac{1}{\log_2(i+1)} \Big/
        \sum_{i \le \min(|G|, k)} \frac{1}{\log_2(i+1)}
    """
    discount = 1 / np.log2(np.arange(2, k + 2))
    head = board.is_gold[:, :k]
    best = np.concatenate([[0.0], np.cumsum(discount)])
    return _share(head @ discount[: head.shape[1]], best[np.minimum(board.n_gold, k)])


def r_precision(board: Board) -> Floats:
    """Share of gold documents among the first as many results as there are gold documents."""
    return _share(board.within(board.gold, board.n_gold), board.n_gold)


def mrecall(board: Board, k: int) -> Floats:
    """1 when the first ``k`` results hold all gold documents, or only gold if there are more."""
    wanted = np.minimum(board.n_gold, k)
    complete = (board.within(board.gold, k) >= wanted).astype(float)
    return np.where(board.n_gold > 0, complete, np.nan)


def leak(board: Board) -> Floats:
    """Share of the excluded documents among the first gold + excluded results.

    Undefined for a query that excludes nothing. A system blind to the exclusion, and right
    otherwise, returns all of them; one that excludes well returns other documents instead.
    """
    returned = board.within(board.excluded, board.n_gold + board.n_excluded)
    return _share(returned, board.n_excluded)


def violations(board: Board, k: int) -> Floats:
    """Excluded documents among the first ``k`` results, by ``k``.

    Undefined for a query that excludes nothing.
    """
    returned = board.within(board.excluded, k)
    return np.where(board.n_excluded > 0, returned / k, np.nan)


def partial_before_full(board: Board) -> Floats:
    """How likely a partly matching document stands before a full match.

    Over all pairs of a gold and a partly matching document of the query, the share in which the
    latter stands before the former: 0 is right, 0.5 is chance, 1 is upside down. Only the first
    1,000 results are read; a document among them stands before every one that is not, and two
    that are not count as half a pair, because nobody knows their order. Undefined for a query
    without partly matching documents.
    """
    return _before_gold(board, board.partial, board.n_partial)


def excluded_before_full(board: Board) -> Floats:
    """How likely an excluded document stands before a full match; as `partial_before_full`.

    Unlike the leak it does not fall when a system finds neither: one that is blind to the
    exclusion stands near 0.5, whether it finds the subject or not.
    """
    return _before_gold(board, board.excluded, board.n_excluded)


def _before_gold(board: Board, running: NDArray[np.int32], n_others: NDArray[np.int64]) -> Floats:
    width = min(PAIRS_DEPTH, board.is_gold.shape[1])
    others = running[:, : width + 1]
    # Up to and with its own place is as good as before it: one document is not in both sets.
    before_found = np.einsum("qd,qd->q", board.is_gold[:, :width], others[:, 1:], dtype=np.int64)
    lost = board.n_gold - board.gold[:, width]
    returned = others[:, width].astype(np.int64)
    before_lost = lost * (returned + (n_others - returned) / 2)
    return _share(before_found + before_lost, board.n_gold * n_others)


#: Metrics that are cut off at a rank, written ``name@k``.
AT_RANK: Mapping[str, Callable[[Board, int], Floats]] = {
    "recall": recall,
    "mrr": mrr,
    "ndcg": ndcg,
    "mrecall": mrecall,
    "violations": violations,
}
#: Metrics that say themselves how deep they read.
WHOLE: Mapping[str, Callable[[Board], Floats]] = {
    "r_precision": r_precision,
    "leak": leak,
    "partial_before_full": partial_before_full,
    "excluded_before_full": excluded_before_full,
}


@dataclass(frozen=True)
class Metric:
    """A metric by its name, ``recall@100`` or ``leak``.

    Attributes:
        name: As written.
        kind: The name without the rank.
        k: The rank, 0 where there is none.
    """

    name: str
    kind: str
    k: int

    @property
    def lower_is_better(self) -> bool:
        """Whether 0 is the best value."""
        return self.kind in LOWER_IS_BETTER

    def __call__(self, board: Board) -> Floats:
        """Compute it."""
        return AT_RANK[self.kind](board, self.k) if self.k else WHOLE[self.kind](board)

    def depth(self, judgements: Judgements) -> int:
        """How many results it reads."""
        if self.k:
            return self.k
        sizes = {
            "r_precision": judgements.gold.sizes,
            "leak": judgements.gold.sizes + judgements.excluded.sizes,
        }
        return int(sizes[self.kind].max()) if self.kind in sizes else PAIRS_DEPTH


def parse(name: str) -> Metric:
    """Read a metric's name.

    >>> parse("recall@100")
    Metric(name='recall@100', kind='recall', k=100)
    """
    kind, mark, cutoff = name.partition("@")
    is_ranked = kind in AT_RANK and cutoff.isascii() and cutoff.isdecimal() and int(cutoff) > 0
    if not is_ranked and (kind not in WHOLE or mark):
        known = ", ".join([*(f"{each}@k" for each in AT_RANK), *WHOLE])
        raise ConfigError(f"no metric {name!r}; there are {known}")
    return Metric(name, kind, int(cutoff or 0))


def needed_depth(judgements: Judgements, metrics: Sequence[str] = DEFAULT) -> int:
    """Say how many results each query must have; never more than there are documents."""
    deepest = max((parse(name).depth(judgements) for name in metrics), default=1)
    return min(deepest, judgements.n_documents)


def measure(
    ranking: Ranking, judgements: Judgements, metrics: Sequence[str] = DEFAULT
) -> dict[str, Floats]:
    """Compute metrics.

    Args:
        ranking: At least :func:`needed_depth` deep. Padding says that nothing more was returned,
            and what is not returned is not found; documents of one score keep their order.
        judgements: What is right, for the same queries.
        metrics: Their names.

    Returns:
        For each metric one number a query; nan where it is undefined.
    """
    if len(ranking) != len(judgements):
        raise ConfigError(f"got rankings of {len(ranking)} queries for {len(judgements)}")
    chosen = [parse(name) for name in metrics]
    for metric in chosen:
        wanted = min(metric.depth(judgements), judgements.n_documents)
        if ranking.depth < wanted:
            raise ConfigError(
                f"{metric.name} reads {wanted} results and the ranking holds {ranking.depth}; "
                "rank deeper, or pad it if no more was returned"
            )
    board = Board(ranking, judgements, needed_depth(judgements, metrics))
    return {metric.name: metric(board) for metric in chosen}


def _share(part: NDArray[np.number], whole: NDArray[np.number]) -> Floats:
    """Divide, and give nan where there is nothing to divide by."""
    result = np.full(len(whole), np.nan)
    np.divide(part, whole, out=result, where=whole > 0)
    return result


def _running(found: NDArray[np.bool_]) -> NDArray[np.int32]:
    counts = np.zeros((found.shape[0], found.shape[1] + 1), dtype=np.int32)
    np.cumsum(found, axis=1, out=counts[:, 1:])
    return counts


def _marks(rows: NDArray[np.int32], judgements: Judgements) -> NDArray[np.uint8]:
    """Mark the places of gold, excluded and partly matching documents, a bit for each."""
    size = judgements.n_documents
    if rows.size and (rows.max() >= size or rows.min() < -1):
        row = rows.max() if rows.max() >= size else rows.min()
        raise DataError(f"the ranking names row {row} of a corpus of {size} documents")
    # One slate for all queries: marked, read and wiped. A sorted search over all pairs was nine
    # times slower. The last entry stays 0 and is what padding, -1, reads.
    slate = np.zeros(size + 1, dtype=np.uint8)
    marks = np.zeros(rows.shape, dtype=np.uint8)
    kinds: tuple[tuple[np.uint8, RowSets], ...] = (
        (_GOLD, judgements.gold),
        (_EXCLUDED, judgements.excluded),
        (_PARTIAL, judgements.partial),
    )
    for query in range(len(rows)):
        sets = [(bit, rows_of[query]) for bit, rows_of in kinds]
        for bit, members in sets:
            slate[members] |= bit
        marks[query] = slate[rows[query]]
        for _, members in sets:
            slate[members] = 0
    return marks


def _refuse_repeats(
    rows: NDArray[np.int32], marks: NDArray[np.uint8], judgements: Judgements
) -> None:
    """Refuse a judged document that stands twice in one ranking: it would count twice."""
    queries, places = np.nonzero(marks)
    keys = queries * np.int64(judgements.n_documents) + rows[queries, places]
    keys.sort()
    repeated = keys[1:][keys[1:] == keys[:-1]]
    if len(repeated):
        query, row = divmod(int(repeated[0]), judgements.n_documents)
        raise DataError(
            f"the ranking of query {judgements.ids[query]!r} names document row {row} twice"
        )
