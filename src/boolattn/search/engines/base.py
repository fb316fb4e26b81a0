"""The interface of engines, which find the nearest vectors; similarity is the inner product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from boolattn.errors import ConfigError, IndexMismatchError
from boolattn.scoring.exact import Ranked, top_k

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from boolattn.search.filters import Condition
    from boolattn.search.storage.manifest import FileEntry, Manifest
    from boolattn.search.storage.segments import Array, Mask, RowNumbers, Rows

#: Fewest candidates for each probe of a composed query.
MIN_CANDIDATES = 500
CANDIDATES_PER_RESULT = 10


@dataclass(frozen=True)
class Selection:
    """Which rows may be found."""

    mask: Mask | None = None  # None: all
    conditions: tuple[Condition, ...] = ()  # the mask's, for an engine that stores metadata
    documents: Mask | None = None  # the mask of documents instead of rows
    #: Which documents meet each condition of the query's tree, by the condition's text.
    met: Mapping[str, Mask] = field(default_factory=dict)
    #: Whether the conditions select more than the mask: then only the mask may be used.
    is_wider: bool = False

    @property
    def n_documents(self) -> int | None:
        """How many documents may be found; ``None``: all."""
        return None if self.documents is None else int(self.documents.sum())

    def allows(self, rows: RowNumbers) -> Mask:
        """Return which of some rows may be found; padding may not."""
        inside = rows >= 0
        return inside if self.mask is None else inside & self.mask[rows]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Rows to add to an engine."""

    folder: Path
    manifest: Manifest  # as it will be, but for the engine's part
    rows: Rows  # the old ones too
    first_row: int  # of the new ones
    uri: str  # of a database
    sample: Callable[[], Array]  # vectors of queries, to measure the recall with


class Searchable(Protocol):
    """What a search needs of an engine, or of a store that somebody else filled.

    Lists of the nearest alone would not do: a candidate of one operand would have an unknown
    similarity to the others, so AND would drop it, and NOT would let it pass.
    """

    def n_candidates(self, depth: int) -> int:
        """Return how many candidates each probe of a composed query finds for so many results."""

    def nearest(self, queries: Array, n: int, selection: Selection) -> list[Ranked]:
        """Return the ``n`` nearest documents of each query, best first."""

    def similarities(self, queries: Array, documents: RowNumbers) -> Array:
        """Return those of some documents. Shape ``(queries, documents)``."""

    def best_passage(self, query: Array, document: int) -> tuple[int, int] | None:
        """Return the span of a document's passage nearest to a vector, if it has several."""


class Engine(ABC):
    """An open engine, and how it is stored: by default it stores nothing of its own."""

    limit: int | None = None  # most results of one search

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.vectors = rows.vectors

    def n_candidates(self, depth: int) -> int:
        """Return how many candidates each probe of a composed query finds for so many results."""
        return max(CANDIDATES_PER_RESULT * depth, MIN_CANDIDATES)

    def nearest(self, queries: Array, n: int, selection: Selection) -> list[Ranked]:
        """Return the ``n`` nearest documents of each query: a document is as near as its best row.

        Several rows of one document may be among the nearest, so more are searched for as needed.
        """
        self._check_length(queries)
        n_rows, limit = n, min(len(self._rows), self.limit or len(self._rows))
        while True:
            ranked = []
            for rows, scores in zip(*self.search(queries, n_rows, selection), strict=True):
                rows, scores = rows[rows >= 0], scores[rows >= 0]
                if self._rows.has_passages:
                    rows = np.searchsorted(self._rows.first_rows, rows, side="right") - 1
                    first = np.sort(np.unique(rows, return_index=True)[1])[:n]
                    rows, scores = rows[first], scores[first]
                ranked.append(Ranked(rows, scores))
            is_enough = not self._rows.has_passages or n_rows >= limit
            if is_enough or all(len(own.rows) == n for own in ranked):
                return ranked
            n_rows = min(4 * n_rows, limit)

    def similarities(self, queries: Array, documents: RowNumbers) -> Array:
        """Return those of some documents' best rows. Shape ``(queries, documents)``."""
        self._check_length(queries)
        rows, firsts = self._rows.of_documents(documents)
        found = similarities(queries, self._rows.vectors(rows))
        if not self._rows.has_passages or not len(rows):
            return found
        return np.asarray(np.maximum.reduceat(found, firsts, axis=1), np.float32)

    def best_passage(self, query: Array, document: int) -> tuple[int, int] | None:
        """Return the span of a document's row nearest to a vector; ``None`` for the only one."""
        first, last = self._rows.first_rows[document : document + 2]
        if last - first == 1:
            return None
        nearest = (self._rows.vectors(np.arange(first, last)) @ query).argmax()
        return self._rows.spans(document)[int(nearest)]

    def _check_length(self, queries: Array) -> None:
        own, given = self._rows.segments[0].vectors.shape[1], queries.shape[1]
        if own != given:
            raise IndexMismatchError(
                f"the index has vectors of length {own}, and a query's has {given}; use its model"
            )

    @abstractmethod
    def search(self, queries: Array, n: int, selection: Selection) -> Ranked:
        """Return the ``n`` nearest selected rows of each query, best first; -1 pads."""

    @classmethod
    def check_uri(cls, uri: str, engine: str) -> None:
        """Refuse an address that the engine cannot use."""
        if uri:
            raise ConfigError(f"the engine {engine} takes no uri; a database does, as milvus")

    @classmethod  # noqa: B027 - most engines do nothing
    def reach(cls, _uri: str) -> None:
        """Raise if the server at an address does not answer, before anything is encoded."""

    @classmethod
    def write(cls, _job: Job) -> tuple[dict[str, Any], dict[str, FileEntry]]:
        """Add the new rows; return the engine's settings and files."""
        return {}, {}

    @classmethod
    def open(cls, _folder: Path, _manifest: Manifest, rows: Rows) -> Engine:
        """Open the engine for reading."""
        return cls(rows)

    @classmethod  # noqa: B027 - most engines do nothing
    def delete_rows(cls, _folder: Path, _manifest: Manifest, _rows: RowNumbers) -> None:
        """Delete rows that the manifest already counts as deleted, and masks."""


def similarities(queries: Array, vectors: Array) -> Array:
    """Return inner products. Shape ``(queries, vectors)``."""
    # A product with a vector is faster than one with a matrix of one row.
    found = queries @ vectors.T if len(queries) > 1 else (vectors @ queries[0])[None]
    return np.asarray(found, np.float32)


def best(scores: Array, n: int) -> Ranked:
    """Return the ``n`` highest of each row of scores; -1 stands for a row at -inf.

    >>> best(np.array([[0.1, 0.7, -np.inf]], np.float32), 3).rows.tolist()
    [[1, 0, -1]]
    """
    found = top_k(scores, n)
    found.rows[found.scores == -np.inf] = -1
    return found
