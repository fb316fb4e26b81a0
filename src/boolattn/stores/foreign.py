"""External collections, or arrays: read as they are, with their ids, fields and word index.

A row is whatever the collection holds beside a vector, as a mapping. During one search the rows
that were read get numbers, in the order of their coming; these are the keys of the search.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.data.records import Document
from boolattn.encoders.callables import unit
from boolattn.errors import ConfigError, DataError, QueryError, ServerError
from boolattn.kinds.lexicon import is_tag, load_kinds
from boolattn.scoring.exact import Ranked, exact_search
from boolattn.settings import checked
from boolattn.stores.base import ServerStore, similarities
from boolattn.stores.filters import RANGES, document_tags, tag_condition
from boolattn.stores.settings import StoreSettings
from boolattn.stores.values import flatten, is_number, items

if TYPE_CHECKING:
    from collections.abc import Collection as Names
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from boolattn.stores.base import Keys, Mask, Reader
    from boolattn.stores.filters import Condition, Filter

    Array = NDArray[np.float32]
    Conditions = Sequence[Condition]  # all must hold
    Row = Mapping[str, Any]
    Vectors = dict[Any, Array]  # by id
    #: Ids and scores, best first.
    Scored = tuple[list[Any], list[float]]

#: How a collection compares vectors.
COSINE, DOT = "cosine", "dot"
#: Names of the field with the text, where none is given.
TEXTS = ("text", "content", "page_content", "document", "body")
#: Fewest candidates of each neighbour search: those that the statistics are of, and some more.
CANDIDATES = 150


class Collection(ABC):
    """A collection of any database, array or library.

    ``text`` and ``title`` name the fields with the text and the title of a row.
    """

    name: str  # says in errors which it is
    metric: str  # COSINE or DOT; others are refused
    dimension: int  # length of a vector
    text: str = ""  # empty: the first of TEXTS that a row has
    title: str = "title"
    limit: int | None = None  # maximum number of neighbours of one search
    has_words: bool = False  # whether the collection has a word index of its own

    @abstractmethod
    def nearest(self, queries: Array, n: int, conditions: Conditions = ()) -> list[Scored]:
        """Return the ``n`` nearest rows of each query that meet the conditions, best first.

        Scores are cosines or inner products. A row without a vector is never found.
        """

    def words(self, _texts: Sequence[str], _n: int, _conditions: Conditions = ()) -> list[Scored]:
        """Return the ``n`` rows that fit each text best by the collection's own word index."""
        raise ConfigError(f"{self.name} has no index of words")

    def key(self, text: str) -> Any:  # noqa: ANN401 - the collection's own
        """Return the id that a text is, as in ``like:17``."""
        return int(text) if text.isdecimal() else text

    @abstractmethod
    def vectors(self, ids: Sequence[Any]) -> Vectors:
        """Return the vectors of rows by id; those of unknown ids are absent."""

    @abstractmethod
    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        """Return rows by id, without their vectors; those of unknown ids are absent."""

    def choose(self, option: str, name: str, names: Names[str]) -> str:
        """Return the field that an option names, or the only one."""
        if not name and len(names) == 1:
            [name] = names
        if name not in names:
            shown = ", ".join(map(repr, names)) or "none"
            raise ConfigError(f"{self.name} has no {option} {name!r}; there are: {shown}")
        return name


