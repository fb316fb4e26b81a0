"""faiss's approximate engines, each with its recall against exact search measured as it is built.

May import: boolattn.search, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import IndexFolderError, MissingDataError
from boolattn.search.engines.base import Found, Selection, best
from boolattn.search.engines.tuning import as_settings, effort_for, efforts_of, tune
from boolattn.search.index.manifest import describe

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.search.engines.base import Job
    from boolattn.search.index.manifest import FileEntry, Manifest
    from boolattn.search.index.segments import Rows

    Array = NDArray[np.float32]
    # What faiss has no types for.
    FaissIndex = Any
    FaissValue = Any

#: So few rows are compared one by one: that is exact, and as fast.
_FEW = 16_384
_SEED = 0


def faiss_module() -> Any:  # noqa: ANN401 - a module
    """Import faiss, or say how to get it."""
    try:
        import faiss
    except ImportError as error:
        raise MissingDataError(
            "ivf and hnsw need faiss; pip install 'boolattn[search]', or use --engine flat"
        ) from error
    return faiss


@dataclass(frozen=True)
class Ivf:
    """Cells around centres, of which the nearest are searched; the effort is their number."""

    name = "ivf"
    first_effort = 8

    def make(self, rows: Rows) -> FaissIndex:
        """Return a trained, empty index."""
        faiss = faiss_module()
        dimension = rows.segments[0].vectors.shape[1]
        # faiss wants 39 vectors a cell.
        n_cells = max(1, min(round(4 * len(rows) ** 0.5), len(rows) // 39))
        chosen = np.random.default_rng(_SEED).permutation(len(rows))[: 64 * n_cells]
        index = faiss.IndexIVFFlat(
            faiss.IndexFlatIP(dimension), dimension, n_cells, faiss.METRIC_INNER_PRODUCT
        )
        index.train(rows.vectors(np.sort(chosen)))
        return index

    def parameters(
        self, index: FaissIndex, effort: float, n: int, selector: FaissValue
    ) -> FaissValue:
        """Return faiss's search parameters."""
        cells = min(round(effort), index.nlist)
        return faiss_module().SearchParametersIVF(sel=selector, nprobe=max(1, cells))

    def most_effort(self, index: FaissIndex) -> int:
        """Return the effort above which nothing is gained."""
        return int(index.nlist)


@dataclass(frozen=True)
class Hnsw:
    """A graph of neighbours; the effort is the number of candidates kept on the way."""

    name = "hnsw"
    first_effort = 32

    def make(self, rows: Rows) -> FaissIndex:
        """Return an empty index."""
        faiss = faiss_module()
        dimension = rows.segments[0].vectors.shape[1]
        index = faiss.IndexHNSWFlat(dimension, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 80
        return index

    def parameters(
        self, index: FaissIndex, effort: float, n: int, selector: FaissValue
    ) -> FaissValue:
        """Return faiss's search parameters."""
        kept = min(round(max(effort, n)), index.ntotal)
        return faiss_module().SearchParametersHNSW(sel=selector, efSearch=max(1, kept))

    def most_effort(self, index: FaissIndex) -> int:
        """Return the effort above which too much time goes."""
        return 4096


KINDS = {kind.name: kind for kind in (Ivf(), Hnsw())}


class Approximate:
    """An open faiss index."""

    is_exact = False
    limit = None

    def __init__(
        self, index: FaissIndex, kind: Ivf | Hnsw, rows: Rows, efforts: dict[int, float]
    ) -> None:
        self._index, self._kind, self.rows = index, kind, rows
        self.efforts = efforts

    def vectors(self, rows: NDArray[np.int64]) -> Array:
        """Return the vectors of some rows."""
        return self.rows.vectors(rows)

    def search(self, queries: Array, n: int, selection: Selection) -> Found:
        """Return the nearest rows that may be found, nearly always."""
        queries, n = np.ascontiguousarray(queries, np.float32), min(n, len(self.rows))
        mask, selector, share = selection.mask, None, 1.0
        if mask is not None:
            n_allowed = int(mask.sum())
            if n_allowed <= max(n, _FEW):
                return self._one_by_one(queries, n, np.flatnonzero(mask))
            share = n_allowed / len(mask)
            # faiss keeps no reference to the bits.
            bits = np.packbits(mask, bitorder="little")
            selector = faiss_module().IDSelectorBitmap(bits)
        # Where half the rows may not be found, twice as many must be looked at.
        effort = effort_for(self.efforts, n) / share
        parameters = self._kind.parameters(self._index, effort, n, selector)
        scores, rows = self._index.search(queries, n, params=parameters)
        return Found(rows, np.where(rows < 0, -np.inf, scores).astype(np.float32))

    def _one_by_one(self, queries: Array, n: int, rows: NDArray[np.int64]) -> Found:
        if not len(rows):
            empty = np.zeros((len(queries), 0))
            return Found(empty.astype(np.int64), empty.astype(np.float32))
        found = best(queries @ self.rows.vectors(rows).T, n)
        return Found(rows[found.rows], found.scores)


def write_engine(job: Job) -> tuple[dict[str, Any], dict[str, FileEntry]]:
    """Build an engine, or add rows to one; return its settings and its file."""
    faiss, kind = faiss_module(), KINDS[job.manifest.engine]
    name = f"engine-{job.manifest.generation}.faiss"
    if job.first_row:
        index = faiss.read_index(str(job.folder / job.manifest.engine_settings["file"]))
    else:
        index = kind.make(job.rows)
    start = 0
    for segment in job.rows.segments:
        if start >= job.first_row:
            index.add(np.ascontiguousarray(segment.vectors))
        start += segment.count
    queries = job.sample()
    engine = Approximate(index, kind, job.rows, {})
    recalls = tune(engine, job.rows, queries, kind.first_effort, kind.most_effort(index))
    try:
        faiss.write_index(index, str(job.folder / name))
    except RuntimeError as error:
        raise IndexFolderError(
            f"cannot write {job.folder / name}: is the disk full? What was there is unchanged"
        ) from error
    settings = {"file": name, **as_settings(engine.efforts, recalls, len(queries))}
    return settings, {name: describe(job.folder / name)}


def open_engine(folder: Path, manifest: Manifest, rows: Rows) -> Approximate:
    """Open an engine; its file is mapped into memory, so processes share it."""
    faiss, path = faiss_module(), folder / manifest.engine_settings["file"]
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise IndexFolderError(f"cannot open {path}; build the index again") from error
    if index.ntotal != len(rows):
        raise IndexFolderError(f"{path} holds {index.ntotal} vectors, not {len(rows)}")
    efforts = efforts_of(manifest.engine_settings)
    return Approximate(index, KINDS[manifest.engine], rows, efforts)
