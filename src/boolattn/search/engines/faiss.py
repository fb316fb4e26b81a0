"""faiss's approximate engines; their recall against exact search is measured when built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.exact import Ranked
from boolattn.errors import IndexFolderError, MissingDataError
from boolattn.search.engines.base import best, similarities
from boolattn.search.engines.flat import delete_rows
from boolattn.search.engines.tuning import as_settings, effort_for, efforts_of, tune
from boolattn.search.storage.manifest import describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.search.engines.base import Job, Selection
    from boolattn.search.storage.manifest import FileEntry, Manifest
    from boolattn.search.storage.segments import Rows

    Array = NDArray[np.float32]
    FaissIndex = Any
    FaissValue = Any

__all__ = ["delete_rows", "open_engine", "write_engine"]

#: Up to so many selected rows are compared one by one, which is exact and as fast.
_FEW = 16_384
_SEED = 0


def faiss_module() -> Any:  # noqa: ANN401 - a module
    """Import faiss."""
    try:
        import faiss
    except ImportError as error:
        raise MissingDataError(
            "ivf and hnsw need faiss; pip install 'boolattn[search]', or use --engine flat"
        ) from error
    return faiss


@dataclass(frozen=True)
class Kind:
    """One of faiss's indexes."""

    make: Callable[[Rows], FaissIndex]  # empty, but trained
    parameters: Callable[[FaissIndex, float, int, FaissValue], FaissValue]  # of a search
    first_effort: int  # to begin tuning with
    most_effort: Callable[[FaissIndex], int]


def _make_ivf(rows: Rows) -> FaissIndex:
    """Cells around centres, of which the nearest are searched; the effort is their number."""
    faiss, dimension = faiss_module(), rows.segments[0].vectors.shape[1]
    # faiss asks for at least 39 vectors in a cell.
    n_cells = max(1, min(round(4 * len(rows) ** 0.5), len(rows) // 39))
    chosen = np.random.default_rng(_SEED).permutation(len(rows))[: 64 * n_cells]
    centres = faiss.IndexFlatIP(dimension)
    index = faiss.IndexIVFFlat(centres, dimension, n_cells, faiss.METRIC_INNER_PRODUCT)
    index.train(rows.vectors(np.sort(chosen)))
    return index


def _ivf_parameters(index: FaissIndex, effort: float, _n: int, selector: FaissValue) -> FaissValue:
    cells = min(round(effort), index.nlist)
    return faiss_module().SearchParametersIVF(sel=selector, nprobe=max(1, cells))


def _make_hnsw(rows: Rows) -> FaissIndex:
    """Return a graph of neighbours; the effort is the number of candidates on the way."""
    faiss = faiss_module()
    index = faiss.IndexHNSWFlat(rows.segments[0].vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 80
    return index


def _hnsw_parameters(index: FaissIndex, effort: float, n: int, selector: FaissValue) -> FaissValue:
    n_candidates = min(round(max(effort, n)), index.ntotal)
    return faiss_module().SearchParametersHNSW(sel=selector, efSearch=max(1, n_candidates))


KINDS = {
    "ivf": Kind(_make_ivf, _ivf_parameters, 8, lambda index: int(index.nlist)),
    "hnsw": Kind(_make_hnsw, _hnsw_parameters, 32, lambda _index: 4096),
}


class Approximate:
    """An open faiss index."""

    limit = None

    def __init__(
        self, index: FaissIndex, kind: Kind, rows: Rows, efforts: dict[int, float]
    ) -> None:
        self._index, self._kind, self._rows = index, kind, rows
        self.efforts, self.vectors = efforts, rows.vectors

    def search(self, queries: Array, n: int, selection: Selection) -> Ranked:
        """Return the nearest selected rows; some may be missed."""
        queries, n = np.ascontiguousarray(queries, np.float32), min(n, len(self._rows))
        mask, selector, share = selection.mask, None, 1.0
        if mask is not None:
            n_allowed = int(mask.sum())
            if n_allowed <= max(n, _FEW):
                return self._one_by_one(queries, n, np.flatnonzero(mask))
            share = n_allowed / len(mask)
            # faiss keeps no reference to the bits, so the name must stay.
            bits = np.packbits(mask, bitorder="little")
            selector = faiss_module().IDSelectorBitmap(bits)
        # Where half the rows are selected, twice as many must be visited.
        effort = effort_for(self.efforts, n) / share
        parameters = self._kind.parameters(self._index, effort, n, selector)
        scores, rows = self._index.search(queries, n, params=parameters)
        return Ranked(rows, np.where(rows < 0, -np.inf, scores).astype(np.float32))

    def _one_by_one(self, queries: Array, n: int, rows: NDArray[np.int64]) -> Ranked:
        if not len(rows):
            empty = np.zeros((len(queries), 0))
            return Ranked(empty.astype(np.int64), empty.astype(np.float32))
        found = best(similarities(queries, self._rows.vectors(rows)), n)
        return Ranked(rows[found.rows], found.scores)


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
            f"cannot write {job.folder / name}: is the disk full? The old index is unchanged"
        ) from error
    settings = {"file": name, **as_settings(engine.efforts, recalls, len(queries))}
    return settings, {name: describe(job.folder / name)}


def open_engine(folder: Path, manifest: Manifest, rows: Rows) -> Approximate:
    """Open an engine; its file is mapped into memory, which processes share."""
    faiss, path = faiss_module(), folder / manifest.engine_settings["file"]
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise IndexFolderError(f"cannot open {path}; build the index again") from error
    if index.ntotal != len(rows):
        raise IndexFolderError(f"{path} holds {index.ntotal} vectors, not {len(rows)}")
    efforts = efforts_of(manifest.engine_settings)
    return Approximate(index, KINDS[manifest.engine], rows, efforts)
