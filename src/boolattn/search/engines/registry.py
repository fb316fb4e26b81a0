"""The engines by name; each is a module with the functions of :class:`EngineModule`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from boolattn.errors import ConfigError
from boolattn.search.engines import faiss, flat, milvus

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from boolattn.search.engines.base import Engine, Job
    from boolattn.search.storage.manifest import FileEntry, Manifest
    from boolattn.search.storage.segments import Rows


class EngineModule(Protocol):
    """How an engine is stored."""

    def write_engine(self, _job: Job) -> tuple[dict[str, Any], dict[str, FileEntry]]:
        """Add the new rows; return the engine's settings and files."""
        ...

    def open_engine(self, _folder: Path, _manifest: Manifest, rows: Rows) -> Engine:
        """Open the engine for reading."""
        ...

    def delete_rows(self, _folder: Path, _manifest: Manifest, _rows: NDArray[np.int64]) -> None:
        """Delete rows that the manifest already counts as deleted."""
        ...


ENGINES: dict[str, EngineModule] = {"flat": flat, "ivf": faiss, "hnsw": faiss, "milvus": milvus}


def find_engine(name: str) -> EngineModule:
    """Return the module of an engine."""
    if name not in ENGINES:
        raise ConfigError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name]
