"""BoolQuestions on a sample in its form: JSONL and parquet."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from boolattn.data.boolquestions import load_boolquestions, read_questions
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.query.tree import Operator

SAMPLE = Path(__file__).parent / "samples" / "boolquestions"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(SAMPLE, tmp_path / "boolquestions"))


def test_negatives_become_excluded():
    data = load_boolquestions("MSMARCO", SAMPLE)
    no_salt, both, either = data.splits["eval"]
    assert no_salt.gold == frozenset({"11"})
    assert no_salt.excluded == frozenset({"12", "13"})
    assert no_salt.operators == (Operator.NOT,)
    assert both.operators == (Operator.AND,)
    # One passage is named by both lists: it answers.
    assert both.gold == frozenset({"14"})
    assert both.excluded == frozenset({"11"})
    assert either.operators == (Operator.OR,)
    assert either.excluded == frozenset()
    assert data.documents[0].text == "Passage 11 about soup."


def test_title_stands_before_the_text():
    first, second = load_boolquestions("NaturalQuestions", SAMPLE).documents
    assert first.text == "Sailor [SEP] A person on a ship."
    assert second.title == "Swimmer"


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("MSMARCO/eval.jsonl", {"question": "x"}, r":4: the field 'question_type' is missing"),
        (
            "MSMARCO/eval.jsonl",
            {"question": "x", "question_type": "not", "positive_ctxs": [], "negative_ctxs": []},
            r":4: the field 'qid' is missing",
        ),
        ("MSMARCO/eval.jsonl", {"qid": "m1"}, r":4: qid 'm1' occurs twice"),
        ("MSMARCO/eval.jsonl", {"question_type": "xor"}, r":4: unknown question_type 'xor'; known"),
        ("MSMARCO/eval.jsonl", {"negative_ctxs": [{"id": 1}]}, r":4: a context has no 'passage_id"),
        (
            "MSMARCO/eval.jsonl",
            {"positive_ctxs": [{"passage_id": 99}]},
            r":4: the passage '99' is not in the corpus",
        ),
        ("MSMARCO-corpus/corpus.jsonl", {"docid": 11, "doc": ""}, r":5: docid '11' occurs twice"),
        ("MSMARCO-corpus/corpus.jsonl", {"doc": ""}, r":5: the field 'docid' is missing"),
    ],
)
def test_damage_names_file_and_line(folder, name, row, message):
    whole = {
        "qid": "m9",
        "question": "x",
        "question_type": "not",
        "positive_ctxs": [],
        "negative_ctxs": [],
    }
    # A row with a question is meant to be incomplete; the others change one field of a whole one.
    is_fragment = "question" in row or "doc" in row
    with (folder / name).open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row if is_fragment else whole | row) + "\n")
    with pytest.raises(DataError, match=name.replace(".", r"\.") + message) as caught:
        load_boolquestions("MSMARCO", folder)
    assert "\n" not in str(caught.value)


def test_unknown_collection_and_missing_file(folder):
    with pytest.raises(ConfigError, match="has no 'TREC'; it has MSMARCO, NaturalQuestions"):
        load_boolquestions("TREC", folder)
    (folder / "MSMARCO" / "eval.jsonl").unlink()
    with pytest.raises(MissingDataError, match=r"no eval\.jsonl in .*ustc-zhangzm/BoolQuestions"):
        list(read_questions("MSMARCO", folder))


def test_parquet_without_pyarrow_is_one_clear_line(folder, monkeypatch):
    (folder / "MSMARCO" / "eval-0000.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingDataError, match=r"Parquet needs pyarrow; pip install"):
        list(read_questions("MSMARCO", folder))


def to_parquet(path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    target = path.with_name(path.stem + "-0000.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), target)
    path.unlink()
    return target


def test_parquet_gives_the_same_records(folder):
    expected = load_boolquestions("MSMARCO", folder)
    to_parquet(folder / "MSMARCO" / "eval.jsonl")
    target = to_parquet(folder / "MSMARCO-corpus" / "corpus.jsonl")
    assert load_boolquestions("MSMARCO", folder) == expected
    target.write_bytes(target.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"corpus-0000\.parquet:1: damaged") as caught:
        load_boolquestions("MSMARCO", folder)
    assert "\n" not in str(caught.value)


def test_parquet_without_a_field(folder):
    path = folder / "MSMARCO" / "eval.jsonl"
    path.write_text('{"qid": "m1", "question": "x"}\n', encoding="utf-8")
    to_parquet(path)
    with pytest.raises(DataError, match=r"\.parquet:1: the field 'question_type' is missing"):
        list(read_questions("MSMARCO", folder))


def test_missing_passages_say_what_to_put_where(folder, monkeypatch):
    monkeypatch.setenv("BOOLATTN_CACHE", str(folder.parent / "empty"))
    with pytest.raises(MissingDataError) as caught:
        load_boolquestions("MSMARCO")
    home = folder.parent / "empty" / "boolquestions" / "MSMARCO-corpus"
    assert str(caught.value) == (
        f"no corpus.jsonl in {home}; put corpus*.parquet of MSMARCO-corpus of the hub's "
        "ustc-zhangzm/BoolQuestions there"
    )
    monkeypatch.setenv("BOOLATTN_CACHE", str(folder.parent))
    assert len(load_boolquestions("MSMARCO").splits["eval"]) == 3
