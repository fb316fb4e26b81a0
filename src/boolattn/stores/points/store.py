"""A store in a vector database, by its address, and how it is searched.

The store's name is an alias of a collection ``NAME__…``. A build fills a collection of its own, and
the alias changes when it is complete. Several processes may write, but not the same document at
once; of Postgres one alone. Qdrant and Milvus weight words for the mean length of the first batch's
documents, whatever comes later.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from boolattn.data.records import Document
from boolattn.errors import IndexMismatchError, QueryError, ServerError
from boolattn.stores.base import ServerStore, best_documents
from boolattn.stores.filters import Filter
from boolattn.stores.points.database import VECTOR, WORDS, key_of, term_index, warned
from boolattn.stores.points.draft import PointDraft, begin, fields_of, find_builds
from boolattn.stores.settings import HNSW, check_build, check_ids, saved_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from boolattn.scoring.exact import Ranked
    from boolattn.stores.base import Array, Keys, Mask, Passages
    from boolattn.stores.filters import Condition, Field
    from boolattn.stores.points.database import Match, PointDatabase, State
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Draft

#: Vectors of one request, which should not exceed the time of one call.
_QUERIES = 64
#: Seconds for which counts are remembered.
_FRESH = 60.0


class PointStore(ServerStore):
    """A store that :meth:`create` made."""

    database_type: ClassVar[type[PointDatabase]]

    def __init__(self, database: PointDatabase, state: State) -> None:
        self._database, self.limit = database, database.limit
        self.label = self.address = database.label
        self._counts: dict[str, tuple[float, int]] = {}
        self._set(state)

    def _set(self, state: State) -> None:
        self._state, self.settings = state, saved_settings(state.get("settings"), self.label)
        self._database.settings = self.settings

    def refresh(self) -> bool:
        before = self._state
        self._set(self._database.read_state())
        if is_new := bool(self._state["collection"] != before["collection"]):
            self._counts.clear()
        return is_new

    @classmethod
    def open(cls, address: str, *, verify: bool = False) -> Self:
        """Open a store; it is searched by its alias, so that a new build is seen at once."""
        database = cls.database_type(address)
        database.known_target()
        store = cls(database, database.read_state())
        if database.dimension() != store.settings.dimension:
            raise IndexMismatchError(
                f"{address} has other vectors than its settings say; index again with --replace"
            )
        return store

    @classmethod
    @contextmanager
    def create(
        cls, address: str, settings: StoreSettings, *, replace: bool = False, resume: bool = False
    ) -> Iterator[Draft]:
        """Build a collection of another name, which the address means at the end."""
        database = cls.database_type(address)
        settings = settings.completed(HNSW, database.precisions)
        with database.writing(is_build=True) as database:
            current, stopped = find_builds(database)
            has = {"has_index": bool(current), "is_stopped": bool(stopped)}
            check_build(address, **has, replace=replace, resume=resume)
            is_resumed = resume and bool(stopped)
            # Later builds have higher names.
            name = stopped.pop() if is_resumed else f"{database.name}__{time.time_ns():016x}"
            draft = begin(database.at(name), settings, is_resumed=is_resumed)
            for other in stopped:
                database.drop(other)
            try:
                yield draft
                draft.finish()
            except BaseException:
                if draft.is_empty:  # there is nothing to go on with
                    with warned(f"{address}: cannot remove an empty collection"):
                        database.drop(name)
                raise
            database.at(name).switch(current)
            if current:
                with warned(f"{address}: cannot remove what the build replaced"):
                    database.drop(current)

    @contextmanager
    def adding(self) -> Iterator[Draft]:
        """Add documents, each of which is visible when it is written, without transactions.

        Then, after an error, the documents that were written stay, each of them whole, and the same
        documents written again complete the rest.
        """
        try:
            with self._database.writing() as database:
                # By its name: documents of a store that is built anew would be lost unseen.
                database = database.at(database.known_target())
                yield PointDraft(database, database.read_state())
        finally:
            self._counts.clear()

    def delete(self, ids: Iterable[str]) -> None:
        """Delete the heads, with which the documents are gone, and then the rest."""
        names = check_ids(ids)
        keys = self.find(names)
        self.check_known(names, keys)
        if not keys:
            return
        with self._database.writing() as database:
            try:
                database.delete(keys.values())
            except ServerError:
                if self.find(names):  # else the answer alone was lost
                    raise
            with warned(f"{self.label}: cannot remove the rest of documents, which is masked"):
                database.remove_rest(keys.values(), ())
        self._counts.clear()

    def info(self) -> dict[str, Any]:
        counts = {"documents": self.count(Filter()), "passages": self._database.count(None)}
        is_exact = {"vectors": "exact"} if self._database.is_exact else {}
        return counts | super().info() | is_exact

    def count(self, where: Filter) -> int:
        return self._database.count(where)

    def nearest(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        self.check_length(vectors)
        n_points = self._at_most(2 * n if self.settings.passages else n)
        while True:
            answers = self._search(VECTOR, [*vectors], n_points, where)
            ranked = self._ranked(answers, n)
            pairs = zip(answers, ranked, strict=True)
            is_enough = all(len(a) < n_points or len(r.rows) >= n for a, r in pairs)
            if is_enough or n_points == self.limit:
                return ranked
            n_points = self._at_most(4 * n_points)

    def _at_most(self, n: int) -> int:
        """Return a number of results that the database can give."""
        return max(1, min(n, self.limit or n))

    def _search(
        self, field: str, vectors: Sequence[Any], n: int, where: Filter
    ) -> list[Sequence[Match]]:
        """Search some vectors at a time."""
        starts = range(0, len(vectors), _QUERIES)
        pages = [vectors[start : start + _QUERIES] for start in starts]
        return [hits for page in pages for hits in self._database.search(field, page, n, where)]

    def similarities(self, vectors: Array, keys: Keys) -> Array:
        self.check_length(vectors)
        scores = self._database.similarities(vectors, keys.tolist()) if len(keys) else {}
        nothing = np.zeros(len(vectors), np.float32)
        columns = [scores.get(key, nothing) for key in keys.tolist()]
        return np.array(columns, np.float32).reshape(len(keys), len(vectors)).T

    def words(self, queries: Sequence[Sequence[str]], n: int, where: Filter) -> list[Ranked]:
        """Search the words of heads; rarity is in the vectors of the queries, or the database's."""
        if not self.has_words:
            raise self.no_words()
        rarity = self._rarity(dict.fromkeys(term for terms in queries for term in terms))
        vectors = [
            {term_index(term): rarity[term] for term in terms if term in rarity}
            for terms in queries
        ]
        answers = iter(self._search(WORDS, [*filter(None, vectors)], self._at_most(n), where))
        return self._ranked([next(answers) if vector else () for vector in vectors], n)

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        return [self._remembered(term) for term in terms]

    def matching(self, condition: Condition, keys: Keys) -> Mask:
        passing = self._database.passing(keys.tolist(), Filter((condition,)))
        return np.isin(keys, [*passing])

    def resolve(self, condition: Condition) -> Condition:
        """Refuse what vector databases cannot compare alike."""
        if condition.kind == "contains" and not self._database.has_contains:
            raise QueryError(
                f"filter {condition.name!r}: {self.label} cannot filter by contains; use = or "
                "search for the word"
            )
        return super().resolve(condition)

    def _terms(self, keys: Keys) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        rows = self._database.get(keys.tolist(), ["asserted", "denied"])
        for row in (rows.get(key, {}) for key in keys.tolist()):
            yield row.get("asserted", ()), row.get("denied", ())

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        rows = self._database.get(map(key_of, ids), ["id"])
        keys = {row["id"]: key for key, row in rows.items()}
        return {name: keys[name] for name in ids if name in keys}

    def passages(self, keys: Keys) -> dict[int, Passages]:
        """Read all points of documents; one that was just replaced lacks some, and is absent."""
        database = self._database
        heads, points = database.get(keys.tolist(), ["body"]), database.points(keys.tolist())
        every = [point for listed in points.values() for point in listed]
        rows = database.get(every, [], with_vectors=True)
        passages: dict[int, Passages] = {}
        for key, head in heads.items():
            spans = [(start, end) for start, end in head["body"]["spans"]]
            vectors = [
                rows[p]["vector"] for p in points.get(key, ()) if "vector" in rows.get(p, {})
            ]
            if len(spans) == len(vectors):
                passages[key] = spans, np.stack(vectors)
        return passages

    def documents(self, keys: Keys) -> list[Document | None]:
        rows = self._database.get(keys.tolist(), ["body"])
        try:
            read = {key: Document(**row["body"]["document"]) for key, row in rows.items()}
        except (KeyError, TypeError) as error:
            raise ServerError(f"{self.label} has damaged documents; index again") from error
        return [read.get(key) for key in keys.tolist()]

    def fields(self) -> Mapping[str, Field]:
        self.refresh()
        return fields_of(self._state)

    def sample(self, n: int) -> list[Document]:
        """Read the documents of smallest keys, which are hashes of their ids."""
        documents = self.documents(np.array(self._database.heads(1, max(n, 1))[:n], np.int64))
        return [document for document in documents if document]

    def _rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """Return the factor of each term in a query; a term that no document has is absent."""
        if self._database.has_idf:
            return dict.fromkeys(terms, 1.0)
        total, counts = self._remembered(""), {term: self._remembered(term) for term in terms}
        return {
            term: math.log(1 + (max(total - df, 0) + 0.5) / (df + 0.5))
            for term, df in counts.items()
            if df
        }

    def _remembered(self, term: str) -> int:
        """Count the documents with a term, or all, unless that was done a moment ago."""
        moment, number = self._counts.get(term, (-math.inf, 0))
        if time.monotonic() - moment > _FRESH:
            number = self._database.count(Filter(), term)
            self._counts[term] = time.monotonic(), number
        return number

    def _ranked(self, answers: Sequence[Sequence[Match]], n: int) -> list[Ranked]:
        """Return each document once, without passages of another version than its head."""
        heads = {hit.document for hits in answers for hit in hits if hit.part}
        rows = self._database.get(heads, ["version"])
        versions = {key: row["version"] for key, row in rows.items()}
        if any(not math.isfinite(hit.score) for hits in answers for hit in hits):
            raise ServerError(f"{self.label} has vectors that are not finite; index again")
        return [
            best_documents(
                (
                    (hit.document, hit.score)
                    for hit in hits
                    if not hit.part or versions.get(hit.document) == hit.version
                ),
                n,
            )
            for hits in answers
        ]
