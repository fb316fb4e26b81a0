"""faiss's approximate engines; their recall against exact search is measured when built."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import IndexFolderError, MissingDataError
from boolattn.scoring.exact import Ranked
from boolattn.search.engines.base import best, similarities
from boolattn.search.engines.tuning import TunedEngine
from boolattn.search.storage.manifest import describe

if TYPE_CHECKING:
    from pathlib import Path

    from boolattn.search.engines.base import Engine, Job, Selection
    from boolattn.search.storage.manifest import FileEntry, Manifest
    from boolattn.search.storage.segments import Array, Rows

    FaissIndex = Any
    FaissValue = Any

#: Up to so many selected rows are compared one by one, which is exact and as fast.
_FEW = 16_384
_MOST_CANDIDATES = 4096
_SEED = 0


def faiss_module() -> Any:  # noqa: ANN401 - a module
    """Import faiss."""
    try:
        import faiss
    except ImportError as error:
        raise MissingDataError(
            "ivf and hnsw need faiss; pip install faiss-cpu, or use --engine flat"
        ) from error
    return faiss


class Approximate(TunedEngine):
    """An open faiss index."""

    first_effort: int  # to begin tuning with

    def __init__(self, rows: Rows, index: FaissIndex, settings: dict[str, Any]) -> None:
        super().__init__(rows, settings)
        self._index = index

    @staticmethod
    @abstractmethod
    def _make(rows: Rows) -> FaissIndex:
        """Return an index that is trained, but empty."""

    @abstractmethod
    def _parameters(self, effort: float, n: int, selector: FaissValue) -> FaissValue:
        """Return the parameters of a search."""

    def search(self, queries: Array, n: int, selection: Selection) -> Ranked:
        """Return the nearest selected rows; some may be missed."""
        queries, n = np.ascontiguousarray(queries, np.float32), min(n, len(self._rows))
        mask, selector, share = selection.mask, None, 1.0
        if mask is not None:
            n_allowed = int(mask.sum())
            if n_allowed <= max(n, _FEW):
                own = np.flatnonzero(mask)
                found = best(similarities(queries, self.vectors(own)), n)
                return Ranked(own[found.rows], found.scores)
            share = n_allowed / len(mask)
            # faiss keeps no reference to the bits, so the name must stay.
            bits = np.packbits(mask, bitorder="little")
            selector = faiss_module().IDSelectorBitmap(bits)
        # Where half the rows are selected, twice as many must be visited.
        parameters = self._parameters(self.effort_for(n) / share, n, selector)
        scores, rows = self._index.search(queries, n, params=parameters)
        return Ranked(rows, np.where(rows < 0, -np.inf, scores).astype(np.float32))

    @classmethod
    def write(cls, job: Job) -> tuple[dict[str, Any], dict[str, FileEntry]]:
        """Build an index, or add rows to one."""
        faiss, name = faiss_module(), f"engine-{job.manifest.generation}.faiss"
        if job.first_row:
            index = faiss.read_index(str(job.folder / job.manifest.engine_settings["file"]))
        else:
            index = cls._make(job.rows)
        for start, segment in zip(job.rows.starts, job.rows.segments, strict=False):
            if start >= job.first_row:
                index.add(np.ascontiguousarray(segment.vectors))
        most = int(getattr(index, "nlist", _MOST_CANDIDATES))
        settings = cls(job.rows, index, {}).tune(job.sample(), cls.first_effort, most)
        try:
            faiss.write_index(index, str(job.folder / name))
        except RuntimeError as error:
            raise IndexFolderError(
                f"cannot write {job.folder / name}: is the disk full? The old index is unchanged"
            ) from error
        return {"file": name, **settings}, {name: describe(job.folder / name)}

    @classmethod
    def open(cls, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        """Open an index; its file is mapped into memory, which processes share."""
        faiss, path = faiss_module(), folder / manifest.engine_settings["file"]
        try:
            flags = 0 if manifest.is_small else faiss.IO_FLAG_MMAP_IFC
            index = faiss.read_index(str(path), flags)
        except RuntimeError as error:
            raise IndexFolderError(f"cannot open {path}; build the index again") from error
        if index.ntotal != len(rows):
            raise IndexFolderError(f"{path} holds {index.ntotal} vectors, not {len(rows)}")
        return cls(rows, index, manifest.engine_settings)


class Ivf(Approximate):
    """Cells around centres, of which the nearest are searched; the effort is their number."""

    first_effort = 8

    @staticmethod
    def _make(rows: Rows) -> FaissIndex:
        faiss, dimension = faiss_module(), rows.segments[0].vectors.shape[1]
        # faiss asks for at least 39 vectors in a cell.
        n_cells = max(1, min(round(4 * len(rows) ** 0.5), len(rows) // 39))
        chosen = np.random.default_rng(_SEED).permutation(len(rows))[: 64 * n_cells]
        centres = faiss.IndexFlatIP(dimension)
        index = faiss.IndexIVFFlat(centres, dimension, n_cells, faiss.METRIC_INNER_PRODUCT)
        index.train(rows.vectors(np.sort(chosen)))
        return index

    def _parameters(self, effort: float, _n: int, selector: FaissValue) -> FaissValue:
        cells = min(round(effort), self._index.nlist)
        return faiss_module().SearchParametersIVF(sel=selector, nprobe=max(1, cells))


class Hnsw(Approximate):
    """A graph of neighbours; the effort is the number of candidates on the way."""

    first_effort = 32

    @staticmethod
    def _make(rows: Rows) -> FaissIndex:
        faiss, dimension = faiss_module(), rows.segments[0].vectors.shape[1]
        index = faiss.IndexHNSWFlat(dimension, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 80
        return index

    def _parameters(self, effort: float, n: int, selector: FaissValue) -> FaissValue:
        n_candidates = min(round(max(effort, n)), self._index.ntotal)
        return faiss_module().SearchParametersHNSW(sel=selector, efSearch=max(1, n_candidates))
