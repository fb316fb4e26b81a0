from __future__ import annotations

import numpy as np
import pytest

from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.evaluation.ranking import Ranking, read_run, write_run

NAMES = ["Acer rubrum", "100% moth", "moth", "kōwhai"]
ROWS = {name: row for row, name in enumerate(NAMES)}


def test_a_written_run_is_read_back_exactly(tmp_path):
    scores = np.array([[0.1, 0.1, -2e-7], [3, -np.inf, -np.inf]], dtype=np.float32)
    ranking = Ranking(np.array([[2, 0, 1], [3, -1, -1]], dtype=np.int32), scores)
    path = tmp_path / "some.run.gz"
    write_run(path, ranking, ["a query", "b"], NAMES, system="my model")
    again = read_run(path, ["a query", "b"], ROWS)
    np.testing.assert_array_equal(again.rows, ranking.rows)
    np.testing.assert_array_equal(again.scores, ranking.scores)


def test_a_written_run_has_six_fields_in_each_line(tmp_path):
    path = tmp_path / "some.run"
    write_run(path, Ranking.of([[0, 1]]), ["a query"], NAMES, system="my model")
    assert path.read_text(encoding="utf-8").splitlines() == [
        "a%20query Q0 Acer%20rubrum 1 -0 my%20model",
        "a%20query Q0 100%25%20moth 2 -1 my%20model",
    ]


def test_scores_decide_and_ranks_break_ties(tmp_path):
    path = tmp_path / "other.run"
    path.write_text("q Q0 moth 1 0.5 x\nq Q0 kōwhai 3 0.7 x\nq Q0 Acer rubrum 2 0.7 x\n")
    assert read_run(path, ["q"], ROWS).rows.tolist() == [[0, 3, 2]]


def test_other_queries_are_ignored_and_missing_ones_are_empty(tmp_path):
    path = tmp_path / "other.run"
    path.write_text("z Q0 elsewhere 1 0.5 x\nb Q0 moth 1 0.5 x\n\n")
    assert read_run(path, ["a", "b"], ROWS).rows.tolist() == [[-1], [2]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"ranks nothing for 1 queries: it is empty"),
        ("z Q0 moth 1 0.5 x\n", r"it has 'z', expected 'q'"),
        ("q Q0 bird 1 0.5 x\n", r":1: no document 'bird' among 4; is this run of another corpus"),
        ("q Q0 moth 1 0.5 x\nq Q0 moth 2 0.4 x\n", r":2: 'moth' comes twice for query 'q'"),
        ("q moth 1 0.5 x\n", r":1: not a line of a TREC run"),
        ("q Q0 moth 1 nan x\n", r":1: not a line of a TREC run"),
        ("q Q0 moth first 0.5 x\n", r":1: not a line of a TREC run"),
    ],
)
def test_an_invalid_run_is_refused(tmp_path, text, complaint):
    path = tmp_path / "bad.run"
    path.write_text(text)
    with pytest.raises(DataError, match=complaint):
        read_run(path, ["q"], ROWS)


def test_the_error_names_a_missing_run(tmp_path):
    with pytest.raises(MissingDataError, match=r"no file .*none.run"):
        read_run(tmp_path / "none.run", ["q"], ROWS)


def test_rows_and_scores_must_have_one_shape():
    with pytest.raises(ConfigError, match=r"got \(1, 2\) and \(1, 3\)"):
        Ranking(np.zeros((1, 2), dtype=np.int32), np.zeros((1, 3), dtype=np.float32))


def test_unknown_documents_can_be_skipped(tmp_path):
    path = tmp_path / "other.run"
    path.write_text("q Q0 bird 1 9 x\nq Q0 moth 2 0.5 x\n")
    assert read_run(path, ["q"], ROWS, skip_unknown=True).rows.tolist() == [[2]]
    path.write_text("q Q0 bird 1 9 x\n")
    with pytest.raises(DataError, match=r"ranks nothing for 1 queries: no document 'bird'"):
        read_run(path, ["q"], ROWS, skip_unknown=True)


def test_a_ranking_is_cut_or_padded():
    assert Ranking.of([[3, 1, 2]], 2).rows.tolist() == [[3, 1]]
    assert Ranking.of_scores([[(3, 0.5), (1, 0.25)]], 1).scores.tolist() == [[0.5]]
    padded = Ranking.of([[3, 1, 2]], 5)
    assert padded.rows.tolist() == [[3, 1, 2, -1, -1]]
    assert padded.scores[0, 3:].tolist() == [-np.inf, -np.inf]
