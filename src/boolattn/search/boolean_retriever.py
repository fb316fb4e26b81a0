"""Boolean search over a store that somebody else filled, with the store's own encoder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.data.records import Document
from boolattn.encoders.callables import CallableRetriever, unit
from boolattn.encoders.models import as_retriever
from boolattn.errors import ConfigError, IndexMismatchError, QueryError, ServerError
from boolattn.query.parser import SHIPPED
from boolattn.query.tree import Like, Where, atoms
from boolattn.scoring.exact import Ranked
from boolattn.search.engines.base import Selection, similarities
from boolattn.search.filters import condition_of, read_filters, required_of_all
from boolattn.search.pipeline import Pipeline, read_options
from boolattn.search.queries import check_queries
from boolattn.search.stores.base import COSINE, DOT, L2, TEXTS
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from boolattn.query.parser import Parser
    from boolattn.query.tree import QueryTree
    from boolattn.search.result import SearchResult
    from boolattn.search.storage.segments import Array, Mask, RowNumbers
    from boolattn.search.stores.base import Neighbours, Row, Store

#: Vectors whose lengths differ more from 1 are not ranked alike by L2 and by cosine.
_TOLERANCE = 0.01
#: Fewest candidates of each neighbour search: those that the statistics are of, and some more.
CANDIDATES = 150
#: Rows that are read at once, at first.
_PAGE = 32


class BooleanRetriever:
    """Adds AND, OR and NOT to a store as it is; nothing is indexed again, nothing is calibrated.

    Args:
        store: Of :mod:`boolattn.search.stores`, or of your own class.
        embed: The encoder that made the store's vectors: a function from texts to vectors, a
            model's name, a sentence-transformers model, or the address of an embedding endpoint.
        parser: Of plain text: a parser, the name of one, or ``None`` for explicit syntax only.
    """

    @checked
    def __init__(
        self,
        store: Store,
        embed: Any,  # noqa: ANN401 - see as_retriever
        parser: Parser | str | None = SHIPPED,
    ) -> None:
        if not hasattr(store, "nearest"):
            raise ConfigError(f"a store is one of boolattn.search.stores, not {store!r}")
        self.store = store
        own = as_retriever(embed, None)
        self.retriever = CallableRetriever(
            own.encode_queries,
            parser,
            similarity=DOT if store.metric == DOT else COSINE,
            embed_operands=own.encode_operands,
        )

    def search(self, query: str = "", k: int = 10, **options: Any) -> SearchResult:
        """Search one query for ``k`` rows; options are those of ``Searcher.search``.

        Hits have the store's row as ``metadata``. The options ``hybrid`` and ``exhaustive`` need
        an index, as does a condition that not every result must meet. ``total`` is 0: the store is
        not counted.
        """
        return self.search_many([query], k, **options)[0]

    def search_many(
        self, queries: Sequence[str], k: int = 10, **options: Any
    ) -> list[SearchResult]:
        """Search several queries, encoded in one batch; see :meth:`search`."""
        check_queries(queries)
        how = read_options(options, k, self.store.limit, self.store.name)
        for name in ("hybrid", "exhaustive"):
            if options.get(name):
                raise ConfigError(f"{name} needs an index: boolattn index, or Searcher.build")
        if not queries:
            return []
        return Pipeline(_StoreSource(self.store), self.retriever, how, k + how.offset).run(queries)

    async def asearch(self, query: str, k: int = 10, **options: Any) -> SearchResult:
        """Search as :meth:`search` does, in another thread."""
        return await asyncio.to_thread(self.search, query, k, **options)


@dataclass(frozen=True)
class _Selected(Selection):
    """A selection for one query, without the rows that it names as operands."""

    ids: frozenset[str] = frozenset()


class _Always:
    """What the rows of a selection have in common: a condition holds for all, or for none."""

    def __init__(self, *, holds: bool) -> None:
        self._holds = holds

    def __getitem__(self, rows: RowNumbers) -> Mask:
        return np.full(len(rows), self._holds)


@dataclass
class _StoreSource:
    """A store during one call: the rows found so far get numbers, in the order of their coming."""

    store: Store
    lexical: None = None
    _ids: list[Any] = field(default_factory=list)
    _places: dict[Any, int] = field(default_factory=dict)
    _vectors: Array = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    _read: dict[int, Document | None] = field(default_factory=dict)

    @property
    def engine(self) -> _StoreSource:
        return self

    exact = engine

    def has_title(self, _text: str) -> bool:
        return False

    def selection(self, filters: Mapping[str, Any] | None) -> Selection:
        return Selection(conditions=read_filters(filters))

    def narrowed(self, selection: Selection, tree: QueryTree) -> Selection:
        """Return a selection for a tree; its conditions are the store's to filter by."""
        likes = frozenset(atom.text for atom in atoms(tree) if isinstance(atom, Like))
        required = list(required_of_all(tree))
        for where in (atom for atom in atoms(tree) if isinstance(atom, Where)):
            if where not in dict(required):
                raise QueryError(
                    f"{where.name}: a store takes a condition that every result must meet, as in "
                    f"'moths AND {where.name}'; elsewhere in a query it needs an index"
                )
        if not likes and not required:
            return selection
        conditions = [condition_of(where, holds=holds) for where, holds in required]
        met: Any = {where.text: _Always(holds=holds) for where, holds in required}
        return _Selected(conditions=(*selection.conditions, *conditions), met=met, ids=likes)

    def document_vectors(self, ids: Sequence[str]) -> dict[str, Array]:
        if not ids:
            return {}
        own = self.store.vectors([self.store.key(name) for name in ids])
        found = {str(name): vector for name, vector in own.items()}
        if missing := [name for name in ids if name not in found]:
            raise QueryError(f"like:{missing[0]}: {self.store.name} has no row with this id")
        return found if self.store.metric == DOT else {n: unit(v) for n, v in found.items()}

    def count(self, _selection: Selection) -> int:
        return 0

    def best_passage(self, _query: Array, _document: int) -> None:
        return None

    def n_candidates(self, depth: int) -> int:
        """Fewer than of an index: each costs the store a vector to send."""
        return max(CANDIDATES, depth + depth // 4)

    def nearest(self, queries: Array, n: int, selection: Selection) -> list[Ranked]:
        store = self.store
        if queries.shape[1] != store.dimension:
            raise IndexMismatchError(
                f"{store.name} has vectors of length {store.dimension}, and this encoder gives "
                f"{queries.shape[1]}; use the encoder that made them"
            )
        out = selection.ids if isinstance(selection, _Selected) else frozenset()
        asked = n + len(out) if store.limit is None else min(n + len(out), store.limit)
        # The length of a vector counts for the inner product alone.
        vectors = queries if store.metric == DOT else unit(queries)
        answers = store.nearest(vectors, asked, selection.conditions)
        numbers = self._numbered(answers)
        found = []
        for query, rows in zip(queries, numbers, strict=True):
            if out:
                rows = rows[[str(self._ids[row]) not in out for row in rows.tolist()]][:n]
            scores = self.similarities(query[None], rows)[0]
            order = np.argsort(-scores, kind="stable")
            found.append(Ranked(rows[order], scores[order]))
        return found

    def similarities(self, queries: Array, documents: RowNumbers) -> Array:
        if not len(documents):
            return np.zeros((len(queries), 0), np.float32)
        return similarities(queries, self._vectors[documents])

    def documents(self, rows: RowNumbers) -> Iterator[Document | None]:
        """Read rows page by page: of a long ranking only the first are needed, as a rule."""
        numbers, start, size = rows.tolist(), 0, _PAGE
        while page := numbers[start : start + size]:
            if new := [row for row in page if row not in self._read]:
                found = self.store.rows([self._ids[row] for row in new])
                for row in new:
                    own = found.get(self._ids[row])
                    self._read[row] = None if own is None else self._document(self._ids[row], own)
            yield from (self._read[row] for row in page)
            start, size = start + size, 2 * size

    def _document(self, name: Any, row: Row) -> Document:  # noqa: ANN401 - the store's own
        values, own = dict(row), self.store.text
        own = own or next((text for text in TEXTS if isinstance(row.get(text), str)), "")
        text, title = str(values.pop(own, None) or ""), str(row.get(self.store.title) or "")
        return Document(id=str(name), text=text, title=title, metadata=values)

    def _numbered(self, answers: Sequence[Neighbours]) -> list[RowNumbers]:
        """Keep the vectors of rows that are new; return the numbers of all."""
        vectors = np.concatenate([answer.vectors for answer in answers])
        if not np.isfinite(vectors).all():
            raise ServerError(f"{self.store.name} gives vectors that are not finite")
        if self.store.metric == L2 and len(vectors):
            lengths = np.linalg.norm(vectors, axis=1)
            if np.abs(lengths - 1).max() > _TOLERANCE:
                raise IndexMismatchError(
                    f"{self.store.name} compares by L2 distance, and its vectors have lengths "
                    f"from {lengths.min():.3g} to {lengths.max():.3g}: L2 ranks as cosine does "
                    "only for vectors of length 1; normalise them"
                )
        ids = [name for answer in answers for name in answer.ids]
        new = []
        for place, name in enumerate(ids):
            if name not in self._places:
                self._places[name] = len(self._ids)
                self._ids.append(name)
                new.append(place)
        own = vectors[new] if self.store.metric == DOT else unit(vectors[new])
        self._vectors = np.concatenate([self._vectors, own]) if len(self._vectors) else own
        numbers = np.array([self._places[name] for name in ids], np.int64)
        return np.split(numbers, np.cumsum([len(answer.ids) for answer in answers])[:-1])
