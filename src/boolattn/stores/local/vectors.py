"""Neighbours among the memory-mapped vectors of a local store: exact, or by a graph of faiss.

The recall of a graph against exact search is measured when it is built: the effort of a search is
doubled until it is high enough, for few results and for the many candidates of a composed query.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import IndexFolderError
from boolattn.files import require
from boolattn.query.parser import default_threads
from boolattn.scoring.exact import Ranked, top_k
from boolattn.stores.base import similarities
from boolattn.stores.local.manifest import GRAPH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from boolattn.stores.base import Array, Mask
    from boolattn.stores.local.manifest import Manifest
    from boolattn.stores.local.segments import Rows, Segment

    FaissIndex = Any

#: Numbers of results, and the recall that tuning aims at.
TARGETS = {10: 0.98, 1000: 0.95}
_TIE = 1e-6
#: Up to so many selected rows are compared one by one, which is exact and as fast.
_FEW = 16_384
_FIRST_EFFORT, _MOST_CANDIDATES = 32, 4096
#: Queries that are compared at once to measure the recall.
_QUERIES = 32
#: Rows of vectors that are compared at once: they stay in the cache. From so many blocks on,
#: several threads compare.
_BLOCK, _FEW_BLOCKS = 2048, 16


def exact_scores(rows: Rows, queries: Array) -> Array:
    """Return the similarity of every row. Shape ``(queries, rows)``."""
    scores = np.empty((len(queries), rows.n_rows), np.float32)

    def compare(job: tuple[Segment, int, int]) -> None:
        segment, start, first = job
        block = segment.block(slice(first, first + _BLOCK))
        similarities(queries, block, scores[:, start + first : start + first + len(block)])

    pairs = zip(rows.segments, rows.row_starts, strict=False)
    jobs = [(s, start, first) for s, start in pairs for first in range(0, s.n_rows, _BLOCK)]
    # For few rows, threads would take longer to start than to compare.
    threads = default_threads() if len(jobs) > _FEW_BLOCKS else 1
    with ThreadPoolExecutor(threads) as pool:
        for _ in (pool.map if threads > 1 else map)(compare, jobs):
            pass
    return scores


def faiss_module() -> Any:  # noqa: ANN401 - a module
    """Import faiss."""
    require("hnsw, unlike --vectors exact,", ("faiss",), "hnsw")
    import faiss

    return faiss


class Hnsw:
    """An open graph of neighbours.

    The effort of a search, by the number of results, is the number of candidates on the way.
    """

    def __init__(self, rows: Rows, index: FaissIndex, efforts: Mapping[str, Any]) -> None:
        self._rows, self._index = rows, index
        self._efforts = {int(depth): float(effort) for depth, effort in efforts.items()}

    def search(self, queries: Array, n: int, mask: Mask | None) -> Ranked:
        """Return the ``n`` nearest allowed rows of each query; some may be missed; -1 pads."""
        faiss, n, selector = faiss_module(), min(n, self._rows.n_rows), None
        depths = sorted(self._efforts)
        effort = self._efforts[next((depth for depth in depths if n <= depth), depths[-1])]
        if mask is not None:
            n_allowed = int(mask.sum())
            if n_allowed <= max(n, _FEW):
                allowed = np.flatnonzero(mask)
                nearest = top_k(similarities(queries, self._rows.row_vectors(allowed)), n)
                return Ranked(allowed[nearest.rows], nearest.scores)
            # Where half the rows are selected, twice as many must be visited.
            effort *= len(mask) / n_allowed
            # faiss keeps no reference to the bits, so the name must stay.
            bits = np.packbits(mask, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)
        n_visited = min(round(max(effort, n)), self._index.ntotal)
        parameters = faiss.SearchParametersHNSW(sel=selector, efSearch=max(1, n_visited))
        queries = np.ascontiguousarray(queries, np.float32)
        scores, rows = self._index.search(queries, n, params=parameters)
        return Ranked(rows, np.where(rows < 0, -np.inf, scores).astype(np.float32))

    def tune(self, queries: Array) -> dict[str, Any]:
        """Set the efforts; return them, and the recall against exact search, as settings."""
        effort, recalls = float(_FIRST_EFFORT), {}
        for depth, target in TARGETS.items():
            n = min(depth, self._rows.n_rows)
            blocks = (queries[i : i + _QUERIES] for i in range(0, len(queries), _QUERIES))
            exact = [top_k(exact_scores(self._rows, block), n).scores for block in blocks]
            least = np.concatenate(exact)[:, -1:] - _TIE  # ties are interchangeable
            self._efforts[depth] = effort
            while (share := (self.search(queries, n, None).scores >= least).mean()) < target:
                if effort >= _MOST_CANDIDATES:
                    break
                self._efforts[depth] = effort = 2 * effort
            recalls[str(depth)] = round(float(share), 4)
        # Keys in JSON are text.
        return {
            "effort": {str(n): effort for n, effort in self._efforts.items()},
            "recall": recalls,
        }


def write_graph(
    folder: Path, manifest: Manifest, rows: Rows, first_row: int, queries: Array
) -> Manifest:
    """Build a graph of all rows, or add those from ``first_row`` on; return the new manifest.

    The recall is measured with some queries.
    """
    faiss, path = faiss_module(), folder / f"{GRAPH}{manifest.generation}.faiss"
    if first_row:
        index = faiss.read_index(str(folder / manifest.graph["file"]))
    else:
        index = faiss.IndexHNSWFlat(manifest.settings.dimension, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 80
    for start, segment in zip(rows.row_starts, rows.segments, strict=False):
        if start >= first_row:
            index.add(np.ascontiguousarray(segment.block(slice(None))))
    graph = {"file": path.name, **Hnsw(rows, index, {}).tune(queries)}
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise IndexFolderError(
            f"cannot write {path}: is the disk full? The old index is unchanged"
        ) from error
    return replace(manifest.with_files(folder, GRAPH, [path]), graph=graph)


def open_graph(folder: Path, manifest: Manifest, rows: Rows) -> Hnsw:
    """Open a graph; its file is mapped into memory, which processes share."""
    faiss, path = faiss_module(), folder / str(manifest.graph.get("file"))
    try:
        flags = 0 if manifest.is_small else faiss.IO_FLAG_MMAP_IFC
        index = faiss.read_index(str(path), flags)
        efforts = {str(depth): manifest.graph["effort"][str(depth)] for depth in TARGETS}
        opened = Hnsw(rows, index, efforts)
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        raise IndexFolderError(f"cannot open {path}; build the index again") from error
    if not isinstance(index, faiss.IndexHNSWFlat) or index.ntotal != rows.n_rows:
        raise IndexFolderError(f"{path} is no IndexHNSWFlat of {rows.n_rows} vectors")
    return opened
