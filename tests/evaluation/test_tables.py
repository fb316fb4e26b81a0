from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boolattn.evaluation.benchmark import QueryInfo
from boolattn.evaluation.results import Results, compare_results
from boolattn.evaluation.tables import comparison_table, split_table

NAN = float("nan")


@pytest.fixture
def results() -> Results:
    names = ["recall@20", "recall@50", "recall@100", "recall@1000", "mrr@10", "ndcg@10", "leak"]
    return Results(
        system="a [model]",
        dataset="tiny",
        split="test",
        n_documents=1000,
        queries=(
            QueryInfo("1", "_ that are also both _ and _", ("and",), "plants", "seen"),
            QueryInfo("2", "_", (), "plants", "unseen"),
        ),
        values={name: np.array([0.25, 1.0]) for name in names} | {"violations@10": np.full(2, NAN)},
    )


def test_all_groups_and_no_empty_column(results):
    text = split_table(results)
    assert text.startswith("a [model] on tiny, test: 2 queries, 1,000 documents")
    rows = [line.split()[:2] for line in text.splitlines() if ".250" in line]
    assert rows == [["_", "that"], ["operator:", "and"], ["wording:", "seen"]]
    assert "\nall " in text
    assert ".625" in text
    # All are plants, and nothing is excluded.
    assert "domain" not in text
    assert "violations" not in text


def test_marks_of_better_and_worse_depend_on_the_metric(results):
    many = replace(
        results,
        queries=tuple(QueryInfo(str(i)) for i in range(50)),
        values={name: np.full(50, 0.5) for name in ("recall@20", "leak", "mrr@10")},
    )
    lower = {name: np.full(50, 0.4) for name in ("recall@20", "leak")} | {
        "mrr@10": np.full(50, 0.5)
    }
    other = replace(many, system="other", values=lower)
    text = comparison_table([many, other], {"": compare_results(many, other)})
    marks = {line.split()[0]: line.split()[-1] for line in text.splitlines() if " 50 " in line}
    assert (marks["recall@20"], marks["leak"]) == ("!", "*")
    assert marks["mrr@10"] == "1.0000"
