"""The manifest and the corpus of a benchmark that was built into a folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from boolattn.data.records import Document
from boolattn.errors import DataError, MissingDataError
from boolattn.jsonl import find_file, read_jsonl
from boolattn.settings import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")
_DOCUMENT = {"id": str, "title": str, "text": str, "metadata": dict}


def read_documents(folder: Path) -> Iterator[Document]:
    """Stream the corpus of a built folder."""
    for _, row in read_jsonl(find_file(folder, "corpus.jsonl"), _DOCUMENT):
        yield Document(**{name: row[name] for name in _DOCUMENT})


def read_built(kind: type[T], folder: Path, *, name: str, expected: str) -> T:
    """Read the manifest of a built benchmark, which must be in the expected format."""
    path = folder / "manifest.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingDataError(
            f"no {name} benchmark in {folder}; build it with: boolattn data build {name}"
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}); build the benchmark again") from error
    written = values.get("format") if isinstance(values, dict) else None
    if written != expected:
        raise DataError(f"{path} is in format {written!r}, this reads {expected!r}; build it again")
    return build(kind, values, source=str(path))
