"""What a store needs of a vector database: points, how they are found, and how they are written.

The first passage of a document is the point whose key is the document's, its head, and holds all of
the document; further passages are points of their own. A point names the version of its document, a
hash of it: one of another version than the head's does not count.
"""

from __future__ import annotations

import copy
import json
from abc import abstractmethod
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from boolattn.errors import DataError, ServerError
from boolattn.stores.analysis import document_terms
from boolattn.stores.base import ServerStore, warned
from boolattn.stores.filters import MAX_TAGS, NUMBERS, Filter, document_numbers, document_tags
from boolattn.stores.settings import check_format, check_resumed, no_documents
from boolattn.stores.values import key_of, number_key, passage_keys, term_index
from boolattn.stores.writer import Draft

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from boolattn.data.records import Document
    from boolattn.stores.analysis import DocumentTerms
    from boolattn.stores.base import Array
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Batch

    #: Format, settings, collection, mean length of documents, and fields of the metadata.
    State = dict[str, Any]
    Row = dict[str, Any]
    Matches = list[list["Match"]]  # of each vector

FORMAT = 3
#: The point with the state of the store; no document has its key, and it is no passage.
STATE, NO_PASSAGE = 0, -1
#: What is searched: vectors of passages, and words of heads.
VECTOR, WORDS = "vector", "words"
#: Fewest candidates of a graph; never fewer than the neighbours.
CANDIDATES = 128
#: What a point has beside its key, the key of its head (document), the number of its passage
#: (part; 0: the head) and the version. Numbers are by :func:`number_key`, asserted terms are the
#: most frequent ones first, and words are counts by :func:`term_index`. The body is JSON.
EMPTY: Row = {VECTOR: None, "tags": [], "numbers": {}, "asserted": [], "denied": [], WORDS: {}}
EMPTY |= {"id": "", "n_passages": 0, "body": "{}"}

#: Points and estimated bytes of one request; a server takes some 32 MB.
_MAX_POINTS, _MAX_BYTES = 250, 1 << 24


class Match(NamedTuple):
    """A point that a search found."""

    document: int
    score: float
    part: int = 0
    version: str = ""


class PointDatabase(ServerStore):
    """A collection of a vector database, which need not be there yet."""

    precisions: Sequence[str] = ("float32",)  # how vectors can be stored
    has_idf: bool = False  # whether the database itself multiplies weights of words by rarity
    is_exact: bool = False  # whether a search compares every point, whatever the settings say
    mean_length: float = 1.0  # of documents, where words are weighted when they are written

    def __init__(self, address: str) -> None:
        self.label = self.address = address
        #: The collection has another name than the store, or is named by it, its alias.
        self.name = self.collection = self.connect()

    @abstractmethod
    def connect(self) -> str:
        """Prepare a connection to the address; return the name of the store."""

    def at(self, collection: str) -> Self:
        """Return the same database with another collection."""
        other = copy.copy(self)
        other.collection = collection
        return other

    @contextmanager
    def writing(self, *, is_build: bool = False) -> Iterator[Self]:
        """Yield the database to write to: all of it at once, where there are transactions.

        A build is written in several.
        """
        yield self

    @abstractmethod
    def target(self) -> str:
        """Return the collection that the store's name stands for; empty: there is none."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all collections."""

    @abstractmethod
    def create_collection(self) -> None:
        """Make the collection, for vectors as the settings say."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until the database has indexed all that was written."""

    @abstractmethod
    def switch(self, old: str) -> None:
        """Make the store's name stand for the collection, in place of an old one, in one step."""

    @abstractmethod
    def drop(self, collection: str) -> None:
        """Remove a collection."""

    def create_index(self, _name: str) -> None:
        """Prepare to filter by a number, ``numbers.…``; by default there is nothing to do."""

    @abstractmethod
    def insert(self, points: list[Row]) -> None:
        """Write points, in place of those with the same keys."""

    @abstractmethod
    def get(self, keys: Iterable[int], *names: str) -> dict[int, Row]:
        """Return some values of points; unknown points are absent. The body is parsed."""

    @abstractmethod
    def search(self, field: str, vectors: Sequence[Any], n: int, where: Filter) -> Matches:
        """Return the ``n`` points of highest inner product, all vectors in one request.

        The field is ``VECTOR`` or ``WORDS``, whose vectors are weights of terms.
        """

    @abstractmethod
    def n_passages(self) -> int:
        """Return the number of points that are passages."""

    @abstractmethod
    def count(self, where: Filter, term: str = "") -> int:
        """Return the number of documents that pass a filter, and have a term."""

    @abstractmethod
    def select(self, where: Filter, n: int, keys: Sequence[int] | None = None) -> list[int]:
        """Return the ``n`` smallest keys of documents that pass a filter, or those among some."""

    @abstractmethod
    def remove(self, keys: Collection[int]) -> None:
        """Delete points, in one step."""

    @abstractmethod
    def remove_rest(self, documents: Collection[int], versions: Collection[str]) -> None:
        """Delete what documents have beside their heads, but for some versions."""

    def read_state(self) -> State:
        """Read what the store says of itself; refuse a state of another format."""
        state = self.state()
        known: State = state if isinstance(state, dict) else {}
        check_format(self.label, known.get("format"), FORMAT)
        return known

    def state(self) -> object:
        """Return what the store says of itself, by default in a point."""
        return self.get([STATE], "body").get(STATE, {}).get("body")

    def write_state(self, state: State) -> None:
        """Write what the store says of itself."""
        about = {"key": STATE, "document": STATE, "part": NO_PASSAGE, "version": ""}
        self.insert([{**EMPTY, **about, "body": json.dumps(state)}])


