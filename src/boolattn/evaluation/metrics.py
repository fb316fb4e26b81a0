"""Ranking metrics: one value for each query.

All metrics read a :class:`JudgedRanking`, which says of every rank whether the document there is
relevant, excluded or a partial match. Training uses the same functions on plain arrays::

    judged = JudgedRanking.of_query(rows, relevant, excluded)  # many rankings of one query
    r_precision(judged), leak(judged), recall(judged, 100)

    judgements = Judgements.of_rows(relevant, excluded, n_documents)  # one ranking a query
    measure(Ranking.of(rows), judgements, ["r_precision", "leak", "recall@100"])
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

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
#: Metrics of which a lower value is better.
LOWER_IS_BETTER = frozenset({"leak", "violations", "partial_before_full", "excluded_before_full"})
#: Depth of the metrics over pairs of documents: the same for all systems.
PAIRS_DEPTH = 1000

_RELEVANT, _EXCLUDED, _PARTIAL = (np.uint8(1 << bit) for bit in range(3))


@dataclass(frozen=True, eq=False)
class JudgedRanking:
    """Rankings, with the judgement of the document at each rank.

    Attributes:
        marks: Bit flags: relevant, excluded, partial match. Shape ``(rankings, depth)``.
        n_relevant: Number of relevant documents. Shape ``(rankings,)``.
        n_excluded: Number of excluded documents, same shape.
        n_partial: Number of partial matches, same shape.
    """

    marks: NDArray[np.uint8]
    n_relevant: NDArray[np.int64]
    n_excluded: NDArray[np.int64]
    n_partial: NDArray[np.int64]

    @classmethod
    def of(cls, ranking: Ranking, judgements: Judgements, depth: int) -> JudgedRanking:
        """Judge one ranking for each query, down to ``depth``."""
        rows = ranking.rows[:, :depth]
        marks = _marks(rows, judgements)
        _refuse_repeats(rows, marks, judgements)
        kinds = (judgements.relevant, judgements.excluded, judgements.partial)
        return cls(marks, *(kind.sizes for kind in kinds))

    @classmethod
    def of_query(
        cls, rows: ArrayLike, relevant: Collection[int], excluded: Collection[int] = ()
    ) -> JudgedRanking:
        """Judge many rankings of one query.

        >>> judged = JudgedRanking.of_query([[1, 5, 2], [1, 2, 3]], relevant={1, 2}, excluded={5})
        >>> r_precision(judged), leak(judged)
        (array([0.5, 1. ]), array([1., 0.]))

        Args:
            rows: Documents, best first. Shape ``(rankings, depth)``.
            relevant: Rows of the relevant documents.
            excluded: Rows of the excluded documents.
        """
        rows = np.asarray(rows)
        marks = np.isin(rows, list(relevant)) * _RELEVANT
        marks |= np.isin(rows, list(excluded)) * _EXCLUDED
        sizes = (np.full(len(rows), n) for n in (len(relevant), len(excluded), 0))
        return cls(marks, *sizes)

    @cached_property
    def is_relevant(self) -> NDArray[np.bool_]:
        """Whether each document is relevant. Shape ``(rankings, depth)``."""
        return (self.marks & _RELEVANT).astype(bool)

    @cached_property
    def relevant(self) -> NDArray[np.int32]:
        """Relevant documents within the first 0, 1, 2… ranks. Shape ``(rankings, depth + 1)``."""
        return _running(self.is_relevant)

    @cached_property
    def excluded(self) -> NDArray[np.int32]:
        """Excluded documents within the first 0, 1, 2… ranks. Shape ``(rankings, depth + 1)``."""
        return _running((self.marks & _EXCLUDED).astype(bool))

    @cached_property
    def partial(self) -> NDArray[np.int32]:
        """Partial matches within the first 0, 1, 2… ranks. Shape ``(rankings, depth + 1)``."""
        return _running((self.marks & _PARTIAL).astype(bool))

    def within(
        self, running: NDArray[np.int32], depth: int | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return running counts at one depth, or at one depth for each ranking."""
        ranks = np.minimum(depth, running.shape[1] - 1)
        counts: NDArray[np.int64] = running[np.arange(len(running)), ranks].astype(np.int64)
        return counts


def recall(judged: JudgedRanking, k: int) -> Floats:
    """Share of the relevant documents among the first ``k`` results."""
    return _share(judged.within(judged.relevant, k), judged.n_relevant)


def mrr(judged: JudgedRanking, k: int) -> Floats:
    """Reciprocal rank of the first relevant document, 0 if none is among the first ``k``."""
    head = judged.is_relevant[:, :k]
    if not head.shape[1]:
        return _share(np.zeros(len(head)), judged.n_relevant)
    first = np.where(head.any(axis=1), 1 / (head.argmax(axis=1) + 1), 0.0)
    return np.where(judged.n_relevant > 0, first, np.nan)


