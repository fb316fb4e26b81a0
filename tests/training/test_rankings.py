"""Rankings of another engine, as negatives."""

from __future__ import annotations

import pytest

from boolattn.errors import DataError
from boolattn.evaluation.ranking import Ranking, write_run
from boolattn.training.corpus import read_rankings
from boolattn.training.launch import make_steps

QUERIES = ["q 1", "q2", "50%20"]
DOCUMENTS = ["a b", "c", "50%", "d"]
ROWS = {name: row for row, name in enumerate(DOCUMENTS)}


def test_a_written_run_is_read_back(tmp_path):
    path = tmp_path / "bm25.run.gz"
    ranking = Ranking.of([[2, 0], [3], [1, 2, 3]])
    write_run(path, ranking, ["q 1", "q2", "50%20"], DOCUMENTS)
    found = read_rankings(path, QUERIES, ROWS)
    assert found == {"q 1": [2, 0], "q2": [3], "50%20": [1, 2, 3]}


def test_scores_decide_and_unknown_ids_are_ignored(tmp_path):
    path = tmp_path / "other.run"
    path.write_text("q2 Q0 c 1 0.5 x\nq2 Q0 d 2 1.5 x\nq2 Q0 gone 3 9 x\nq9 Q0 c 1 1 x\n")
    assert read_rankings(path, QUERIES, ROWS) == {"q 1": [], "q2": [3, 1], "50%20": []}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.run", "q2 Q0 c 1\n", r"x.run:1: not a line of a TREC run"),
        ("x.run", "q2 Q0 c 1 best x\n", r"x.run:1: not a line of a TREC run"),
        ("x.run", "q7 Q0 c 1 1 x\n", "ranks nothing for 3 queries"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_rankings(tmp_path / name, QUERIES, ROWS)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no file .*gone.run"):
        read_rankings(tmp_path / "gone.run", QUERIES, ROWS)


def test_the_best_document_that_is_not_relevant_becomes_a_negative(preset, corpus, tmp_path):
    query = corpus.split("train")[0]
    answer = min(query.gold)
    wrong = next(name for name in corpus.rows if name not in query.gold)
    path = tmp_path / "bm25.run"
    path.write_text(f"{query.id} Q0 {answer} 1 9 x\n{query.id} Q0 {wrong} 2 8 x\n")
    steps = make_steps(preset(n_bm25=1, n_logical=0, n_epochs=1, max_steps=0), corpus, path)
    batches = [steps.sampler.batch(step) for step in range(len(steps))]
    seen = [
        row
        for batch in batches
        for example, row in zip(batch.examples, batch.documents.tolist(), strict=True)
        if example.id == query.id
    ]
    assert seen
    assert all(row[1] == corpus.rows[wrong] for row in seen)
