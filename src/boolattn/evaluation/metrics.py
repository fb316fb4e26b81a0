"""Ranking metrics: one value for each query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.benchmark import Judgements, sizes_of
from boolattn.settings import checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from boolattn.evaluation.ranking import Ranking

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

DEFAULT_METRICS = (
    *(f"recall@{k}" for k in (20, 50, 100, 1000)),
    *("mrr@10", "ndcg@10", "r_precision", "mrecall@100", "leak", "violations@10"),
    "excluded_before_full",
)
#: Metrics of which a lower value is better.
LOWER_IS_BETTER = frozenset({"leak", "violations", "excluded_before_full"})
PAIRS_DEPTH = 1000  # depth of the metric over pairs of documents: the same for all systems


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """Where the documents of one set are in each ranking."""

    is_at: NDArray[np.bool_]  # whether that at each rank is of the set. ``(rankings, depth)``
    n: Ints  # size of the set, returned or not. ``(rankings,)``

    def within(self, depth: int | Ints) -> Ints:
        """Number of documents within one depth, or one depth for each ranking."""
        ranks = np.arange(self.is_at.shape[1])
        return np.asarray((self.is_at & (ranks < np.reshape(depth, (-1, 1)))).sum(axis=1), np.int64)

    def reciprocal_rank(self, depth: int | None = None) -> Floats:
        """One divided by the rank of the first document, 0 if none is among the first results."""
        head = self.is_at[:, :depth]
        return cast("Floats", np.max(head / np.arange(1, head.shape[1] + 1), axis=1, initial=0.0))


class JudgedRanking(NamedTuple):
    """Rankings, with the relevant and excluded documents in them."""

    relevant: JudgedSet
    excluded: JudgedSet


def judge(ranking: Ranking, judgements: Judgements, depth: int) -> JudgedRanking:
    """Judge one ranking for each query, down to ``depth``; a document may not come twice."""
    rows, size = ranking.rows[:, :depth], judgements.n_documents
    if len(wrong := rows[(rows >= size) | (rows < -1)]):
        raise DataError(f"the ranking has row {wrong[0]}, but the corpus has {size} documents")
    # 1 is relevant, 2 excluded, in one table for all queries; the last entry is that of padding.
    both = (judgements.relevant, judgements.excluded)
    table = np.zeros(size + 1, dtype=np.uint8)
    marks = np.zeros(rows.shape, dtype=np.uint8)
    for query, ranked in enumerate(rows):
        table[both[1][query]], table[both[0][query]] = 2, 1
        marks[query] = table[ranked]
        hits = ranked[marks[query] > 0].tolist()
        if repeated := [row for row, n in Counter(hits).items() if n > 1]:
            name = judgements.ids[query]
            raise DataError(f"the ranking of query {name!r} has document row {repeated[0]} twice")
        table[both[1][query]] = table[both[0][query]] = 0
    return JudgedRanking(*(JudgedSet(marks == mark, sizes_of(both[mark - 1])) for mark in (1, 2)))


def recall(judged: JudgedRanking, k: int) -> Floats:
    """Share of the relevant documents among the first ``k`` results."""
    return _share(judged.relevant.within(k), judged.relevant.n)


def mrr(judged: JudgedRanking, k: int) -> Floats:
    """Reciprocal rank of the first relevant document, 0 if none is among the first ``k``."""
    return np.where(judged.relevant.n > 0, judged.relevant.reciprocal_rank(k), np.nan)


def ndcg(judged: JudgedRanking, k: int) -> Floats:
    r"""Normalised discounted cumulative gain of the first ``k`` results, with binary relevance.

    .. math:: \sum_{i \le k,\, d_i \in R} \frac{1}{\log_2(i+1)} \Big/
        \sum_{i \le \min(|R|, k)} \frac{1}{\log_2(i+1)}
    """
    discount = 1 / np.log2(np.arange(2, k + 2))
    head = judged.relevant.is_at[:, :k]
    best = np.concatenate([[0.0], np.cumsum(discount)])
    return _share(head @ discount[: head.shape[1]], best[np.minimum(judged.relevant.n, k)])


def r_precision(judged: JudgedRanking) -> Floats:
    """Share of relevant documents among the first R results; R is their number."""
    return _share(judged.relevant.within(judged.relevant.n), judged.relevant.n)


def mrecall(judged: JudgedRanking, k: int) -> Floats:
    """1 if the first ``k`` results have all relevant documents, or ``k`` if there are more."""
    is_complete = judged.relevant.within(k) >= np.minimum(judged.relevant.n, k)
    return np.where(judged.relevant.n > 0, is_complete, np.nan)


def leak(judged: JudgedRanking) -> Floats:
    """Share of the excluded documents returned within the first (relevant + excluded) results.

    Undefined for a query that excludes nothing; 1 for a system that only ignores the exclusion.
    """
    return _share(judged.excluded.within(judged.relevant.n + judged.excluded.n), judged.excluded.n)


def violations(judged: JudgedRanking, k: int) -> Floats:
    """Share of excluded documents among the first ``k`` results; nan if nothing is excluded."""
    return np.where(judged.excluded.n > 0, judged.excluded.within(k) / k, np.nan)


def excluded_before_full(judged: JudgedRanking) -> Floats:
    """Share of (relevant, excluded) pairs in which the excluded document is ranked higher.

    0 is best, 0.5 is chance. Only the first 1,000 results are read: a document among them ranks
    before every document that is not, and a pair of two that are not counts one half. Undefined
    for a query that excludes nothing. Unlike the leak it does not fall when a system finds neither.
    """
    relevant, excluded = judged
    # Counting up to and including the rank itself is safe: no document is in both sets.
    running = np.cumsum(excluded.is_at[:, :PAIRS_DEPTH], axis=1, dtype=np.int64)
    n_before = np.einsum("qd,qd->q", relevant.is_at[:, :PAIRS_DEPTH], running)
    n_returned = excluded.within(PAIRS_DEPTH)
    n_missing = relevant.n - relevant.within(PAIRS_DEPTH)
    missing = n_missing * (n_returned + (excluded.n - n_returned) / 2)
    return _share(n_before + missing, relevant.n * excluded.n)


def pairwise(judged: JudgedRanking) -> Floats:
    """1 for both queries of a pair if each ranks its relevant document before its excluded one.

    The mean is NevIR's pairwise accuracy. Queries come in pairs, one after the other; in each, one
    document is relevant and the other is excluded.
    """
    if len(judged.relevant.n) % 2 or not np.all(judged.relevant.n * judged.excluded.n == 1):
        raise ConfigError("pairwise accuracy needs pairs of queries, each with two documents")
    is_right = judged.relevant.reciprocal_rank() > judged.excluded.reciprocal_rank()
    return np.repeat(is_right.reshape(-1, 2).all(axis=1), 2).astype(np.float64)


#: Metrics with a cut-off, written ``name@k``.
WITH_CUTOFF: Mapping[str, Callable[[JudgedRanking, int], Floats]] = {
    metric.__name__: metric for metric in (recall, mrr, ndcg, mrecall, violations)
}
#: Metrics without a cut-off.
WITHOUT_CUTOFF: Mapping[str, Callable[[JudgedRanking], Floats]] = {
    metric.__name__: metric for metric in (r_precision, leak, excluded_before_full, pairwise)
}


@dataclass(frozen=True)
class Metric:
    """A metric: its name, the name without the cut-off, and the cut-off (0 for none)."""

    name: str
    kind: str
    k: int

    def __call__(self, judged: JudgedRanking) -> Floats:
        """Return one value for each ranking."""
        if self.k:
            return WITH_CUTOFF[self.kind](judged, self.k)
        return WITHOUT_CUTOFF[self.kind](judged)

    def depth(self, judgements: Judgements) -> int:
        """Number of results that the metric reads, at most all documents."""
        depth = self.k or (judgements.n_documents if self.kind == "pairwise" else PAIRS_DEPTH)
        if self.kind in ("r_precision", "leak"):
            relevant, excluded = map(sizes_of, (judgements.relevant, judgements.excluded))
            depth = int((relevant + excluded * (self.kind == "leak")).max())
        return min(depth, judgements.n_documents)


@checked
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


def needed_depth(judgements: Judgements, metrics: Sequence[str] = DEFAULT_METRICS) -> int:
    """Return how many results the metrics need for each query, undecided ones included."""
    depth = max((parse(name).depth(judgements) for name in metrics), default=1)
    n_undecided = max(sizes_of(judgements.undecided), default=0)
    return min(depth + int(n_undecided), max(depth, judgements.n_documents))


def measure(
    ranking: Ranking, judgements: Judgements, metrics: Sequence[str] = DEFAULT_METRICS
) -> dict[str, Floats]:
    """Return for each metric one value a query; nan where it is undefined.

    The ranking must be :func:`needed_depth` deep; padding means that nothing more was returned.
    Documents with equal scores keep their order. Undecided documents are taken out first.
    """
    if len(ranking) != len(judgements):
        raise ConfigError(f"got rankings of {len(ranking)} queries for {len(judgements)}")
    chosen = [parse(name) for name in metrics]
    for metric in chosen:
        if ranking.depth < (needed := metric.depth(judgements)):
            problem = f"{metric.name} needs {needed} results and the ranking has {ranking.depth}"
            remedy = "rank deeper, or pad the ranking if nothing more was returned"
            raise ConfigError(f"{problem}; {remedy}")
    if judgements.undecided:
        ranking = ranking.without(judgements.undecided)
    judged = judge(ranking, judgements, needed_depth(judgements, metrics))
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
