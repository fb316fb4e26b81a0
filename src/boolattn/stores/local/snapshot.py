"""A local store opened for searching: its rows, its vectors, its words, as of one manifest.

Neighbours are exact, or found by a graph of faiss, whose recall is measured when it is built.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import IndexFolderError
from boolattn.files import require
from boolattn.query.parser import default_threads
from boolattn.scoring.exact import Ranked, top_k
from boolattn.stores.base import Array, Claims, Keys, Mask, Passages, Reader, similarities
from boolattn.stores.filters import RANGES, Condition, Field, Filter
from boolattn.stores.local.manifest import GRAPH, Manifest
from boolattn.stores.local.segments import COMPARED, Rows, Segment
from boolattn.stores.settings import HNSW
from boolattn.stores.values import ValueCounts, filter_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from boolattn.data.records import Document
    from boolattn.stores.local.words import Words

FaissIndex = Any
#: Filters whose documents are remembered.
_MAX_MASKS = 64
#: Maximum number of scores in memory: 256 MB.
_MAX_SCORES = 1 << 26
#: Rows of vectors that are compared at once: they stay in the cache. From so many blocks on,
#: several threads compare.
_BLOCK, _FEW_BLOCKS = 1024, 32
#: Up to so many selected rows are compared one by one, which is exact and as fast.
_FEW = 16_384
#: Fewest candidates on the way through a graph; of more results, twice their number.
_CANDIDATES = 256
#: Numbers of results whose recall is measured, with so many documents as queries.
DEPTHS, _QUERIES, _TIE = (10, 1000), 200, 1e-6


class Snapshot(Rows, Reader):
    """One state of a local store; the key of a document is its number."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.label, self.settings = str(folder), manifest.settings
        super().__init__(folder, manifest)
        self.compares_all = self.settings.vectors != HNSW
        self._graph = None if self.compares_all else _open_graph(folder, manifest, self.n_rows)
        self._words: Words | None = None
        if manifest.words:
            from boolattn.stores.local.words import Words  # tantivy only where it is needed

            self._words = Words(folder / manifest.words, is_copied=manifest.is_small)
        self.mask: Callable[[Filter], Mask | None] = lru_cache(_MAX_MASKS)(self._mask)
        self._texts: Callable[[str], dict[int, str]] = lru_cache(None)(self._read_texts)
        self._fields: dict[str, Field] = {}

    def count(self, where: Filter) -> int:
        mask = self.mask(where)
        return self.n_documents if mask is None else int(mask.sum())

    def nearest(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        self.check_length(vectors)
        if self._graph is not None:
            return self._approximate(vectors, n, where)
        keys, products = self.scan(vectors, where)
        best = zip(*top_k(products, n), strict=True)
        return [Ranked(keys[rows], scores) for rows, scores in best]

    def _approximate(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        """Search more and more rows, until they are of enough documents."""
        mask, n_rows = self.mask(where), n
        if mask is not None and self.has_passages:
            mask = np.repeat(mask, np.diff(self.first_rows))
        while True:
            ranked = []
            answers = _search_graph(self._graph, self, vectors, n_rows, mask)
            for rows, scores in zip(*answers, strict=True):
                numbers = np.searchsorted(self.first_rows, rows[rows >= 0], side="right") - 1
                first = np.sort(np.unique(numbers, return_index=True)[1])[:n]
                ranked.append(Ranked(numbers[first], scores[first]))
            is_all = not self.has_passages or n_rows >= self.n_rows
            if is_all or all(len(answer.rows) == n for answer in ranked):
                return ranked
            n_rows *= 4

    def similarities(self, vectors: Array, keys: Keys) -> Array:
        self.check_length(vectors)
        rows, firsts = self.of_documents(keys)
        return self._best_of(similarities(vectors, self.row_vectors(rows)), firsts)

    def _best_of(self, products: Array, firsts: Keys) -> Array:
        """Return the highest products of documents whose rows begin at some places."""
        if not self.has_passages or not len(firsts):
            return products
        return np.asarray(np.maximum.reduceat(products, firsts, axis=1), np.float32)

    def scan(self, vectors: Array, where: Filter) -> tuple[Keys, Array]:
        self.check_length(vectors)
        scores = self._best_of(exact_scores(self, vectors), self.first_rows[:-1])
        if (mask := self.mask(where)) is None:
            return np.arange(scores.shape[1]), scores
        keys = np.flatnonzero(mask)
        return keys, scores[:, keys]

    def words(self, queries: Sequence[Sequence[str]], n: int, where: Filter) -> list[Ranked]:
        mask = self.mask(where)
        return [self._word_index.search(terms, n, mask) for terms in queries]

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """Count documents, deleted ones too."""
        return [self._word_index.frequency(term) for term in terms]

    def texts_like(self, word: str, n_errors: int) -> list[str]:
        keys = self._word_index.similar(word, n_errors)
        return [f"{d.title}\n{d.text}" for d in self.documents(keys) if d]

    def claims(self, terms: Sequence[str], keys: Keys) -> Claims:
        """Look the terms up among the words, or in the texts where these are not indexed."""
        if self._words is None:
            return super().claims(terms, keys)
        return self._words.claims(terms, keys)

    def matching(self, condition: Condition, keys: Keys) -> Mask:
        mask: Mask = self._passes(condition)[keys]
        return mask

    def passages(self, keys: Keys) -> dict[int, Passages]:
        rows, firsts = self.of_documents(keys)
        vectors = np.split(self.row_vectors(rows), firsts)[1:]
        pairs = zip(keys.tolist(), vectors, strict=True)
        return {key: (self.spans(key), array) for key, array in pairs}

    def documents(self, keys: Keys) -> list[Document | None]:
        return [self.document(key) for key in keys.tolist()]

    def fields(self) -> Mapping[str, Field]:
        if not self._fields:  # assigned at once: several threads may ask
            columns = {tuple(name.split(":", 1)) for s in self.segments for name in s.columns}
            names = sorted(name[1] for name in columns if name[0] == "hash")
            self._fields = {
                name: Field(*(self.extremes(f"{kind}:{name}") for kind in COMPARED))
                for name in names
            }
        return self._fields

    def sample(self, n: int) -> list[Document]:
        keys = np.flatnonzero(self.live)
        chosen = np.unique(np.linspace(0, max(len(keys), 1) - 1, n).astype(int))
        return [self.document(key) for key in keys[chosen[: len(keys)]].tolist()]

    def value_counts(self, name: str, n: int) -> ValueCounts:
        values = self.values(name)
        is_live = self.live[values.documents]
        numbers, hashes = values.documents[is_live], values.hashes[is_live]
        known, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        most = np.argsort(-counts, kind="stable")[:n]
        rows = zip(*(c[most].tolist() for c in (numbers[first], known, counts)), strict=True)
        frequent = [(self.value(name, number, key), count) for number, key, count in rows]
        return ValueCounts(len(np.unique(numbers)), len(counts), frequent)

    def _mask(self, where: Filter) -> Mask | None:
        """Return which documents pass a filter and are not deleted; ``None``: all."""
        mask: Mask = np.logical_and.reduce([self.live, *map(self._passes, where.conditions)])
        if where.alternatives:
            every = (np.logical_and.reduce([*map(self._passes, c)]) for c in where.alternatives)
            mask &= np.logical_or.reduce([*every])
        mask[list(where.without)] = False
        for terms in where.lacking:
            mask[self._word_index.asserting(terms)] = False
        return None if mask.all() else mask

    def _passes(self, condition: Condition) -> Mask:
        """Return which documents meet a condition, deleted ones too."""
        name, kind, wanted = condition.name, condition.kind, condition.values
        values = self.values(name)
        if kind in RANGES:
            passing = RANGES[kind](values.dates if condition.is_date else values.numbers, wanted[0])
        elif kind == "exists":
            passing = np.full(len(values.hashes), True)
        else:
            hashes = [*map(filter_hash, wanted)]
            if kind == "contains":
                text, texts = str(wanted[0]).casefold(), self._texts(name).items()
                hashes = [key for key, value in texts if text in value]
            passing = np.isin(values.hashes, np.array(hashes, np.uint64))
        mask = np.zeros(self.n_documents, bool)
        mask[values.documents[passing]] = True
        is_inverted = kind == "not" or (kind == "exists" and not wanted[0])
        return ~mask if is_inverted != condition.is_negated else mask

    def _read_texts(self, name: str) -> dict[int, str]:
        """Return the different texts of a field, in lower case, by their hashes."""
        hashes, first = np.unique(self.values(name).hashes, return_index=True)
        pairs = zip(hashes.tolist(), self.values(name).documents[first].tolist(), strict=True)
        values = ((key, self.value(name, number, key)) for key, number in pairs)
        return {key: value.casefold() for key, value in values if isinstance(value, str)}

    @property
    def _word_index(self) -> Words:
        if self._words is None:
            raise self.no_words()
        return self._words


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
        list((pool.map if threads > 1 else map)(compare, jobs))
    return scores


def faiss_module() -> Any:  # noqa: ANN401 - a module
    """Import faiss."""
    require("hnsw, unlike --vectors exact,", ("faiss",), "hnsw")
    import faiss

    return faiss


def _search_graph(
    index: FaissIndex, rows: Rows, queries: Array, n: int, mask: Mask | None
) -> Ranked:
    """Return the ``n`` nearest allowed rows of each query; some may be missed; -1 pads."""
    faiss, n, selector = faiss_module(), min(n, rows.n_rows), None
    n_visited = max(_CANDIDATES, 2 * n)
    if mask is not None:
        n_allowed = int(mask.sum())
        if n_allowed <= max(n, _FEW):
            allowed = np.flatnonzero(mask)
            nearest = top_k(similarities(queries, rows.row_vectors(allowed)), n)
            return Ranked(allowed[nearest.rows], nearest.scores)
        # Where half the rows are selected, twice as many must be visited.
        n_visited = n_visited * len(mask) // n_allowed
        # faiss keeps no reference to the bits, so the name must stay.
        bits = np.packbits(mask, bitorder="little")
        selector = faiss.IDSelectorBitmap(bits)
    parameters = faiss.SearchParametersHNSW(sel=selector, efSearch=min(n_visited, index.ntotal))
    queries = np.ascontiguousarray(queries, np.float32)
    scores, nearest_rows = index.search(queries, n, params=parameters)
    return Ranked(nearest_rows, np.where(nearest_rows < 0, -np.inf, scores).astype(np.float32))


def write_graph(folder: Path, manifest: Manifest, rows: Rows, first_row: int) -> Manifest:
    """Build a graph of all rows, or add those from ``first_row`` on; return the new manifest."""
    faiss, path = faiss_module(), folder / f"{GRAPH}{manifest.generation}.faiss"
    if first_row:
        index = faiss.read_index(str(folder / manifest.graph["file"]))
    else:
        index = faiss.IndexHNSWFlat(manifest.settings.dimension, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 80
    for start, segment in zip(rows.row_starts, rows.segments, strict=False):
        if start >= first_row:
            index.add(np.ascontiguousarray(segment.block(slice(None))))
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        reason = "is the disk full? The old index is unchanged"
        raise IndexFolderError(f"cannot write {path}: {reason}") from error
    graph = {"file": path.name, "recall": _recall(index, rows)}
    return replace(manifest.with_files(folder, GRAPH, [path]), graph=graph)


def _recall(index: FaissIndex, rows: Rows) -> dict[str, float]:
    """Compare a graph with exact search, by the number of results; keys in JSON are text."""
    n_queries = max(1, min(_QUERIES, _MAX_SCORES // rows.n_rows))
    chosen = np.unique(np.linspace(0, rows.n_rows - 1, n_queries).astype(np.int64))
    queries, recall = rows.row_vectors(chosen), {}
    exact = exact_scores(rows, queries)
    for depth in DEPTHS:
        least = top_k(exact, depth).scores[:, -1:] - _TIE  # ties are interchangeable
        share = (_search_graph(index, rows, queries, depth, None).scores >= least).mean()
        recall[str(depth)] = round(float(share), 4)
    return recall


def _open_graph(folder: Path, manifest: Manifest, n_rows: int) -> FaissIndex:
    """Open a graph; its file is mapped into memory, which processes share."""
    faiss, path = faiss_module(), folder / str(manifest.graph.get("file"))
    try:
        index = faiss.read_index(str(path), 0 if manifest.is_small else faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise IndexFolderError(f"cannot open {path}; build the index again") from error
    if not isinstance(index, faiss.IndexHNSWFlat) or index.ntotal != n_rows:
        raise IndexFolderError(f"{path} is no IndexHNSWFlat of {n_rows} vectors")
    return index
