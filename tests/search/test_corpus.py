import gzip
import json

import pytest

from boolattn.errors import DataError, MissingDataError
from boolattn.search.index.document_files import read_documents


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_json_lines_give_ids_texts_and_metadata(tmp_path):
    path = lines(
        tmp_path / "docs.jsonl",
        {"id": "a", "text": "moths", "title": "Moths", "year": 1990, "metadata": {"place": "Peru"}},
        {"_id": 7, "contents": "beetles", "gone": None},
        {"title": "Only a title", "text": ""},
    )
    first, second, third = read_documents(path)
    assert (first.id, first.title, dict(first.metadata)) == (
        "a",
        "Moths",
        {"year": 1990, "place": "Peru"},
    )
    assert (second.id, second.text, dict(second.metadata)) == ("7", "beetles", {})
    assert (third.id, third.text) == ("Only a title", "")


def test_csv_reads_numbers_but_not_names_that_look_like_them(tmp_path):
    path = tmp_path / "docs.csv.gz"
    text = 'id,text,year,code,note\n1,"moths,\nof Borneo",1990,007,\nb,12,-2.5,x,old\n'
    path.write_bytes(gzip.compress(text.encode()))
    first, second = read_documents(path)
    assert (first.id, first.text) == ("1", "moths,\nof Borneo")
    assert first.metadata == {"year": 1990, "code": "007"}
    assert (second.text, second.metadata) == ("12", {"year": -2.5, "code": "x", "note": "old"})


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    table = pyarrow.table({"id": ["a", "b"], "text": ["x", "y"], "n": [1, None]})
    write_table(table, tmp_path / "docs.parquet")
    found = list(read_documents(tmp_path / "docs.parquet"))
    assert [(d.id, d.text, dict(d.metadata)) for d in found] == [
        ("a", "x", {"n": 1}),
        ("b", "y", {}),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", b"", "holds no documents"),
        ("d.csv", b"id,text\n", "holds no documents"),
        ("d.jsonl", b'{"text": "x"}\n', r"d.jsonl:1: the field 'id' is missing; there are text"),
        ("d.jsonl", b'{"id": "", "text": "x"}\n', r"d.jsonl:1: the field 'id' is empty"),
        ("d.jsonl", b'{"id": "a"}\n', r"d.jsonl:1: the field 'text' is missing"),
        ("d.jsonl", b'{"id": "a", "text": 3}\n', r"d.jsonl:1: the field 'text' is int, not text"),
        ("d.jsonl", b'{"id": "a", "text": "x", "y": [1]}\n', r":1: the field 'y' is list"),
        ("d.jsonl", b'{"id": "a", "text": "x"}\n{"id"', r"d.jsonl:2: not JSON"),
        ("d.jsonl", bytes(range(256)) * 20, r"d.jsonl:\d: not (UTF-8|JSON)"),
        ("d.csv", bytes(range(256)) * 20, r"d.csv:\d+: "),
        ("d.csv", b"id,text\na,x,y\n", "d.csv:2: more or fewer fields"),
        ("d.csv", b'id,text\na,"x', r"d.csv:2: not CSV"),
        ("d.parquet", bytes(range(256)) * 20, "damaged, or not Parquet"),
        ("d.jsonl.gz", b"\x1f\x8bnot really", "truncated or damaged"),
        ("d.txt", b"moths\n", r"ends in \.jsonl, \.csv, \.parquet"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_documents(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(MissingDataError, match="there is no file"):
        list(read_documents(tmp_path / "none.jsonl"))
