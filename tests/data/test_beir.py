"""BEIR folders: nothing is lost on the way out and in, and every contradiction is named."""

from __future__ import annotations

import json

import pytest

from boolattn.data.beir import read_beir, read_corpus, write_beir
from boolattn.data.records import Document, Operand, Query, answer_sets
from boolattn.errors import DataError, MissingDataError
from boolattn.query.tree import Operator

DOCUMENTS = (
    Document(id="d1", text="A brown moth.", title="Moth", metadata={"source": "own"}),
    Document(id="d2", text="A \u201cred\u201d moth\u2028of Borneo."),
    Document(id="d 3", text="", title="Empty"),
)
TRAIN = (
    Query(
        id="train-0",
        text="moths but not red ones",
        gold=frozenset({"d1"}),
        template="_ that are not _",
        operators=(Operator.NOT,),
        operands=(Operand("moths", ((0, 5),)), Operand("red moths", ((0, 5), (14, 17)))),
        excluded=frozenset({"d2"}),
        partial=frozenset({"d 3"}),
        domain="animals",
        wording="but-not",
    ),
    Query(id="train-1", text="plain", gold=frozenset({"d1", "d 3"})),
)
# Without gold a query is in no qrels row, and must come back all the same.
VAL = (Query(id="val-0", text="nothing answers this", gold=frozenset(), domain="x"),)


def folder_of(tmp_path):
    folder = tmp_path / "set"
    write_beir(folder, DOCUMENTS, {"train": TRAIN, "val": VAL})
    return folder


def test_round_trip_loses_nothing(tmp_path):
    folder = folder_of(tmp_path)
    back = read_beir(folder)
    assert back.name == "set"
    assert back.documents == DOCUMENTS
    assert back.splits == {"train": TRAIN, "val": VAL}
    assert sorted(path.name for path in (folder / "qrels").iterdir()) == [
        "train.excluded.tsv",
        "train.tsv",
        "val.tsv",
    ]


def test_other_tools_find_what_they_expect(tmp_path):
    folder = folder_of(tmp_path)
    lines = (folder / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "query-id\tcorpus-id\tscore"
    assert lines[1:] == ["train-0\td1\t1", "train-1\td 3\t1", "train-1\td1\t1"]
    first = json.loads((folder / "corpus.jsonl").read_text(encoding="utf-8").split("\n")[0])
    assert first["_id"] == "d1"
    assert first["title"] == "Moth"


def test_a_folder_of_another_tool(tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "title": "", "text": "t"}\n')
    (tmp_path / "queries.jsonl").write_text(
        '{"_id": "1", "text": "q", "metadata": {}}\n{"_id": "2", "text": "of no split"}\n'
    )
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t2\n")
    assert read_beir(tmp_path).splits == {"test": (Query(id="1", text="q", gold=frozenset({"a"})),)}
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t0\n")
    assert read_beir(tmp_path).splits == {"test": ()}


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("corpus.jsonl", '{"_id": "d1", "text": "x"}', r":4: _id 'd1' occurs twice"),
        ("corpus.jsonl", '{"_id": "d9"}', r":4: the field 'text' is missing"),
        ("queries.jsonl", '{"_id": "val-0", "text": "x"}', r":4: _id 'val-0' occurs twice"),
        (
            "queries.jsonl",
            '{"_id": "q", "text": "x", "metadata": {"operators": ["xor"]}}',
            r":4: the query's metadata cannot be read",
        ),
        (
            "queries.jsonl",
            '{"_id": "q", "text": "x", "metadata": {"partial": ["d9"]}}',
            r":4: the partial document 'd9' is not in the corpus",
        ),
        ("qrels/train.tsv", "train-0\td9\t1", r":5: the document 'd9' is not in the corpus"),
        ("qrels/train.tsv", "train-9\td1\t1", r":5: the query 'train-9' is not in queries"),
        ("qrels/train.tsv", "train-0\td", r":5: not query-id, corpus-id and score"),
        ("qrels/train.excluded.tsv", "train-0\td9\t1", r":3: the document 'd9' is not in"),
    ],
)
def test_contradictions_name_file_and_line(tmp_path, name, line, message):
    folder = folder_of(tmp_path)
    with (folder / name).open("a", encoding="utf-8") as handle:
        handle.write(line + "\n")
    with pytest.raises(DataError, match=name.replace(".", r"\.") + message) as caught:
        read_beir(folder)
    assert "\n" not in str(caught.value)


def test_ids_that_cannot_be_kept_leave_no_folder(tmp_path):
    folder = tmp_path / "set"
    twice = {"train": TRAIN, "val": TRAIN}
    with pytest.raises(DataError, match="'train-0' is in train and in val"):
        write_beir(folder, DOCUMENTS, twice)
    tab = Query(id="q\t1", text="", gold=frozenset({"d1"}))
    with pytest.raises(DataError, match="does not fit a TSV file"):
        write_beir(folder, DOCUMENTS, {"train": (tab,)})
    with pytest.raises(DataError, match=r"cannot be named 'train\.excluded'"):
        write_beir(folder, DOCUMENTS, {"train.excluded": ()})
    assert list(tmp_path.iterdir()) == []


def test_missing_parts_are_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"no corpus\.jsonl in"):
        list(read_corpus(tmp_path))
    folder = folder_of(tmp_path)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(MissingDataError, match=r"no queries\.jsonl in"):
        read_beir(folder)


@pytest.mark.parametrize(
    ("template", "gold", "excluded", "partial"),
    [
        ("_", "1234", "", ""),
        ("_ or _", "123456", "", ""),
        ("_ or _ or _", "1234567", "", ""),
        ("_ that are also _", "34", "", "1256"),
        ("_ that are also both _ and _", "4", "", "123567"),
        ("_ that are not _", "12", "34", ""),
        ("_ that are also _ but not _", "3", "4", "1256"),
    ],
)
def test_sets_of_every_template(template, gold, excluded, partial):
    members = [frozenset("1234"), frozenset("3456"), frozenset("247")][: template.count("_")]
    sets = answer_sets(template, members)
    assert (sets.gold, sets.excluded, sets.partial) == tuple(
        map(frozenset, (gold, excluded, partial))
    )
