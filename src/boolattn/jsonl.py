"""Text and JSON lines, read as a stream from plain or compressed files; rows of Parquet files.

The ending of the name tells plain, gzip, xz and zip (of one file) apart. Errors name file and line.
"""

from __future__ import annotations

import gzip
import json
import lzma
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

from boolattn.errors import DataError, MissingDataError
from boolattn.files import atomic_file, require

#: Endings of a compressed file, in the order in which :func:`find_file` tries them.
ENDINGS = ("", ".xz", ".gz")

#: Most bytes of a line: a small compressed file may unpack to more than fits in memory.
MAX_LINE = 256_000_000
_MAX_EMPTY = 1_000_000  # lines in a row

# Raised by the decompressors when bytes are damaged or missing.
_DAMAGE = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zipfile.BadZipFile)


def find_file(folder: Path, *names: str, remedy: str = "") -> Path:
    """Find the first of some files in a folder, compressed or not.

    ``names`` are without the ending of a compression; ``remedy`` is added to the error message.
    """
    for name in names:
        for ending in ENDINGS:
            path = folder / (name + ending)
            if path.is_file():
                return path
    missing = " or ".join(names)
    raise MissingDataError(f"no {missing} in {folder}" + (f"; {remedy}" if remedy else ""))


def read_lines(path: Path, max_line: int = MAX_LINE) -> Iterator[tuple[int, str]]:
    """Read a text file, or stdin (``-``), line by line, numbered from 1, without the line ends.

    Only a line feed ends a line, because titles may contain other Unicode line separators. A line
    of more bytes than ``max_line`` is an error, and so are a million empty lines in a row.
    """
    number = n_empty = 0
    openers: Mapping[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".zip": _open_zip}
    try:
        opened = nullcontext(sys.stdin.buffer)
        if str(path) != "-":
            opened = openers.get(path.suffix, Path.open)(path, "rb")
        with opened as handle:
            lines = iter(partial(handle.readline, max_line + 1), b"")
            for number, raw in enumerate(lines, start=1):
                if len(raw) > max_line:
                    raise too_long(f"{path}:{number}: the line", max_line)
                n_empty = 0 if raw.strip() else n_empty + 1
                if n_empty > _MAX_EMPTY:
                    reason = f"{_MAX_EMPTY:,} empty lines; is this the file?"
                    raise DataError(f"{path}:{number}: {reason}")
                yield number, raw.decode("utf-8").rstrip("\r\n")
    except FileNotFoundError as error:
        raise MissingDataError(f"no file {path}") from error
    except _DAMAGE as error:
        reason = f"the file is truncated or damaged ({error}); fetch or build it again"
        raise DataError(f"{path}:{number + 1}: {reason}") from error
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 text ({error.reason}); save it as UTF-8"
        raise DataError(f"{path}:{number}: {reason}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_jsonl(
    path: Path, fields: Mapping[str, type] | None = None, *, unique: str = ""
) -> Iterator[tuple[int, Any]]:
    """Read JSON objects, one a line, each with its line number; empty lines are skipped.

    ``fields`` are the types of required fields; the field ``unique`` is another in every object.
    """
    seen: set[str] = set()
    for number, line in read_lines(path):
        if not line or line.isspace():
            continue
        row = parse_object(line, f"{path}:{number}")
        if fields:
            check_fields(row, fields, path, number)
        if unique:
            if row[unique] in seen:
                raise DataError(f"{path}:{number}: {unique} {row[unique]!r} occurs twice")
            seen.add(row[unique])
        yield number, row


def read_parquet(path: Path) -> Iterator[tuple[int, Any]]:
    """Read the rows of a Parquet file, each with its number."""
    require("Parquet", ("pyarrow",), "parquet")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(path) as file:
            batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=1024))
            for number, row in enumerate(chain.from_iterable(batches), start=1):
                yield number, row
    except (ArrowException, OSError, ValueError) as error:
        reason = f"damaged, or not Parquet ({error})"
        raise DataError(f"{path}:{number + 1}: {reason}") from error


def parse_object(line: str | bytes, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """Parse the JSON object of a line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}); is it cut?") from error
    return check_object(row, where)


def check_object(row: Any, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """Refuse JSON that is no object; raise what is wrong with it, if that is known."""
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, dict):
        raise DataError(f"{where}: a JSON object is expected, not {type(row).__name__}")
    return row


def check_fields(
    row: Mapping[str, Any], fields: Mapping[str, type], path: Path, number: int
) -> None:
    """Refuse a row that lacks a field, or has it in another type."""
    for name, kind in fields.items():
        if isinstance(row.get(name), kind):
            continue
        if name not in row:
            present = ", ".join(row)
            raise DataError(f"{path}:{number}: the field {name!r} is missing; there are {present}")
        expected, actual = kind.__name__, type(row[name]).__name__
        raise DataError(f"{path}:{number}: the field {name!r} must be {expected}, not {actual}")


def too_long(subject: str, limit: int) -> DataError:
    """Return the error for a line, or a file, that is longer than a limit."""
    return DataError(f"{subject} has more than {limit / 1e6:.6g} MB; write one document a line")


def _open_zip(path: Path, _mode: str) -> IO[bytes]:
    archive = zipfile.ZipFile(path)
    # Archives made on a Mac contain a second, hidden file for each.
    names = [n for n in archive.namelist() if n.endswith(".jsonl") and n[:8] != "__MACOSX"]
    if len(names) != 1:
        raise DataError(f"{path} must contain one .jsonl file, it contains {len(names)}")
    return archive.open(names[0])


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write JSON objects, one a line, completely or not at all; return how many."""
    count = 0
    with atomic_file(path) as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
            count += 1
    return count