@dataclass
class PointDraft(Draft):
    """Documents on their way into a collection.

    The head of a document is written last: with it the document is there. What is written again,
    after a writer was stopped, has the same keys.
    """

    _database: PointDatabase
    _state: State
    _is_build: bool = False  # whether the collection is a new one, and not searched yet
    _is_resumed: bool = False  # whether a stopped build wrote to it before
    _n_documents: int = 0

    @classmethod
    def begin(cls, database: PointDatabase, settings: StoreSettings, *, is_resumed: bool) -> Self:
        """Begin a build, or go on with a stopped one, which must have the same settings."""
        database.settings = settings
        state: State = {"format": FORMAT, "settings": asdict(settings), "mean_length": 0.0}
        state |= {"collection": database.collection, "fields": {}}
        if is_resumed:
            state = database.read_state()
            check_resumed(database.label, state["settings"], settings)
        return cls(database, state, True, is_resumed)

    def known(self, ids: Sequence[str]) -> set[str]:
        return set() if self._is_build else {*self._versions(ids)}

    def has(self, batch: Batch) -> bool:
        """Compare with the heads that a stopped build wrote."""
        if not self._is_resumed:
            return False
        ids = [document.id for document in batch.documents]
        known = self._versions(ids)
        is_written = [known.get(name) for name in ids] == batch.versions
        self._n_documents += len(ids) if is_written else 0
        return is_written

    def write(self, batch: Batch, vectors: Array) -> None:
        """Write further passages, then heads; then remove passages of other versions."""
        database, versions = self._database, batch.versions
        ids = [document.id for document in batch.documents]
        is_fresh = self._is_build and not self._is_resumed
        if not is_fresh:  # a build looks for documents with the same key when it is complete
            self._versions(ids)
        elif not self._n_documents:  # not before: nothing is left of a build that fails at once
            database.create_collection()
        kinds = database.settings.known_kinds
        terms = [document_terms(document, kinds) for document in batch.documents]
        self._register(batch.documents, [words.counts.total() for words in terms])
        heads, others, row = [], list[Any](), 0
        for number, spans in enumerate(batch.spans):
            rows = vectors[row : row + len(spans)]
            head, *passages = self._points(batch, number, versions[number], terms[number], rows)
            heads.append(head)
            others += passages
            row += len(spans)
        self._upsert(others)
        self._upsert(heads)
        self._n_documents += len(ids)
        if not is_fresh:
            with warned(f"{database.label}: cannot remove old passages, which are masked"):
                database.remove_rest([head["key"] for head in heads], versions)

    def finish(self) -> None:
        """Let the database index what was written, and count the documents."""
        if not self._n_documents:
            raise no_documents()
        self._database.finish()
        if (n_written := self._database.count(Filter())) != self._n_documents:
            raise ServerError(
                f"{self._database.label} has {n_written} of {self._n_documents} documents: some "
                "were left out since a build was stopped, the keys of two ids are the same, or "
                "the server lost some; index again with --replace"
            )

    def _upsert(self, points: Iterable[Row]) -> None:
        """Write points in order, some of them at a time."""
        waiting, n_bytes = list[Any](), 0
        for point in points:
            waiting.append(point)
            n_bytes += 4 * len(point["body"]) + 16 * len(point["asserted"])
            n_bytes += 24 * self._database.settings.dimension
            if len(waiting) >= _MAX_POINTS or n_bytes > _MAX_BYTES:
                self._database.insert(waiting)
                waiting, n_bytes = [], 0
        if waiting:
            self._database.insert(waiting)

    def _points(
        self, batch: Batch, number: int, version: str, terms: DocumentTerms, rows: Array
    ) -> list[Row]:
        """Return the points of a document, its head first."""
        document, spans = batch.documents[number], batch.spans[number]
        key, words = key_of(document.id), Counter[int]()
        for term, count in terms.counts.items() if self._database.settings.words else ():
            words[term_index(term)] += count
        numbers, tags = document_numbers(document.metadata), document_tags(document.metadata)
        if len(tags) > MAX_TAGS:
            raise DataError(f"{document.id!r} has over {MAX_TAGS} metadata values; leave some out")
        point = EMPTY | {
            "key": key,
            "document": key,
            "part": 0,
            "version": version,
            VECTOR: rows[0],
            "tags": tags,
            "numbers": {number_key(name): value for name, value in numbers.items()},
            "asserted": sorted(terms.asserted, key=lambda term: -max(terms.counts[term], 1)),
        }
        head = point | {
            "denied": terms.denied,
            WORDS: words,
            "id": document.id,
            "n_passages": len(spans),
            "body": f'{{"document":{batch.lines[number].decode()},"spans":{json.dumps(spans)}}}',
        }
        keys = enumerate(passage_keys(document.id, version, len(spans)), 1)
        return [head, *(point | {"key": k, "part": part, VECTOR: rows[part]} for part, k in keys)]

    def _versions(self, ids: Sequence[str]) -> dict[str, str]:
        """Return versions of documents by id; refuse an id whose key another one has."""
        names = {key_of(name): name for name in ids}
        rows = self._database.get(names, "id", "version")
        pairs = [(name, names[key_of(name)]) for name in ids]
        pairs += [(names[key], row["id"]) for key, row in rows.items()]
        for name, other in pairs:
            if name != other:
                raise DataError(
                    f"{self._database.label}: the ids {name!r} and {other!r} have the same key; "
                    "rename one"
                )
        return {row["id"]: row["version"] for row in rows.values()}

    def _register(self, documents: Iterable[Document], lengths: Sequence[int]) -> None:
        """Add new fields and wider ranges to the state, beside those of other writers."""
        if not self._is_build:
            self._state = self._database.read_state()
        before = self._state["fields"]
        fields = {name: dict(ranges) for name, ranges in before.items()}
        for document in documents:
            for name in document.metadata:
                fields.setdefault(name, {})
            for column, value in document_numbers(document.metadata).items():
                kind, _, name = column.partition(":")
                choose = min if kind in dict(NUMBERS) else max
                fields[name][kind] = choose(value, fields[name].get(kind, value))
        if fields != before or not self._state["mean_length"]:
            mean = self._state["mean_length"] or float(np.mean(lengths)) or 1.0
            self._state = {**self._state, "fields": fields, "mean_length": mean}
            self._database.write_state(self._state)
        self._database.mean_length = self._state["mean_length"]
        for name, ranges in fields.items():
            for kind in ranges.keys() - before.get(name, {}).keys():
                self._database.create_index(f"numbers.{number_key(f'{kind}:{name}')}")