class ForeignStore(ServerStore):
    """A collection that is searched as it is, and never written."""

    counts = False
    max_word_hits = 1000  # each hit is a row that the server sends
    candidates = (CANDIDATES, 1.25)  # each costs the database a vector to send

    def __init__(self, collection: Collection) -> None:
        if not hasattr(collection, "nearest"):
            raise ConfigError(
                f"a collection is one of boolattn.stores, not {type(collection).__name__}"
            )
        if collection.metric not in (COSINE, DOT):
            raise ConfigError(
                f"{collection.name} compares vectors by {collection.metric}; composed search needs "
                "cosine or dot"
            )
        self.label, self.address, self.limit = collection.name, "", collection.limit
        if collection.has_words:
            self.words_note = f"words are those of {collection.name}'s own index"
        #: Length and metric of the vectors; the model is not known, and kinds are read in texts.
        self.settings = StoreSettings(
            fingerprint="",
            dimension=collection.dimension,
            similarity=collection.metric,
            words=collection.has_words,
            lexicon=load_kinds().digest,
        )
        self._collection, self._is_dot = collection, collection.metric == DOT
        self._ids: list[Any] = []
        self._numbers: dict[str, int] = {}
        self._vectors: dict[int, Array] = {}
        self._documents: dict[int, Document | None] = {}
        self._required: set[Condition] = set()

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        yield ForeignStore(self._collection)

    def adding(self) -> Any:  # noqa: ANN401
        """Refuse: external collections are read-only."""
        raise ConfigError(f"{self.label} is only read; make an index of it with boolattn index")

    def delete(self, _ids: Iterable[str]) -> None:
        self.adding()

    def info(self) -> dict[str, Any]:
        return {"collection": self.label, "metric": self._collection.metric, **super().info()}

    def nearest(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        self.check_length(vectors)
        asked = min(n + len(where.without), self.limit or sys.maxsize)
        # The length of a vector counts for the inner product alone.
        queries = vectors if self._is_dot else unit(vectors)
        answers = self._collection.nearest(queries, asked, self._conditions(where))
        return [self._ranked(answer, n, where) for answer in answers]

    def similarities(self, vectors: Array, keys: Keys) -> Array:
        if missing := [self._ids[key] for key in keys.tolist() if key not in self._vectors]:
            read = self.vectors_of(missing)
            self._vectors |= zip(self._numbered([*read]).tolist(), read.values(), strict=True)
        nothing = np.zeros(self.settings.dimension, np.float32)  # for a row without a vector
        rows = [self._vectors.get(key, nothing) for key in keys.tolist()]
        return similarities(vectors, np.array(rows, np.float32).reshape(-1, len(nothing)))

    def words(self, queries: Sequence[Sequence[str]], n: int, where: Filter) -> list[Ranked]:
        n = min(n, self.limit or n)
        asked = [" ".join(term for term in terms if not is_tag(term)) for terms in queries]
        texts = [text for text in asked if text]
        answers = iter(self._collection.words(texts, n, self._conditions(where)) if texts else ())
        return [self._ranked(next(answers) if text else ([], []), n, where) for text in asked]

    def _ranked(self, answer: Scored, n: int, where: Filter) -> Ranked:
        """Return the numbers of rows, without those that are left out."""
        keys, scores = self._numbered(answer[0]), self._finite(np.array(answer[1], np.float32))
        is_in = ~np.isin(keys, where.without)
        return Ranked(keys[is_in][:n], scores[is_in][:n])

    def check_conditions(self, texts: Sequence[str], where: Filter) -> None:
        """Refuse a condition that only some results must meet: nothing tells which ones do."""
        if texts and len(where.alternatives) != 1:
            raise QueryError(
                f"{texts[0]}: a collection takes a condition that every result must meet, as in "
                f"'moths AND {texts[0]}'; elsewhere in a query it needs an index of ours"
            )

    def matching(self, condition: Condition, keys: Keys) -> Mask:
        """Every candidate passed the filter: a condition holds for all, or for none."""
        return np.full(len(keys), condition in self._required)

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Return numbers of rows, whether or not the collection has them."""
        keys = self._numbered([self._collection.key(name) for name in ids])
        return dict(zip(ids, keys.tolist(), strict=True))

    def vectors(self, ids: Sequence[str]) -> dict[str, Array]:
        read = self.vectors_of([self._collection.key(name) for name in ids])
        return {str(name): vector for name, vector in read.items()}

    def vectors_of(self, ids: Sequence[Any]) -> Vectors:
        """Return the vectors of rows, as they are compared."""
        read = self._collection.vectors(ids)
        rows = self._finite(np.array([*read.values()], np.float32))
        return dict(zip(read, rows if self._is_dot or not read else unit(rows), strict=True))

    def _finite(self, values: Array) -> Array:
        if not np.isfinite(values).all():
            raise ServerError(f"{self.label} gives vectors that are not finite")
        return values

    def documents(self, keys: Keys) -> list[Document | None]:
        if missing := [key for key in keys.tolist() if key not in self._documents]:
            read = self._collection.rows([self._ids[key] for key in missing])
            rows = {str(name): row for name, row in read.items()}
            for key in missing:
                row = rows.get(str(self._ids[key]))
                self._documents[key] = None if row is None else self._document(key, row)
        return [self._documents[key] for key in keys.tolist()]

    def _conditions(self, where: Filter) -> tuple[Condition, ...]:
        """Return the conditions of a filter, all of which must hold."""
        conditions = (*where.conditions, *(where.alternatives[0] if where.alternatives else ()))
        self._required.update(c for c in conditions if not c.is_negated)
        return conditions

    def _document(self, key: int, row: Row) -> Document:
        values, name = dict(row), self._collection.text
        name = name or next((text for text in TEXTS if isinstance(row.get(text), str)), "")
        text, title = str(values.pop(name, None) or ""), str(row.get(self._collection.title) or "")
        return Document(id=str(self._ids[key]), text=text, title=title, metadata=values)

    def _numbered(self, ids: Sequence[Any]) -> Keys:
        """Return the numbers of rows; new ones get the next numbers.

        A query may name a row by a text, and the collection by a number.
        """
        for name in ids:
            if str(name) not in self._numbers:
                self._numbers[str(name)] = len(self._ids)
                self._ids.append(name)
        return np.array([self._numbers[str(name)] for name in ids], np.int64)


class ArrayCollection(Collection):
    """An array of vectors with a list of rows; compared exactly.

    Args:
        vectors: Shape ``(rows, dim)``.
        rows: A mapping for each vector; the id of a row is its place.
        metric: How vectors are compared.

    >>> from boolattn.search import Searcher, load_model
    >>> rows, encoder = [{"text": "A moth."}, {"text": "An ant."}], load_model("shipped")
    >>> vectors = encoder.encode_documents([row["text"] for row in rows])
    >>> Searcher(ArrayCollection(vectors, rows), encoder).search("ants", 1)[0].text
    'An ant.'
    """

    @checked
    def __init__(
        self,
        vectors: Array,
        rows: Sequence[Row],
        *,
        metric: str = COSINE,
        text: str = "",
        title: str = "title",
    ) -> None:
        if not hasattr(rows, "__len__") or not all(isinstance(row, Mapping) for row in rows):
            raise DataError("rows are a list of mappings, one for each vector")
        self._rows, self.text, self.title = rows, text, title
        self._numbers = range(len(rows))
        try:
            vectors = np.asarray(vectors, np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"vectors are an array of numbers: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(rows):
            raise DataError(
                f"{len(rows)} rows need an array of as many vectors, not one of shape "
                f"{vectors.shape}"
            )
        if not np.isfinite(vectors).all():
            raise DataError("some vectors are not finite; leave their rows out")
        self.name, self.metric, self.dimension = "the array", metric, vectors.shape[1]
        self._vectors = unit(vectors) if metric == COSINE else vectors

    def nearest(self, queries: Array, n: int, conditions: Conditions = ()) -> list[Scored]:
        passing = [all(_meets(row, condition) for condition in conditions) for row in self._rows]
        chosen, vectors = np.flatnonzero(passing), self._vectors
        if len(chosen) < len(vectors):
            vectors = vectors[chosen]
        ranked = exact_search(queries, vectors, n, similarities)
        return [*zip(chosen[ranked.rows].tolist(), ranked.scores.tolist(), strict=True)]

    def vectors(self, ids: Sequence[Any]) -> Vectors:
        return {number: self._vectors[number] for number in ids if number in self._numbers}

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        return {number: self._rows[number] for number in ids if number in self._numbers}


def _meets(row: Row, condition: Condition) -> bool:
    metadata = flatten(row)
    if condition.kind not in RANGES:
        tags, is_wanted = tag_condition(condition)
        return is_wanted != set(tags).isdisjoint(document_tags(metadata))
    if not is_number(limit := condition.values[0]):
        raise QueryError(f"filter {condition.name!r}: rows in memory compare numbers only")
    values = filter(is_number, items(metadata.get(condition.name)))
    return any(RANGES[condition.kind](value, limit) for value in values) != condition.is_negated
