"""Speed of our metrics and of ranx's, on random rankings of QUEST's size, in one run.

    python -m benchmarks.metrics [--queries 1727] [--depth 1000] [--documents 325000] [--rounds 5]

Building the data structures and compiling ranx's code are not timed. Every round times both in
turn; the table shows medians and the median of the ratios. The last line times all our metrics,
with those that ranx does not have.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np

from boolattn.data.records import Query
from boolattn.evaluation.benchmark import Judgements, row_sets
from boolattn.evaluation.metrics import DEFAULT_METRICS, measure
from boolattn.evaluation.ranking import Ranking

#: Ours -> ranx's.
SHARED = {
    "recall@20": "recall@20",
    "recall@100": "recall@100",
    "recall@1000": "recall@1000",
    "mrr@10": "mrr@10",
    "ndcg@10": "ndcg@10",
    "r_precision": "r-precision",
}
_RELEVANT, _EXCLUDED = 20, 10


def make(n_queries: int, depth: int, n_documents: int) -> tuple[Ranking, Judgements]:
    """Return random rankings, and sets of which about half is returned."""
    rng = np.random.default_rng(0)
    lists = [rng.choice(n_documents, depth, replace=False) for _ in range(n_queries)]

    def half_returned(size: int) -> list[set[int]]:
        return [
            {*rng.choice(one, size // 2, replace=False), *rng.choice(n_documents, size // 2)}
            for one in lists
        ]

    relevant = half_returned(_RELEVANT)
    pairs = zip(half_returned(_EXCLUDED), relevant, strict=True)
    excluded = [one - right for one, right in pairs]
    queries = tuple(Query(id=f"q{i}", text="", gold=frozenset()) for i in range(n_queries))
    sets = (row_sets(documents) for documents in (relevant, excluded))
    return Ranking.of(lists), Judgements(queries, n_documents, *sets)


def ranx_evaluation(ranking: Ranking, judgements: Judgements) -> Callable[[], dict[str, float]]:
    """Return ranx's evaluation of the same, compiled."""
    from ranx import Qrels, Run, evaluate

    depth = ranking.depth
    qrels = Qrels(
        {
            qid: {str(row): 1 for row in judgements.relevant[query]}
            for query, qid in enumerate(judgements.ids)
        }
    )
    run = Run(
        {
            qid: {str(row): float(depth - rank) for rank, row in enumerate(rows)}
            for qid, rows in zip(judgements.ids, ranking.rows.tolist(), strict=True)
        }
    )

    def evaluation() -> dict[str, float]:
        found: dict[str, float] = evaluate(qrels, run, list(SHARED.values()))
        return found

    evaluation()
    return evaluation


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=1727)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=325_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="unsafe cast")
    ranking, judgements = make(options.queries, options.depth, options.documents)
    theirs = ranx_evaluation(ranking, judgements)

    def ours() -> dict[str, np.ndarray]:
        return measure(ranking, judgements, list(SHARED))

    values, reference = ours(), theirs()
    largest = max(abs(values[own].mean() - reference[name]) for own, name in SHARED.items())
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(options.rounds)]
    all_ours = [seconds(lambda: measure(ranking, judgements)) for _ in range(options.rounds)]
    print(f"{options.queries:,} queries x {options.depth:,} of {options.documents:,} documents")
    print(f"largest difference of a mean: {largest:.1e}")
    print(f"{len(SHARED)} shared metrics: ours {statistics.median(p[0] for p in pairs):.3f} s, "
          f"ranx {statistics.median(p[1] for p in pairs):.3f} s, "
          f"ratio {statistics.median(p[1] / p[0] for p in pairs):.1f}")  # fmt: skip
    print(f"all {len(DEFAULT_METRICS)} of ours: {statistics.median(all_ours):.3f} s")


if __name__ == "__main__":
    main()
