from __future__ import annotations

import os

# ranx runs as plain Python, which gives the same numbers without a minute of compiling.
os.environ["NUMBA_DISABLE_JIT"] = "1"

import numpy as np
import pytest

from boolattn.data.records import Query
from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.benchmark import Judgements, row_sets
from boolattn.evaluation.metrics import DEFAULT_METRICS, measure, needed_depth, parse
from boolattn.evaluation.ranking import Ranking
from tests.evaluation.conftest import ROWS


def judgements_of(relevant, excluded=(), n_documents=20) -> Judgements:
    """Judgements of one query."""
    query = Query(id="q", text="", gold=frozenset())
    sets = (row_sets([one]) for one in (relevant, excluded))
    return Judgements((query,), n_documents, *sets)


def value(metric: str, ranked, *, depth=20, **sets) -> float:
    """One metric of one query, its ranking padded."""
    return measure(Ranking.of([ranked], depth), judgements_of(**sets), [metric])[metric][0]


@pytest.mark.parametrize(
    ("metric", "ranked", "expected"),
    [
        ("recall@2", [1, 9, 2, 3], 1 / 3),
        ("recall@3", [1, 9, 2, 3], 2 / 3),
        ("recall@20", [1, 9], 1 / 3),
        ("mrr@10", [9, 8, 2], 1 / 3),
        ("mrr@2", [9, 8, 2], 0),
        ("ndcg@3", [1, 9, 2], (1 + 1 / 2) / (1 + 1 / np.log2(3) + 1 / 2)),
        ("ndcg@2", [9, 3], (1 / np.log2(3)) / (1 + 1 / np.log2(3))),
        ("ndcg@10", [1, 2, 3], 1),
        ("r_precision", [1, 9, 2, 3], 2 / 3),
        ("mrecall@4", [1, 9, 2, 3], 1),
        ("mrecall@3", [1, 9, 2, 3], 0),
        ("mrecall@2", [1, 2, 9], 1),
        ("mrecall@2", [1, 9, 2], 0),
    ],
)
def test_metrics_of_three_relevant_documents_by_hand(metric, ranked, expected):
    assert value(metric, ranked, relevant={1, 2, 3}) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "ranked", "expected"),
    [
        # Two relevant and two excluded: the first four results count.
        ("leak", [5, 1, 6, 2, 9], 1),
        ("leak", [1, 2, 9, 5, 6], 1 / 2),
        ("leak", [1, 2, 8, 9, 5, 6], 0),
        ("violations@10", [5, 1, 6, 2, 9], 2 / 10),
        ("violations@1", [5, 1, 6], 1),
        ("violations@1", [1, 5, 6], 0),
    ],
)
def test_metrics_of_excluded_documents_by_hand(metric, ranked, expected):
    assert value(metric, ranked, relevant={1, 2}, excluded={5, 6}) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ranked", "expected"),
    [
        ([1, 2, 7, 8], 0),
        ([7, 8, 1, 2], 1),
        ([7, 1, 8, 2], 3 / 4),
        # 2 is not returned: both excluded documents rank before it.
        ([1, 7, 8], 1 / 2),
        # Neither 2 nor 8 is returned: 7 ranks before 2, and 8 counts one half.
        ([1, 7], (1 + 1 / 2) / 4),
        ([], 1 / 2),
    ],
)
def test_excluded_before_full_by_hand(ranked, expected):
    share = value("excluded_before_full", ranked, relevant={1, 2}, excluded={7, 8})
    assert share == pytest.approx(expected)


def test_pairs_are_read_from_the_first_thousand_results():
    ranked = [*range(100, 1100), 1, 7]
    ranking = Ranking.of([ranked])
    judgements = judgements_of({1}, {7}, n_documents=2000)
    names = ["excluded_before_full", "recall@1002"]
    assert measure(ranking, judgements, names)["excluded_before_full"] == [0.5]


def test_undefined_metrics_are_nan():
    values = measure(Ranking.of([[1, 2]], 20), judgements_of({1}), DEFAULT_METRICS)
    undefined = {name for name, value in values.items() if np.isnan(value[0])}
    assert undefined == {
        "leak",
        "violations@10",
        "excluded_before_full",
    }


