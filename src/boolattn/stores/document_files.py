"""Documents from files: JSON lines, JSON, CSV, TSV, Parquet, Excel, a folder, or stdin (``-``).

A row has a text, an id and a title, in the fields that are named, or else in the usual ones. All
other fields are metadata; those in an object ``metadata`` too.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from boolattn.data.records import Document
from boolattn.errors import DataError, MissingDataError
from boolattn.jsonl import (
    ENDINGS,
    MAX_LINE,
    check_object,
    parse_object,
    read_lines,
    read_parquet,
    too_long,
)
from boolattn.stores.filters import did_you_mean, known_name
from boolattn.stores.text_files import READERS, read_sheets
from boolattn.stores.values import as_boolean, flatten, is_number

Lines = Iterable[tuple[int, str]]
#: A line, or a file's name, and its row, perhaps as bytes of JSON, or what is wrong with it.
Rows = Iterable[tuple[int | str, Any]]
STDIN = Path("-")
_IDS, _TITLES, _METADATA = ("id", "_id"), ("title", "name"), "metadata."
_TEXTS = ("text", "contents", "content", "body", "description", "abstract")
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")


class EmptyDocumentError(DataError):
    """A document has neither a title nor a text."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Which fields have the text, the id and the title; empty: the first usual one of a row."""

    text: tuple[str, ...] = ()  # several are joined
    id: str = ""
    title: str = ""


def _raise(error: DataError) -> None:
    raise error


def read_documents(
    path: Path,
    fields: Fields | None = None,
    *,
    on_error: Callable[[DataError], None] = _raise,
    makes_ids: bool = True,
) -> Iterator[Document]:
    """Read documents as a stream from a file, perhaps compressed, a folder, or stdin (``-``).

    Args:
        path: Of the file or folder.
        fields: What is where in a row.
        on_error: Called with what is wrong with a row, which is left out unless this raises.
        makes_ids: Whether a row without an id gets its title or else its number as one.
    """
    seen: dict[str, int | str] = {}
    position = None
    for position, row in _rows(path):
        where = f"{path}:{position}" if isinstance(position, int) else position
        try:
            row = parse_object(row, where) if isinstance(row, bytes) else check_object(row, where)
        except DataError as error:
            on_error(error)
            continue
        try:
            number = str(position) if makes_ids else ""
            document = _Row(row, fields or Fields()).document(number, seen)
        except DataError as error:
            on_error(type(error)(f"{where}: {error}"))
            continue
        seen[document.id] = position
        yield document
    if position is None:
        raise DataError(f"{path} holds no documents, so there is nothing to index")


def count_documents(path: Path) -> int:
    """Count the rows of a file, or the files of a folder without reading them."""
    return len(_text_files(path)) if path.is_dir() else sum(1 for _ in _rows(path))


def _rows(path: Path) -> Rows:
    """Return the rows of any source."""
    if path.is_dir():
        return _folder(path, _text_files(path))
    if path != STDIN and not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    name = path.name.lower()
    for ending in ENDINGS[1:]:
        name = name.removesuffix(ending)
    kind = name.rpartition(".")[2]
    if kind in ("parquet", "xlsx"):
        return read_parquet(path) if kind == "parquet" else read_sheets(path)
    if path.suffix.lower() in READERS:
        return _folder(path.parent, [path])
    if path != STDIN and kind not in ("jsonl", "ndjson", "json", "csv", "tsv"):
        kinds = f".jsonl, .json, .csv, .tsv, .parquet, .xlsx, {', '.join(READERS)}"
        raise DataError(f"{path}: unknown type; documents are in files of the types {kinds}")
    lines: Lines = read_lines(path, MAX_LINE)
    for _, first in lines:
        first = first.removeprefix("\ufeff")
        lines = chain([(1, first)], lines)
        if path == STDIN:
            kind = {"{": "jsonl", "[": "json"}.get(first.lstrip()[:1], "csv")
        break
    if kind in ("csv", "tsv"):
        return _csv(path, lines, "\t" if kind == "tsv" else "")
    return _json(path, lines) if kind == "json" else _lines(lines)


def _lines(lines: Lines) -> Rows:
    return ((number, line.encode()) for number, line in lines if line and not line.isspace())


def _json(path: Path, lines: Lines) -> Rows:
    """Read an array of objects, one object, or one a line."""
    texts, size = [], 0
    for _, line in lines:
        texts.append(line)
        size += len(line) + 1
        if size > MAX_LINE + 1:
            raise too_long(f"{path}: an array", MAX_LINE)
    text = "\n".join(texts)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.lstrip().startswith("["):
            return _lines(enumerate(texts, 1))
        number = getattr(error, "lineno", 1)
        return [(number, DataError(f"{path}:{number}: not JSON ({error}); is it cut?"))]
    return enumerate(rows if isinstance(rows, list) else [rows], 1)