def ndcg(judged: JudgedRanking, k: int) -> Floats:
    r"""Normalised discounted cumulative gain of the first ``k`` results, with binary relevance.

    .. math:: \sum_{i \le k,\, d_i \in R} \frac{1}{\log_2(i+1)} \Big/
        \sum_{i \le \min(|R|, k)} \frac{1}{\log_2(i+1)}
    """
    discount = 1 / np.log2(np.arange(2, k + 2))
    head = judged.is_relevant[:, :k]
    best = np.concatenate([[0.0], np.cumsum(discount)])
    return _share(head @ discount[: head.shape[1]], best[np.minimum(judged.n_relevant, k)])


def r_precision(judged: JudgedRanking) -> Floats:
    """Share of relevant documents among the first R results; R is their number."""
    return _share(judged.within(judged.relevant, judged.n_relevant), judged.n_relevant)


def mrecall(judged: JudgedRanking, k: int) -> Floats:
    """1 if the first ``k`` results hold all relevant documents, or ``k`` if there are more."""
    expected = np.minimum(judged.n_relevant, k)
    complete = (judged.within(judged.relevant, k) >= expected).astype(float)
    return np.where(judged.n_relevant > 0, complete, np.nan)


def leak(judged: JudgedRanking) -> Floats:
    """Share of the excluded documents returned within the first (relevant + excluded) results.

    Undefined for a query that excludes nothing. A system that ignores the exclusion, and is right
    otherwise, has a leak of 1.
    """
    returned = judged.within(judged.excluded, judged.n_relevant + judged.n_excluded)
    return _share(returned, judged.n_excluded)


def violations(judged: JudgedRanking, k: int) -> Floats:
    """Share of excluded documents among the first ``k`` results.

    Undefined for a query that excludes nothing.
    """
    returned = judged.within(judged.excluded, k)
    return np.where(judged.n_excluded > 0, returned / k, np.nan)


def partial_before_full(judged: JudgedRanking) -> Floats:
    """Share of (relevant, partial match) pairs in which the partial match is ranked higher.

    0 is best, 0.5 is chance. Only the first 1,000 results are read: a document among them ranks
    before every document that is not, and a pair of two that are not counts one half. Undefined
    for a query without partial matches.
    """
    return _before_relevant(judged, judged.partial, judged.n_partial)


def excluded_before_full(judged: JudgedRanking) -> Floats:
    """Share of (relevant, excluded) pairs in which the excluded document is ranked higher.

    As :func:`partial_before_full`. Unlike the leak it does not fall when a system finds neither.
    """
    return _before_relevant(judged, judged.excluded, judged.n_excluded)


def _before_relevant(
    judged: JudgedRanking, running: NDArray[np.int32], n_others: NDArray[np.int64]
) -> Floats:
    depth = min(PAIRS_DEPTH, judged.is_relevant.shape[1])
    others = running[:, : depth + 1]
    # Counting up to and including the rank itself is safe: no document is in both sets.
    found = np.einsum("qd,qd->q", judged.is_relevant[:, :depth], others[:, 1:], dtype=np.int64)
    n_missing = judged.n_relevant - judged.relevant[:, depth]
    returned = others[:, depth].astype(np.int64)
    missing = n_missing * (returned + (n_others - returned) / 2)
    return _share(found + missing, judged.n_relevant * n_others)


#: Metrics with a cut-off, written ``name@k``.
WITH_CUTOFF: Mapping[str, Callable[[JudgedRanking, int], Floats]] = {
    "recall": recall,
    "mrr": mrr,
    "ndcg": ndcg,
    "mrecall": mrecall,
    "violations": violations,
}
#: Metrics without a cut-off.
WITHOUT_CUTOFF: Mapping[str, Callable[[JudgedRanking], Floats]] = {
    "r_precision": r_precision,
    "leak": leak,
    "partial_before_full": partial_before_full,
    "excluded_before_full": excluded_before_full,
}


@dataclass(frozen=True)
class Metric:
    """A metric, such as ``recall@100`` or ``leak``.

    Attributes:
        name: With the cut-off.
        kind: The name without it.
        k: The cut-off, 0 where there is none.
    """

    name: str
    kind: str
    k: int

    @property
    def lower_is_better(self) -> bool:
        """Whether 0 is the best value."""
        return self.kind in LOWER_IS_BETTER

    def __call__(self, judged: JudgedRanking) -> Floats:
        """Return one value for each ranking."""
        return (
            WITH_CUTOFF[self.kind](judged, self.k) if self.k else WITHOUT_CUTOFF[self.kind](judged)
        )

    def depth(self, judgements: Judgements) -> int:
        """Number of results that the metric reads."""
        if self.k:
            return self.k
        sizes = {
            "r_precision": judgements.relevant.sizes,
            "leak": judgements.relevant.sizes + judgements.excluded.sizes,
        }
        return int(sizes[self.kind].max()) if self.kind in sizes else PAIRS_DEPTH


