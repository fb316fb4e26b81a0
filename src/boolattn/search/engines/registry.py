"""The engines by name: how each is written beside an index, and opened.

May import: boolattn.search, boolattn.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from boolattn.errors import ConfigError
from boolattn.search.engines import faiss as faiss_engines
from boolattn.search.engines import milvus
from boolattn.search.engines.base import Flat

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from boolattn.search.engines.base import Engine, Job
    from boolattn.search.index.manifest import FileEntry, Manifest
    from boolattn.search.index.segments import Rows

    Written = tuple[dict[str, Any], dict[str, FileEntry]]


class Kind(Protocol):
    """How one engine is kept."""

    def write(self, job: Job) -> Written:
        """Take up the new rows; return the engine's settings and files."""
        ...

    def open(self, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        """Open the engine for reading."""
        ...

    def forget(self, folder: Path, manifest: Manifest, rows: NDArray[np.int64]) -> None:
        """Delete rows that the manifest counts as deleted already."""
        ...


class _Flat:
    def write(self, job: Job) -> Written:
        return {}, {}

    def open(self, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        return Flat(rows)

    def forget(self, folder: Path, manifest: Manifest, rows: NDArray[np.int64]) -> None:
        """Do nothing: deleted rows are masked."""


class _Faiss(_Flat):
    def write(self, job: Job) -> Written:
        return faiss_engines.write_engine(job)

    def open(self, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        return faiss_engines.open_engine(folder, manifest, rows)


class _Milvus:
    def write(self, job: Job) -> Written:
        return milvus.write_engine(job)

    def open(self, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        return milvus.open_engine(folder, manifest, rows)

    def forget(self, folder: Path, manifest: Manifest, rows: NDArray[np.int64]) -> None:
        milvus.forget(folder, manifest, rows)


ENGINES: dict[str, Kind] = {
    "flat": _Flat(),
    "ivf": _Faiss(),
    "hnsw": _Faiss(),
    "milvus": _Milvus(),
}


def find_engine(name: str) -> Kind:
    """Return how an engine is kept."""
    if name not in ENGINES:
        raise ConfigError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name]
