"""faiss's approximate neighbours; their recall against exact search is measured when built.

The effort of a search is doubled until its recall is high enough, for few results and for the many
candidates of a composed query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, IndexFolderError, MissingDataError
from boolattn.scoring.exact import Ranked
from boolattn.stores.base import similarities
from boolattn.stores.local.manifest import describe
from boolattn.stores.local.vectors import ExactVectors, best

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from boolattn.stores.base import Array, Mask
    from boolattn.stores.local.manifest import FileEntry, Manifest
    from boolattn.stores.local.segments import Rows

    FaissIndex = Any
    FaissValue = Any

#: Numbers of results, and the recall that tuning aims at.
TARGETS = {10: 0.98, 1000: 0.95}
_TIE = 1e-6
#: Up to so many selected rows are compared one by one, which is exact and as fast.
_FEW = 16_384
_FIRST_EFFORT, _MOST_CANDIDATES = 32, 4096


def faiss_module() -> Any:  # noqa: ANN401 - a module
    """Import faiss."""
    try:
        import faiss
    except ImportError as error:
        raise MissingDataError(
            "hnsw needs faiss; pip install faiss-cpu, or use --vectors exact"
        ) from error
    return faiss


class Hnsw:
    """An open graph of neighbours; the effort is the number of candidates on the way."""

    is_exact = False

    def __init__(self, rows: Rows, index: FaissIndex, settings: Mapping[str, Any]) -> None:
        self._rows, self._index = rows, index
        efforts = settings.get("effort", {})
        self._efforts = {int(depth): float(effort) for depth, effort in efforts.items()}

    @staticmethod
    def make(rows: Rows) -> FaissIndex:
        """Return an index that is trained, but empty."""
        faiss, dimension = faiss_module(), rows.segments[0].vectors.shape[1]
        index = faiss.IndexHNSWFlat(dimension, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 80
        return index

    def _parameters(self, effort: float, n: int, selector: FaissValue) -> FaissValue:
        n_candidates = min(round(max(effort, n)), self._index.ntotal)
        return faiss_module().SearchParametersHNSW(sel=selector, efSearch=max(1, n_candidates))

    def effort_for(self, n: int) -> float:
        """Return the effort for the next larger number of results that was measured."""
        depths = sorted(self._efforts)
        return self._efforts[next((depth for depth in depths if n <= depth), depths[-1])]

    def search(self, queries: Array, n: int, mask: Mask | None) -> Ranked:
        """Return the ``n`` nearest allowed rows of each query; some may be missed; -1 pads."""
        queries, n = np.ascontiguousarray(queries, np.float32), min(n, len(self._rows))
        selector, share = None, 1.0
        if mask is not None:
            n_allowed = int(mask.sum())
            if n_allowed <= max(n, _FEW):
                allowed = np.flatnonzero(mask)
                nearest = best(similarities(queries, self._rows.vectors(allowed)), n)
                return Ranked(allowed[nearest.rows], nearest.scores)
            share = n_allowed / len(mask)
            # faiss keeps no reference to the bits, so the name must stay.
            bits = np.packbits(mask, bitorder="little")
            selector = faiss_module().IDSelectorBitmap(bits)
        # Where half the rows are selected, twice as many must be visited.
        parameters = self._parameters(self.effort_for(n) / share, n, selector)
        scores, rows = self._index.search(queries, n, params=parameters)
        return Ranked(rows, np.where(rows < 0, -np.inf, scores).astype(np.float32))

    def tune(self, queries: Array) -> dict[str, Any]:
        """Set the efforts; return them, and the recall against exact search, as settings."""
        effort = float(_FIRST_EFFORT)
        recalls: dict[str, float] = {}  # keys in JSON are text
        for depth, target in TARGETS.items():
            n = min(depth, len(self._rows))
            exact = ExactVectors(self._rows).search(queries, n, None)
            while True:
                self._efforts[depth] = effort
                share = recall(exact, self.search(queries, n, None))
                if share >= target or effort >= _MOST_CANDIDATES:
                    break
                effort *= 2
            recalls[str(depth)] = round(share, 4)
        efforts = {str(depth): effort for depth, effort in self._efforts.items()}
        return {"effort": efforts, "recall": recalls, "n_sample": len(queries)}


#: How neighbours are searched.
HNSW = "hnsw"
VECTORS = ("exact", HNSW)


def check_vectors(name: str) -> None:
    """Refuse a way to search neighbours that the local store does not have."""
    if name not in VECTORS:
        raise ConfigError(f"vectors must be one of {', '.join(VECTORS)}, got {name!r}")
    if name != "exact":
        faiss_module()


def write_graph(
    folder: Path, manifest: Manifest, rows: Rows, first_row: int, sample: Callable[[], Array]
) -> tuple[dict[str, Any], dict[str, FileEntry]]:
    """Build an index of all rows, or add those from ``first_row`` on; return settings and files.

    ``sample`` encodes queries to measure the recall with.
    """
    if manifest.settings.vectors != HNSW:
        return {}, {}
    faiss, name = faiss_module(), f"engine-{manifest.generation}.faiss"
    old = manifest.index.get("file", "")
    index = faiss.read_index(str(folder / old)) if first_row else Hnsw.make(rows)
    for start, segment in zip(rows.starts, rows.segments, strict=False):
        if start >= first_row:
            index.add(np.ascontiguousarray(segment.block(slice(None))))
    settings = Hnsw(rows, index, {}).tune(sample())
    try:
        faiss.write_index(index, str(folder / name))
    except RuntimeError as error:
        raise IndexFolderError(
            f"cannot write {folder / name}: is the disk full? The old index is unchanged"
        ) from error
    return {"file": name, **settings}, {name: describe(folder / name)}


def open_vectors(folder: Path, manifest: Manifest, rows: Rows) -> ExactVectors | Hnsw:
    """Open what searches neighbours; a file is mapped into memory, which processes share."""
    if manifest.settings.vectors != HNSW:
        return ExactVectors(rows)
    faiss, path = faiss_module(), folder / str(manifest.index.get("file"))
    try:
        flags = 0 if manifest.is_small else faiss.IO_FLAG_MMAP_IFC
        index = faiss.read_index(str(path), flags)
        opened = Hnsw(rows, index, manifest.index)
        opened.effort_for(1)  # there is one
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        raise IndexFolderError(f"cannot open {path}; build the index again") from error
    if not isinstance(index, faiss.IndexHNSWFlat) or index.ntotal != len(rows):
        raise IndexFolderError(f"{path} is no IndexHNSWFlat of {len(rows)} vectors")
    return opened


def recall(exact: Ranked, approximate: Ranked) -> float:
    """Return the share of the nearest rows that was found; ties are interchangeable."""
    shares = []
    for expected, scores in zip(exact.scores, approximate.scores, strict=True):
        expected = expected[expected > -np.inf]
        if len(expected):
            n_found = int((scores >= expected.min() - _TIE).sum())
            shares.append(min(n_found, len(expected)) / len(expected))
    return float(np.mean(shares)) if shares else 1.0