def parse(name: str) -> Metric:
    """Parse the name of a metric.

    >>> parse("recall@100")
    Metric(name='recall@100', kind='recall', k=100)
    """
    kind, mark, cutoff = name.partition("@")
    has_cutoff = kind in WITH_CUTOFF and cutoff.isascii() and cutoff.isdecimal() and int(cutoff) > 0
    if not has_cutoff and (kind not in WITHOUT_CUTOFF or mark):
        known = ", ".join([*(f"{each}@k" for each in WITH_CUTOFF), *WITHOUT_CUTOFF])
        raise ConfigError(f"unknown metric {name!r}; there are {known}")
    return Metric(name, kind, int(cutoff or 0))


def needed_depth(judgements: Judgements, metrics: Sequence[str] = DEFAULT) -> int:
    """Return how many results metrics need for each query, at most all documents."""
    deepest = max((parse(name).depth(judgements) for name in metrics), default=1)
    return min(deepest, judgements.n_documents)


def measure(
    ranking: Ranking, judgements: Judgements, metrics: Sequence[str] = DEFAULT
) -> dict[str, Floats]:
    """Compute metrics.

    Args:
        ranking: At least :func:`needed_depth` deep. Padding means that nothing more was returned.
            Documents with equal scores keep their order.
        judgements: Of the same queries.
        metrics: Their names.

    Returns:
        For each metric one value a query; nan where it is undefined.
    """
    if len(ranking) != len(judgements):
        raise ConfigError(f"got rankings of {len(ranking)} queries for {len(judgements)}")
    chosen = [parse(name) for name in metrics]
    for metric in chosen:
        needed = min(metric.depth(judgements), judgements.n_documents)
        if ranking.depth < needed:
            raise ConfigError(
                f"{metric.name} needs {needed} results and the ranking has {ranking.depth}; "
                "rank deeper, or pad the ranking if nothing more was returned"
            )
    judged = JudgedRanking.of(ranking, judgements, needed_depth(judgements, metrics))
    return {metric.name: metric(judged) for metric in chosen}


def mean(values: Floats) -> float:
    """Mean of the defined values; nan if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _share(part: NDArray[np.number], total: NDArray[np.number]) -> Floats:
    """Divide; nan where the total is 0."""
    result = np.full(len(total), np.nan)
    np.divide(part, total, out=result, where=total > 0)
    return result


def _running(found: NDArray[np.bool_]) -> NDArray[np.int32]:
    counts = np.zeros((found.shape[0], found.shape[1] + 1), dtype=np.int32)
    np.cumsum(found, axis=1, out=counts[:, 1:])
    return counts


def _marks(rows: NDArray[np.int32], judgements: Judgements) -> NDArray[np.uint8]:
    """Mark relevant, excluded and partly matching documents, one bit each."""
    size = judgements.n_documents
    if rows.size and (rows.max() >= size or rows.min() < -1):
        row = rows.max() if rows.max() >= size else rows.min()
        raise DataError(f"the ranking has row {row}, but the corpus has {size} documents")
    # One table for all queries, cleared after each: nine times faster than a sorted search over
    # all pairs. The last entry stays 0 for padding, which is -1.
    table = np.zeros(size + 1, dtype=np.uint8)
    marks = np.zeros(rows.shape, dtype=np.uint8)
    kinds: tuple[tuple[np.uint8, RowSets], ...] = (
        (_RELEVANT, judgements.relevant),
        (_EXCLUDED, judgements.excluded),
        (_PARTIAL, judgements.partial),
    )
    for query in range(len(rows)):
        sets = [(bit, row_sets[query]) for bit, row_sets in kinds]
        for bit, members in sets:
            table[members] |= bit
        marks[query] = table[rows[query]]
        for _, members in sets:
            table[members] = 0
    return marks


def _refuse_repeats(
    rows: NDArray[np.int32], marks: NDArray[np.uint8], judgements: Judgements
) -> None:
    """Refuse a ranking that returns a judged document twice: it would count twice."""
    queries, ranks = np.nonzero(marks)
    keys = queries * np.int64(judgements.n_documents) + rows[queries, ranks]
    keys.sort()
    repeated = keys[1:][keys[1:] == keys[:-1]]
    if len(repeated):
        query, row = divmod(int(repeated[0]), judgements.n_documents)
        name = judgements.ids[query] if judgements.queries else query
        raise DataError(f"the ranking of query {name!r} has document row {row} twice")
