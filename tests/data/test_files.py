"""Streams of records: every compression, every kind of damage, and writing whole or not at all."""

from __future__ import annotations

import gzip
import lzma
import os
import zipfile

import pytest

from boolattn.errors import DataError, MissingDataError
from boolattn.files import atomic_file, atomic_folder
from boolattn.jsonl import find_file, read_jsonl, read_lines, write_jsonl

ROWS = [{"title": f"t{n}", "text": "Übung \u2028 " + "word " * n} for n in range(300)]
ENDINGS = ["", ".gz", ".xz"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_written_is_read(tmp_path, ending):
    path = tmp_path / f"rows.jsonl{ending}"
    assert write_jsonl(path, ROWS) == 300
    assert [row for _, row in read_jsonl(path, {"title": str})] == ROWS
    assert [number for number, _ in read_lines(path)] == list(range(1, 301))


@pytest.mark.parametrize("ending", ENDINGS)
def test_equal_rows_give_equal_bytes(tmp_path, ending):
    first, second = tmp_path / f"a.jsonl{ending}", tmp_path / f"b.jsonl{ending}"
    write_jsonl(first, ROWS)
    write_jsonl(second, ROWS)
    assert first.read_bytes() == second.read_bytes()
    if ending == ".gz":
        # The time of writing stands here, and two writings may fall into one second.
        assert first.read_bytes()[4:8] == bytes(4)


def test_compression_is_the_real_one(tmp_path):
    text = '{"a": 1}\n{"a": 2}\n'
    packers = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
    }
    for ending, pack in packers.items():
        path = tmp_path / f"rows.jsonl{ending}"
        path.write_bytes(pack(text.encode()))
        assert list(read_jsonl(path)) == [(1, {"a": 1}), (2, {"a": 2})]


def test_zip_of_one_file(tmp_path):
    path = tmp_path / "documents.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("documents.jsonl", '{"a": 1}\n')
        archive.writestr("__MACOSX/._documents.jsonl", "shadow")
    assert list(read_jsonl(path)) == [(1, {"a": 1})]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.jsonl", "{}")
    with pytest.raises(DataError, match=r"must contain one \.jsonl file, it contains 2"):
        list(read_jsonl(path))


@pytest.mark.parametrize("ending", [".gz", ".xz"])
@pytest.mark.parametrize("cut", [5, 40, 1])
def test_truncated_file_names_file_and_line(tmp_path, ending, cut):
    path = tmp_path / f"rows.jsonl{ending}"
    write_jsonl(path, ROWS)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2 if cut == 1 else -cut])
    with pytest.raises(DataError, match=r"rows\.jsonl\S*:\d+: the file is truncated") as caught:
        list(read_jsonl(path))
    assert "\n" not in str(caught.value)


def test_truncated_zip(tmp_path):
    path = tmp_path / "documents.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("documents.jsonl", '{"a": 1}\n' * 50)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"documents\.zip:1: the file is truncated"):
        list(read_jsonl(path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"title": "b", "te', r"rows\.jsonl:2: not JSON .*is it cut"),
        ('["b"]', r"rows\.jsonl:2: a JSON object is expected, not list"),
        ('{"title": "b"}', r"rows\.jsonl:2: the field 'text' is missing; there are title"),
        ('{"title": "b", "text": 3}', r"rows\.jsonl:2: the field 'text' must be str, not int"),
        ('{"title": "b", "text": null}', r"the field 'text' must be str, not NoneType"),
    ],
)
def test_bad_line_names_file_and_line(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"title": "a", "text": ""}\n' + line, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        list(read_jsonl(path, {"title": str, "text": str}))
    assert "\n" not in str(caught.value)


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n\xff\xfe\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:2: not UTF-8"):
        list(read_jsonl(path))


def test_missing_file(tmp_path):
    with pytest.raises(MissingDataError, match=r"no file .*none\.jsonl"):
        list(read_jsonl(tmp_path / "none.jsonl"))
    with pytest.raises(MissingDataError, match=r"no a\.jsonl or b\.jsonl in .*; fetch it"):
        find_file(tmp_path, "a.jsonl", "b.jsonl", remedy="fetch it")
    (tmp_path / "b.jsonl.gz").write_bytes(b"")
    assert find_file(tmp_path, "a.jsonl", "b.jsonl").name == "b.jsonl.gz"


def test_folder_in_place_of_a_file(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        list(read_lines(tmp_path))


@pytest.mark.parametrize("ending", ENDINGS)
def test_interrupted_writing_leaves_what_was_there(tmp_path, ending):
    path = tmp_path / f"rows.jsonl{ending}"
    write_jsonl(path, [{"old": 1}])

    def rows():
        yield {"new": 1}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_jsonl(path, rows())
    assert [row for _, row in read_jsonl(path)] == [{"old": 1}]
    assert list(tmp_path.iterdir()) == [path]


def test_two_that_write_one_file_do_not_meet(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl.xz"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with atomic_file(path) as first:
        first.write('{"a": 1}\n')
        monkeypatch.setattr(os, "getpid", lambda: 2)
        write_jsonl(path, [{"b": 1}])
        monkeypatch.setattr(os, "getpid", lambda: 1)
        first.write('{"a": 2}\n')
    assert [row for _, row in read_jsonl(path)] == [{"a": 1}, {"a": 2}]
    assert list(tmp_path.iterdir()) == [path]


def test_unwritable_place(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write"), atomic_file(tmp_path / "file" / "x"):
        pass


def write_then_fail(path):
    path.touch()
    raise RuntimeError("half way")


def test_folder_is_whole_or_absent(tmp_path):
    folder = tmp_path / "set"
    with pytest.raises(RuntimeError, match="half"), atomic_folder(folder) as draft:
        write_then_fail(draft / "a")
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(folder) as draft:
        (draft / "a").touch()
        assert not folder.exists()
    assert [path.name for path in folder.iterdir()] == ["a"]
    with pytest.raises(DataError, match="exists; remove it"), atomic_folder(folder):
        pass
