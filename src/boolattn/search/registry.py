"""The engines by name: how each is written beside an index, and opened.

May import: boolattn.search, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from boolattn.errors import ConfigError
from boolattn.search import faiss_engines
from boolattn.search.engines import Flat

if TYPE_CHECKING:
    from pathlib import Path

    from boolattn.search.engines import Engine
    from boolattn.search.manifest import FileEntry, Manifest
    from boolattn.search.segments import Rows

    Written = tuple[dict[str, Any], dict[str, FileEntry]]


class Kind(Protocol):
    """How one engine is kept."""

    def write(self, folder: Path, manifest: Manifest, rows: Rows, first_row: int) -> Written:
        """Take up the rows from some row on; return the engine's settings and files."""
        ...

    def open(self, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        """Open the engine for reading."""
        ...


@dataclass(frozen=True)
class _Flat:
    def write(self, folder: Path, manifest: Manifest, rows: Rows, first_row: int) -> Written:
        return {}, {}

    def open(self, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        return Flat(rows)


@dataclass(frozen=True)
class _Faiss:
    def write(self, folder: Path, manifest: Manifest, rows: Rows, first_row: int) -> Written:
        return faiss_engines.write_engine(folder, manifest, rows, first_row)

    def open(self, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        return faiss_engines.open_engine(folder, manifest, rows)


ENGINES: dict[str, Kind] = {"flat": _Flat(), "ivf": _Faiss(), "hnsw": _Faiss()}


def find_engine(name: str) -> Kind:
    """Return how an engine is kept."""
    if name not in ENGINES:
        raise ConfigError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name]
