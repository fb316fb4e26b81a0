"""Documents from a file: JSON lines, CSV or Parquet.

Every row has a text (``text``, or ``contents``) and an id (``id``, ``_id``, or else its title).
An object under ``metadata`` and all other fields but ``title`` are metadata.
"""

from __future__ import annotations

import csv
import math
import re
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Document
from boolattn.errors import DataError, MissingDataError
from boolattn.jsonl import ENDINGS, read_jsonl, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_IDS, _TEXTS, _TITLE, _METADATA = ("id", "_id"), ("text", "contents"), "title", "metadata"
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")


def read_documents(path: Path) -> Iterator[Document]:
    """Read a corpus as a stream; JSON lines and CSV may be compressed (.gz, .xz, .zst)."""
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    name = path.name.lower()
    for ending in ENDINGS[1:]:
        name = name.removesuffix(ending)
    kind = name.rpartition(".")[2]
    if kind not in _READERS:
        raise DataError(f"{path}: a corpus ends in {', '.join('.' + k for k in _READERS)}")
    number = 0
    for number, row in _READERS[kind](path):
        yield _document(row, f"{path}:{number}")
    if not number:
        raise DataError(f"{path} holds no documents, so there is nothing to index")


def _csv(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # A field may hold line breaks, and a book.
    csv.field_size_limit(1 << 30)
    reader = csv.DictReader((line + "\n" for _, line in read_lines(path)), restkey="", strict=True)
    try:
        for row in reader:
            if "" in row or None in row.values():
                raise DataError(f"{path}:{reader.line_num}: more or fewer fields than the heading")
            yield reader.line_num, {k: _typed(v) if k not in _PLAIN else v for k, v in row.items()}
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num + 1}: not CSV ({error})") from error


def _parquet(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingDataError("Parquet needs pyarrow; pip install 'boolattn[parquet]'") from error
    number = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}:{number + 1}: damaged, or not Parquet ({reason})") from error


_READERS = {"jsonl": read_jsonl, "csv": _csv, "parquet": _parquet}
#: Never read as numbers.
_PLAIN = (*_IDS, *_TEXTS, _TITLE)


def _document(row: Mapping[str, Any], where: str) -> Document:
    inner = row.get(_METADATA)
    values = {name: value for name, value in row.items() if name not in _PLAIN}
    if isinstance(inner, dict):
        del values[_METADATA]
        values |= inner
    return Document(
        id=_text(row, (*_IDS, _TITLE), where),
        text=_text(row, _TEXTS, where),
        title=_text(row, (_TITLE,), where) if row.get(_TITLE) is not None else "",
        metadata=_metadata(values, where),
    )


def _text(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    """Return the first of some fields that a row has."""
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if isinstance(value, int) and names[0] in _IDS and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and (value or names[0] not in _IDS):
        return value
    what = "is missing" if value is None else "is empty"
    if not isinstance(value, str | None):
        what = f"is {type(value).__name__}, not text"
    raise DataError(f"{where}: the field {names[0]!r} {what}; there are {', '.join(row)}")


def _metadata(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        if hasattr(value, "isoformat"):
            value = value.isoformat()
        if not isinstance(value, str | int | float | bool):
            raise DataError(
                f"{where}: the field {name!r} is {type(value).__name__}; metadata are text, "
                "numbers, true or false"
            )
        found[name] = value
    return found


def _typed(value: str) -> str | int | float | None:
    """Return a number if it would be written the same again; 007 is text."""
    if not value:
        return None
    if _NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return value