def _csv(path: Path, lines: Lines, delimiter: str) -> Rows:
    csv.field_size_limit(MAX_LINE)  # a field may hold line breaks, and a book
    texts = (line + "\n" for _, line in lines)
    heading = next(texts, "")
    delimiter = delimiter or max(",;\t", key=heading.count)
    reader = csv.DictReader(chain([heading], texts), delimiter=delimiter, strict=True)
    while True:
        try:
            row = next(reader, None)
            if row is None:
                return
        except csv.Error as error:
            number = reader.line_num + 1
            yield number, DataError(f"{path}:{number}: not CSV ({error})")
            continue
        names = Counter(filter(None, reader.fieldnames or ()))
        if twice := [name for name, n in names.items() if n > 1]:
            raise DataError(f"{path}:1: the heading names {twice[0]!r} more than once")
        values = [value for value in row.values() if isinstance(value, str)]
        number = reader.line_num - sum(value.count("\n") for value in values)
        if None in row or len(values) < len(row):
            yield number, DataError(f"{path}:{number}: more or fewer fields than the heading")
        else:
            row.pop("", None)  # the index of a pandas table
            yield number, _Texts(row)


def _text_files(folder: Path) -> list[Path]:
    """Return the texts of a folder: regular files, which are no links to elsewhere."""
    files = [path for path in folder.rglob("*") if path.suffix.lower() in READERS]
    root = folder.resolve()
    files = [p for p in files if p.is_file() and p.resolve() == root / p.relative_to(folder)]
    if not files:
        kinds = ", ".join(READERS)
        raise DataError(f"{folder} holds no files that end in {kinds}; links are not followed")
    return sorted(files)


def _folder(folder: Path, files: list[Path]) -> Rows:
    """Read a document from each file; its title is its own one, or its name."""
    for file in files:
        name = file.relative_to(folder)
        try:
            title, text = READERS[file.suffix.lower()](file)
        except DataError as error:
            yield str(file), error
            continue
        row = {"id": name.as_posix(), "title": " ".join(title.split()) or name.stem}
        inside = {"folder": name.parent.as_posix()} if len(name.parts) > 1 else {}
        yield str(file), row | inside | {"text": text.strip()}


class _Texts(dict[str, Any]):
    """A row whose values are all texts, without a type."""


class _Row:
    """A row, taken apart."""

    def __init__(self, row: Mapping[str, Any], fields: Fields) -> None:
        self._fields, self._names, self._is_text = fields, list(row), isinstance(row, _Texts)
        self._values = {n.removeprefix(_METADATA): value for n, value in flatten(row).items()}

    def document(self, number: str, seen: Mapping[str, int | str]) -> Document:
        """Make a document; ``number`` is the id of last resort, if it is not empty."""
        fields = self._fields
        # A wrong name is told at the first row; later ones may have no title.
        is_needed = bool(fields.title) and not seen
        title = self._take((fields.title,) if fields.title else _TITLES, is_needed=is_needed)
        texts = [self._take((name,)) for name in fields.text] or [self._take(_TEXTS)]
        text = "\n".join(part for part in texts if part.strip())
        if not text and not title.strip():
            names = fields.text or _TEXTS
            name = next((n for n in names if n in self._names), names[0])
            raise EmptyDocumentError(f"the field {name!r} is empty")
        ids = (fields.id,) if fields.id else _IDS
        if fields.id or not {name.lower() for name in self._values}.isdisjoint(ids):
            if not (name := self._take(ids)):
                raise DataError(f"the field {ids[0]!r} is empty")
        elif not (name := title or number):
            raise self._missing(ids[0])
        elif name in seen and number:
            name = f"{title} ({number})"
        if name in seen:
            first = f"first at {seen[name]}"
            raise DataError(f"the id {name!r} comes twice, {first}; every document needs its own")
        values = self._values
        if self._is_text:
            values = flatten({name: _typed(str(value)) for name, value in values.items()})
        return Document(id=name, text=text, title=title, metadata=values)

    def _take(self, names: tuple[str, ...], *, is_needed: bool = True) -> str:
        """Remove and return the first of some fields that the row has."""
        names = tuple(known_name(name, self._names) for name in names)
        name = next((name for name in names if name in self._values), None)
        if name is None:
            if is_needed and not any(name in self._names for name in names):  # null is empty
                raise self._missing(names[0])
            return ""
        value = self._values.pop(name)
        if isinstance(value, list):
            value = "\n".join(map(str, value))
        if is_number(value) and isinstance(value, int) and names[0] not in _TEXTS:
            value = str(value)
        if not isinstance(value, str):
            raise DataError(f"the field {name!r} is {type(value).__name__}, not text")
        return value

    def _missing(self, name: str) -> DataError:
        option = {_TEXTS[0]: "--text-field", _IDS[0]: "--id-field"}.get(name)
        text = f"the field {name!r} is missing; there are {', '.join(self._names)}"
        text += f"; name one with {option}" if option else ""
        return DataError(text + did_you_mean(name, self._names))


def _typed(value: str) -> object:
    """Return the value of a CSV field.

    A number if it would be written the same again (007 is text), true and false as pandas writes
    them, a list in the notation of JSON or Python; nothing for an empty field.
    """
    if not value:
        return None
    if _NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    for read in (json.loads, ast.literal_eval) if value[0] == "[" and value[-1] == "]" else ():
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(value)
    return as_boolean(value)
