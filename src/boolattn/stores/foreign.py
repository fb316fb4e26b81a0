"""Collections that someone else filled: read as they are, with their ids, fields and word index.

A row is whatever the collection holds beside a vector, as a mapping. During one search the rows
that were read get numbers, in the order of their coming; these are the keys of the search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection as Names
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from boolattn.data.records import Document
from boolattn.encoders.callables import unit
from boolattn.errors import ConfigError, MissingDataError, QueryError, ServerError
from boolattn.kinds.lexicon import is_tag, load_kinds
from boolattn.scoring.exact import Ranked
from boolattn.settings import checked
from boolattn.stores.base import Array, Keys, Mask, Reader, ServerStore, similarities
from boolattn.stores.filters import Condition, Filter
from boolattn.stores.settings import StoreSettings

Client: TypeAlias = "Any"  # by this name, arguments are checked
Row = dict[str, Any]
Found = tuple[Any, float, Row]  # id, score and some values
Described = tuple[Mapping[str, Any], Sequence[str], Mapping[str, tuple[int, str]], Sequence[str]]
#: How a collection compares vectors.
COSINE, DOT = "cosine", "dot"
#: Names of the field with the text, where none is given.
TEXTS = ("text", "content", "page_content", "document", "body")
#: Fewest candidates of each neighbour search: those that the statistics are of, and some more.
CANDIDATES = 150


class Collection(ABC):
    """A collection of any database or library.

    Args:
        client: A client of the database, or its address, or the path of a folder or file.
        collection: Its name; of Postgres a table's, with a schema if needed: ``public.items``.
        id: The field with the ids; left out, the primary key.
        vector: The field with the vectors; left out, the only one.
        text: The field with the text; left out, the first of ``TEXTS`` that a row has.
        title: The field with the title.
        words: The field with an index of words: a ``tsvector``, or one that a BM25 function of
            Milvus fills; left out, the only one.
        metric: Left out, that of the vectors' index; without one, cosine.
    """

    limit: int | None = None  # maximum number of results of one search
    has_text_ids = False  # whether an id of digits is a text
    has_schema = False  # whether every row has the fields of ``types``, and no others
    types: Mapping[str, Any]  # of the fields, where filters depend on them
    path: Path | None = None  # of a local database: what is there if the database is

    @checked
    def __init__(  # noqa: PLR0913 - what a collection may call its own
        self,
        client: Client | str,
        collection: str,
        *,
        id: str = "",
        vector: str = "",
        text: str = "",
        title: str = "title",
        words: str = "",
        metric: str = "",
    ) -> None:
        self.name = f"{type(self).__name__.removesuffix('Collection')} ({collection})"
        self.collection, self.text, self.title = collection, text, title
        self.connect(client)
        if self.path and not self.path.exists():
            raise MissingDataError(f"{self.name}: there is no database at {self.path}")
        self.types, ids, vectors, indexes = self.describe()
        self.id_field = self._choose("id", id, self.types if id else ids)
        self.vector_field = self._choose("vector", vector, vectors)
        self.dimension, self.metric = vectors[self.vector_field]
        self.metric = metric or self.metric
        for option, name in {"text": text, "title": title if title != "title" else ""}.items():
            if name and self.has_schema:
                self._choose(option, name, self.types)
        has_words = words or len(indexes) == 1
        self.word_field = self._choose("words", words, indexes) if has_words else ""

    def _choose(self, option: str, name: str, names: Names[str]) -> str:
        """Return the field that an option names, or the only one."""
        if not name and len(names) == 1:
            [name] = names
        if name not in names:
            shown = ", ".join(map(repr, names)) or "none"
            raise ConfigError(f"{self.name} has no {option} {name!r}; there are: {shown}")
        return name

    @abstractmethod
    def connect(self, client: Client | str) -> None:
        """Prepare a connection."""

    @abstractmethod
    def describe(self) -> Described:
        """Return what fields there are: types where filters depend on them, and names.

        The names of fields that may be ids, with vectors (length and metric), with word indexes.
        """

    @abstractmethod
    def get(self, ids: Iterable[Any], *names: str) -> dict[Any, Row]:
        """Return some values of rows by id, or all; unknown ids and missing vectors are absent."""

    @abstractmethod
    def search(
        self, field: str, queries: Sequence[Any], n: int, where: Filter, *names: str
    ) -> list[list[Found]]:
        """Return the ``n`` best rows of each query that pass a filter, with some values.

        Scores are cosines or inner products; a row without a vector is never found. In a field
        with an index of words texts are searched.
        """


class ForeignStore(ServerStore):
    """A collection that is searched as it is, and never written."""

    counts = False
    max_word_hits = 1000  # each hit is a row that the server sends
    candidates = (CANDIDATES, 1.25)  # each costs the database a vector to send

    def __init__(self, collection: Collection) -> None:
        if not isinstance(collection, Collection):
            kind = type(collection).__name__
            raise ConfigError(f"a collection is one of boolattn.stores, not {kind}")
        if (metric := collection.metric) not in (COSINE, DOT):
            reason = f"{collection.name} compares vectors by {metric}"
            raise ConfigError(f"{reason}; composed search needs cosine or dot")
        self.label, self.address, self.limit = collection.name, "", collection.limit
        if collection.word_field:
            self.words_note = f"words are those of {collection.name}'s own index"
        #: Length and metric of the vectors; the model is not known, and kinds are read in texts.
        self.settings = StoreSettings(
            fingerprint="",
            dimension=collection.dimension,
            similarity=metric,
            words=bool(collection.word_field),
            lexicon=load_kinds().digest,
        )
        self._collection = collection
        # The length of a vector counts for the inner product alone.
        self._compared = np.asarray if metric == DOT else unit
        self._ids: list[Any] = []
        self._numbers: dict[str, int] = {}
        self._vectors: dict[int, Array] = {}
        self._documents: dict[int, Document | None] = {}
        self._required: set[Condition] = set()

    def reading(self) -> nullcontext[Reader]:
        return nullcontext(ForeignStore(self._collection))

    def adding(self) -> Any:  # noqa: ANN401
        """Refuse: external collections are read-only."""
        raise ConfigError(f"{self.label} is only read; make an index of it with boolattn index")

    def delete(self, _ids: Iterable[str]) -> None:
        self.adding()

    def nearest(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        self.check_length(vectors)
        return self._search(self._collection.vector_field, [*self._compared(vectors)], n, where)

    def words(self, queries: Sequence[Sequence[str]], n: int, where: Filter) -> list[Ranked]:
        asked = [" ".join(term for term in terms if not is_tag(term)) for terms in queries]
        texts = [text for text in asked if text]
        field = self._collection.word_field
        answers = iter(self._search(field, texts, n, where) if texts else ())
        nothing = Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))
        return [next(answers) if text else nothing for text in asked]

    def _search(self, field: str, queries: Sequence[Any], n: int, where: Filter) -> list[Ranked]:
        """Return the numbers of rows, without those that are left out."""
        conditions = (*where.conditions, *(where.alternatives[0] if where.alternatives else ()))
        self._required.update(c for c in conditions if not c.is_negated)
        n_asked, ranked = n + len(where.without), []
        n_asked = min(n_asked, self.limit or n_asked)
        for rows in self._collection.search(field, queries, n_asked, Filter(conditions)):
            keys = self._numbered([key for key, *_ in rows])
            scores = self._finite(np.array([score for _, score, _ in rows], np.float32))
            is_in = ~np.isin(keys, where.without)
            ranked.append(Ranked(keys[is_in][:n], scores[is_in][:n]))
        return ranked

    def similarities(self, vectors: Array, keys: Keys) -> Array:
        if missing := [self._ids[key] for key in keys.tolist() if key not in self._vectors]:
            read = self._read_vectors(missing)
            self._vectors |= zip(self._numbered([*read]).tolist(), read.values(), strict=True)
        nothing = np.zeros(self.settings.dimension, np.float32)  # for a row without a vector
        rows = [self._vectors.get(key, nothing) for key in keys.tolist()]
        return similarities(vectors, np.array(rows, np.float32).reshape(-1, len(nothing)))

    def check_conditions(self, texts: Sequence[str], where: Filter) -> None:
        """Refuse a condition that only some results must meet: nothing tells which ones do."""
        if texts and len(where.alternatives) != 1:
            form = f"a condition that every result must meet, as in 'moths AND {texts[0]}'"
            remedy = "elsewhere in a query it needs an index of ours"
            raise QueryError(f"{texts[0]}: a collection takes {form}; {remedy}")

    def matching(self, condition: Condition, keys: Keys) -> Mask:
        """Every candidate passed the filter: a condition holds for all, or for none."""
        return np.full(len(keys), condition in self._required)

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Return numbers of rows, whether or not the collection has them."""
        return dict(zip(ids, self._numbered(self._named(ids)).tolist(), strict=True))

    def vectors(self, ids: Sequence[str]) -> dict[str, Array]:
        return {str(name): v for name, v in self._read_vectors(self._named(ids)).items()}

    def documents(self, keys: Keys) -> list[Document | None]:
        if missing := [key for key in keys.tolist() if key not in self._documents]:
            read = self._collection.get([self._ids[key] for key in missing])
            pairs = zip(self._numbered([*read]).tolist(), read.values(), strict=True)
            self._documents |= dict.fromkeys(missing)
            self._documents |= {key: self._document(key, row) for key, row in pairs}
        return [self._documents[key] for key in keys.tolist()]

    def _document(self, key: int, row: Row) -> Document:
        collection = self._collection
        hidden = (collection.vector_field, collection.word_field)
        values = {name: value for name, value in row.items() if name not in hidden}
        texts = (name for name in TEXTS if isinstance(row.get(name), str))
        text = str(values.pop(collection.text or next(texts, ""), None) or "")
        title = str(row.get(collection.title) or "")
        return Document(id=str(self._ids[key]), text=text, title=title, metadata=values)

    def _named(self, texts: Sequence[str]) -> list[Any]:
        """Return the ids that texts are, as in ``like:17``."""
        is_text = self._collection.has_text_ids
        return [int(text) if text.isdecimal() and not is_text else text for text in texts]

    def _numbered(self, ids: Sequence[Any]) -> Keys:
        """Return the numbers of rows; new ones get the next numbers.

        A query may name a row by a text, and the collection by a number.
        """
        for name in ids:
            if str(name) not in self._numbers:
                self._numbers[str(name)] = len(self._ids)
                self._ids.append(name)
        return np.array([self._numbers[str(name)] for name in ids], np.int64)

    def _read_vectors(self, ids: Sequence[Any]) -> dict[Any, Array]:
        """Return the vectors of rows, as they are compared."""
        field = self._collection.vector_field
        rows = self._collection.get(ids, field).items()
        read = {key: row[field] for key, row in rows if field in row}
        vectors = self._finite(np.array([*read.values()], np.float32))
        return dict(zip(read, self._compared(vectors), strict=True))

    def _finite(self, values: Array) -> Array:
        if not np.isfinite(values).all():
            raise ServerError(f"{self.label} gives values that are not finite")
        return values
