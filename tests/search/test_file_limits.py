"""Files that are too large, too deep or not what they say: one line, and soon."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boolattn.cli import main
from boolattn.errors import BoolattnError, DataError, QueryError
from boolattn.jsonl import read_lines
from boolattn.search import Document, Searcher
from boolattn.stores import document_files
from boolattn.stores.document_files import read_documents
from boolattn.stores.filters import parse_filters, read_filters

PACKERS = {".gz": gzip.compress, ".xz": lzma.compress, "": bytes}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_long_line_is_refused_before_it_is_in_memory(tmp_path, ending, monkeypatch):
    path = tmp_path / f"rows.jsonl{ending}"
    path.write_bytes(PACKERS[ending](b'{"text": "a"}\n' + b'{"text": "' + b"x" * 3_000_000))
    with monkeypatch.context() as patch:
        patch.setattr(document_files, "MAX_LINE", 1_000_000)
        with pytest.raises(DataError, match=r"jsonl\S*:2: the line has more than 1 MB; write one"):
            list(read_documents(path))
    assert len(list(read_lines(path))) == 2


def test_a_zip_with_a_long_line(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", "x" * 3_000_000)
    with pytest.raises(DataError, match="1: the line has more than 1 MB"):
        list(read_lines(tmp_path / "a.zip", 1_000_000))


def test_a_bomb_of_one_line_is_stopped_while_it_is_read(tmp_path):
    """Two gigabytes of one line; the limit of the process is one."""
    path = tmp_path / "bomb.jsonl.gz"
    member = gzip.compress(b"x" * (1 << 24), 1)
    path.write_bytes(member * 128)
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from pathlib import Path; from boolattn.jsonl import read_lines\n"
        f"next(read_lines(Path({str(path)!r}), 20_000_000))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DataError: " in done.stderr
    assert "the line has more than 20 MB" in done.stderr


def test_too_little_memory_is_one_line(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        f"import sys; sys.argv[1:] = ['index', {str(tmp_path / 'rows.jsonl')!r}]\n"
        "from boolattn.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "boolattn: memory is limited to 512 MB, and indexing needs 768: "
        "raise the limit with ulimit -v\n"
    )


def test_empty_lines_end(tmp_path, monkeypatch):
    monkeypatch.setattr("boolattn.jsonl._MAX_EMPTY", 1000)
    path = tmp_path / "blank.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" * 5000))
    with pytest.raises(DataError, match="1001: 1,000 empty lines; is this the file"):
        list(read_documents(path))
    path.write_bytes(gzip.compress(b"\n" * 900 + b'{"text": "a"}\n' + b"\n" * 900))
    assert len(list(read_documents(path))) == 1


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_json_that_is_too_deep(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    for depth, message in ((100_000, "not JSON"), (80, "is nested deeper than 64 levels")):
        path.write_text('{"text": "a", "m": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(DataError, match=message) as caught:
            list(read_documents(path))
        assert "\n" not in str(caught.value)
    deep: object = "a"
    for _ in range(100):
        deep = {"a": deep}
    path.write_text(json.dumps({"text": "a", "m": deep}))
    with pytest.raises(DataError, match="is nested deeper than 64 levels"):
        list(read_documents(path))


def test_a_large_json_array_is_refused_by_its_size(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": "a" * 50}] * 100, indent=1))
    assert len(list(read_documents(path))) == 100
    monkeypatch.setattr(document_files, "MAX_LINE", 1000)
    with pytest.raises(DataError, match=r"an array has more than 0.001 MB"):
        list(read_documents(path))


def test_deep_lists_and_long_fields_of_a_table_are_text(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("text,m\na," + "[" * 5000 + "]" * 5000 + "\n")
    [row] = read_documents(path)
    assert row.metadata["m"].startswith("[[[")
    path.write_text('text,m\na,"' + "\n" * 20_000)
    monkeypatch.setattr(document_files, "MAX_LINE", 10_000)
    with pytest.raises(DataError, match="not CSV"):
        list(read_documents(path))


def test_numbers_of_400_digits(tmp_path):
    path = tmp_path / "a.jsonl"
    for number in ("9" * 400, "-" + "9" * 400, "9" * 5000):
        path.write_text(f'{{"text": "a", "year": {number}}}\n')
        with pytest.raises(DataError, match=r"a.jsonl:1: .*(too large|digits)"):
            list(read_documents(path))
    path.write_text(f'{{"text": "a", "id": {10**40}, "year": {10**300}}}\n')
    [row] = read_documents(path)
    assert row.id == str(10**40)


def test_filters_of_any_shape_are_refused_or_answered(shared):
    large = 10**400
    for filters in (
        {"year": large},
        {"year": {"gte": -large}},
        {"year": [1, large]},
        {"year": {"gte": [[1]]}},
        {"year": [[[1]]]},
        {"year": None},
        {"year": b"1"},
        {"year": {"gte": None}},
        {"year": {"gte": float("nan")}},
        {"year": {1: 2}},
        [1],
        "year>1",
        7,
    ):
        with pytest.raises(QueryError) as caught:
            shared.search("moths", filters=filters)
        assert "\n" not in str(caught.value)
    for text in (
        "year>=" + "9" * 400,
        "year<-" + "9" * 400,
        "year>" + "9" * 5000,
        "year=" + "9" * 400,
    ):
        with pytest.raises(QueryError):
            shared.search("moths", filters=parse_filters([text]))
    assert read_filters(parse_filters(["year>=1990"]))[0].values == (1990,)


def test_a_name_of_two_lines_is_told_in_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"two\\nlines": 1}\n')
    with pytest.raises(DataError, match="there are two lines"):
        list(read_documents(path))


def test_parquet_that_is_not_utf8(tmp_path):
    path = tmp_path / "a.parquet"
    wrong = pa.array([b"moth", b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": wrong}), path)
    with pytest.raises(DataError, match=r"a.parquet:\d: damaged, or not Parquet"):
        list(read_documents(path))


def test_metadata_of_the_library_has_the_same_limits(folder, retriever):
    for value in (10**400, float("inf"), {"a": object()}):
        with pytest.raises(BoolattnError) as caught:
            Searcher.build(folder, [Document(id="a", text="a", metadata={"m": value})], retriever)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["search", "x", "y", "-k", "many"],
        ["search"],
        ["serch"],
        ["index", "a.jsonl", "--passages", "many"],
        ["index", "a.jsonl", "--wings"],
        ["index", "x" * 300],
        ["reproduce", "table1", "--seeds", str(2**32)],
        ["reproduce", "sizes", "--model", "x"],
    ],
)
def test_a_wrong_option_is_one_line_where_nobody_watches(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["boolattn", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    found = capsys.readouterr()
    assert found.out == ""
    [line] = found.err.splitlines()
    assert line.startswith("boolattn: ")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device"), "boolattn: No space left on device\n"),
        (PermissionError(13, "Permission denied", "a.txt"), "boolattn: Permission denied: a.txt\n"),
    ],
)
def test_an_error_of_the_system_is_one_line(error, told, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("boolattn.cli.app", fail)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == told