def test_without_relevant_documents_their_metrics_are_nan():
    values = measure(Ranking.of([[1, 5]], 20), judgements_of((), {5}))
    known = {name: value[0] for name, value in values.items() if not np.isnan(value[0])}
    assert known == {"leak": 0, "violations@10": 0.1}


def test_padding_is_not_a_document():
    # As an index, -1 would be the last document.
    assert value("recall@20", [], relevant={19}) == 0
    assert value("violations@10", [1], relevant={1}, excluded={19}) == 0


def test_ties_keep_the_order_of_the_ranking():
    ranking = Ranking(np.array([[9, 1, 2]], dtype=np.int32), np.zeros((1, 3), dtype=np.float32))
    assert measure(ranking, judgements_of({1}), ["mrr@3"])["mrr@3"] == [0.5]


def test_a_ranking_over_the_whole_corpus_may_be_shorter_than_the_metric():
    values = measure(Ranking.of([[1, 0, 2]]), judgements_of({0, 1}, n_documents=3), ["recall@100"])
    assert values["recall@100"] == [1]


def test_needed_depth(queries):
    judgements = Judgements.of(queries, {str(row): row for row in range(5000)})
    assert needed_depth(judgements, ["recall@7", "r_precision"]) == 7
    assert needed_depth(judgements, ["mrr@2", "r_precision"]) == 3
    assert needed_depth(judgements, ["leak"]) == 4
    assert needed_depth(judgements) == 1000
    assert needed_depth(Judgements.of(queries, ROWS)) == 10


def test_a_ranking_that_is_too_short_is_refused():
    with pytest.raises(ConfigError, match="leak needs 4 results and the ranking has 3"):
        measure(Ranking.of([[1, 2, 3]]), judgements_of({1, 2}, {5, 6}), ["mrr@3", "leak"])


@pytest.mark.parametrize("row", [20, -2])
def test_a_ranking_of_another_corpus_is_refused(row):
    with pytest.raises(DataError, match="corpus has 20 documents"):
        measure(Ranking.of([[1, row]]), judgements_of({1}), ["mrr@2"])


def test_a_repeated_document_is_refused():
    with pytest.raises(DataError, match="has document row 1 twice"):
        measure(Ranking.of([[1, 3, 1]]), judgements_of({1}), ["recall@3"])


def test_rankings_of_other_queries_are_refused(queries):
    with pytest.raises(ConfigError, match="rankings of 1 queries for 3"):
        measure(Ranking.of([[1]]), Judgements.of(queries, ROWS), ["mrr@1"])


@pytest.mark.parametrize("name", ["recall", "recall@0", "recall@x", "leak@3", "map@10", "ndcg@²"])
def test_unknown_metrics_are_refused(name):
    with pytest.raises(ConfigError, match=r"there are recall@k.*leak"):
        parse(name)


def test_random_rankings_have_the_metrics_of_ranx():
    from ranx import Qrels, Run, evaluate

    rng = np.random.default_rng(7)
    n_queries, n_documents, depth = 60, 300, 120
    relevant = [
        rng.choice(n_documents, rng.integers(1, 40), replace=False) for _ in range(n_queries)
    ]
    # Some rankings are short, and some have nothing relevant.
    lengths = rng.integers(1, depth + 1, n_queries)
    ranked = [rng.permutation(n_documents)[:length].tolist() for length in lengths]
    queries = tuple(Query(id=f"q{i:02}", text="", gold=frozenset()) for i in range(n_queries))
    empty = row_sets([()] * n_queries)
    judgements = Judgements(queries, n_documents, row_sets(relevant), empty)

    names = ["recall@5", "recall@20", "recall@100", "mrr@10", "ndcg@10", "ndcg@100", "r_precision"]
    ours = measure(Ranking.of(ranked, depth), judgements, names)

    qrels = Qrels({f"q{i:02}": {f"d{row}": 1 for row in one} for i, one in enumerate(relevant)})
    run = Run(
        {
            f"q{i:02}": {f"d{row}": float(depth - rank) for rank, row in enumerate(one)}
            for i, one in enumerate(ranked)
        }
    )
    theirs = evaluate(qrels, run, [name.replace("_", "-") for name in names], return_mean=False)
    for name in names:
        np.testing.assert_allclose(ours[name], theirs[name.replace("_", "-")], err_msg=name)
