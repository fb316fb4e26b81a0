"""A store in a vector database, by its address, and how it is searched.

The store's name is an alias of a collection ``NAME__…``. A build fills a collection of its own, and
the alias changes when it is complete. Several processes may write, but not the same document at
once; of Postgres one alone. Qdrant and Milvus weight words for the mean length of the first batch's
documents, whatever comes later.
"""

from __future__ import annotations

import math
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from boolattn.data.records import Document
from boolattn.errors import IndexFolderError, ServerError
from boolattn.stores.base import best_documents, warned
from boolattn.stores.filters import NUMBERS, Field, Filter
from boolattn.stores.points.database import VECTOR, WORDS, PointDatabase, PointDraft
from boolattn.stores.settings import HNSW, check_build, check_ids, no_index, saved_settings
from boolattn.stores.values import key_of, passage_keys, term_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from boolattn.scoring.exact import Ranked
    from boolattn.stores.base import Array, Keys, Mask, Passages
    from boolattn.stores.filters import Condition
    from boolattn.stores.points.database import Match, State
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Draft

#: Vectors of one request, which should not exceed the time of one call.
_QUERIES = 64
#: Seconds for which counts are remembered.
_FRESH = 60.0


class PointStore(PointDatabase):
    """A store that :meth:`create` made."""

    _state: State

    def known_target(self) -> str:
        """Return that collection; refuse a name that stands for none."""
        if target := self.target():
            return target
        raise no_index(self.label)

    def refresh(self) -> bool:
        before, self._state = getattr(self, "_state", {}), self.read_state()
        self.settings = saved_settings(self._state.get("settings"), self.label)
        is_new = bool(self._state["collection"] != before.get("collection"))
        if is_new:
            self._counts: dict[str, tuple[float, int]] = {}
        return is_new

    @classmethod
    def open(cls, address: str, *, verify: bool = False) -> Self:
        """Open a store; it is searched by its alias, so that a new build is seen at once."""
        store = cls(address)
        store.known_target()
        store.refresh()
        return store

    @classmethod
    @contextmanager
    def create(
        cls, address: str, settings: StoreSettings, *, replace: bool = False, resume: bool = False
    ) -> Iterator[Draft]:
        """Build a collection of another name, which the address means at the end."""
        store = cls(address)
        settings = settings.completed(HNSW, store.precisions)
        with store.writing(is_build=True) as store:
            current, stopped = store._builds()
            has = {"has_index": bool(current), "is_stopped": bool(stopped)}
            check_build(address, **has, replace=replace, resume=resume)
            is_resumed = resume and bool(stopped)
            # Later builds have higher names.
            name = stopped.pop() if is_resumed else f"{store.name}__{time.time_ns():016x}"
            build = store.at(name)
            draft = PointDraft.begin(build, settings, is_resumed=is_resumed)
            for other in stopped:
                store.drop(other)
            yield draft
            draft.finish()
            build.switch(current)
            if current:
                with warned(f"{address}: cannot remove what the build replaced"):
                    store.drop(current)

    def _builds(self) -> tuple[str, list[str]]:
        """Return the collection in use, and the stopped builds; remove what a build replaced."""
        names, current = sorted(self.names()), self.target()
        if self.name in names:
            raise IndexFolderError(
                f"{self.label} is a collection that boolattn did not make; choose another name"
            )
        form = re.compile(rf"{re.escape(self.name)}__[0-9a-f]{{16}}")
        builds = [name for name in names if form.fullmatch(name)]
        for name in builds:
            if name < current:  # its removal failed
                self.drop(name)
        return current, [name for name in builds if name > current]

    @contextmanager
    def adding(self) -> Iterator[Draft]:
        """Add documents; without transactions each is visible once it is written.

        After an error those that were written stay, and the same call again completes the rest.
        """
        try:
            with self.writing() as store:
                # By its name: documents of a store that is built anew would be lost unseen.
                store = store.at(store.known_target())
                store.refresh()
                yield PointDraft(store, store._state)
        finally:
            self._counts.clear()

    def delete(self, ids: Iterable[str]) -> None:
        """Delete the heads, with which the documents are gone, and then the rest."""
        names = check_ids(ids)
        keys = self.find(names)
        self.check_known(names, keys)
        if not keys:
            return
        with self.writing() as store:
            try:
                store.remove(keys.values())
            except ServerError:
                if self.find(names):  # else the answer alone was lost
                    raise
            with warned(f"{self.label}: cannot remove the rest of documents, which is masked"):
                store.remove_rest(keys.values(), ())
        self._counts.clear()

    def info(self) -> dict[str, Any]:
        counts = {"documents": self.count(Filter()), "passages": self.n_passages()}
        return counts | super().info() | ({"vectors": "exact"} if self.is_exact else {})

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
        return [hits for page in pages for hits in self.search(field, page, n, where)]

    def similarities(self, vectors: Array, keys: Keys) -> Array:
        self.check_length(vectors)
        scores = self.scores(vectors, keys.tolist()) if len(keys) else {}
        nothing = np.zeros(len(vectors), np.float32)
        columns = [scores.get(key, nothing) for key in keys.tolist()]
        return np.array(columns, np.float32).reshape(len(keys), len(vectors)).T

    def scores(self, vectors: Array, keys: Iterable[int]) -> dict[int, Array]:
        """Return the similarities of documents, those of their best points; others are absent."""
        known = self._vectors(keys).items()
        return {key: np.max(listed @ vectors.T, axis=0) for key, listed in known if listed}

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
        return np.isin(keys, self.select(Filter((condition,)), len(keys), keys.tolist()))

    def _terms(self, keys: Keys) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        rows = self.get(keys.tolist(), "asserted", "denied")
        for row in (rows.get(key, {}) for key in keys.tolist()):
            yield row.get("asserted", ()), row.get("denied", ())

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        keys = {row["id"]: key for key, row in self.get(map(key_of, ids), "id").items()}
        return {name: keys[name] for name in ids if name in keys}

    def passages(self, keys: Keys) -> dict[int, Passages]:
        """Read all points of documents; one that was just replaced lacks some, and is absent."""
        heads, vectors = self.get(keys.tolist(), "body"), self._vectors(keys.tolist())
        passages: dict[int, Passages] = {}
        for key, head in heads.items():
            spans = [(start, end) for start, end in head["body"]["spans"]]
            if len(spans) == len(vectors.get(key, ())):
                passages[key] = spans, np.stack(vectors[key])
        return passages

    def _vectors(self, keys: Iterable[int]) -> dict[int, list[Array]]:
        """Return the vectors of each document's points, in order; one may be missing."""
        points = {key: [key] for key in keys}
        if self.settings.passages:
            rows = self.get(points, "id", "version", "n_passages")
            points = {key: [key, *passage_keys(**row)] for key, row in rows.items()}
        rows = self.get([point for listed in points.values() for point in listed], VECTOR)
        return {
            key: [rows[point][VECTOR] for point in listed if VECTOR in rows.get(point, {})]
            for key, listed in points.items()
        }

    def documents(self, keys: Keys) -> list[Document | None]:
        rows = self.get(keys.tolist(), "body")
        try:
            read = {key: Document(**row["body"]["document"]) for key, row in rows.items()}
        except (KeyError, TypeError) as error:
            raise ServerError(f"{self.label} has damaged documents; index again") from error
        return [read.get(key) for key in keys.tolist()]

    def fields(self) -> Mapping[str, Field]:
        self.refresh()
        return {
            name: Field(*((limits[a], limits[b]) if a in limits else None for a, b in NUMBERS))
            for name, limits in self._state["fields"].items()
        }

    def sample(self, n: int) -> list[Document]:
        """Read the documents of smallest keys, which are hashes of their ids."""
        return [*filter(None, self.documents(np.array(self.select(Filter(), n), np.int64)))]

    def _rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """Return the factor of each term in a query; a term that no document has is absent."""
        if self.has_idf:
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
            number = self.count(Filter(), term)
            self._counts[term] = time.monotonic(), number
        return number

    def _ranked(self, answers: Sequence[Sequence[Match]], n: int) -> list[Ranked]:
        """Return each document once, without passages of another version than its head."""
        rows = self.get({hit.document for hits in answers for hit in hits if hit.part}, "version")
        versions = {key: row["version"] for key, row in rows.items()}
        if any(not math.isfinite(hit.score) for hits in answers for hit in hits):
            raise ServerError(f"{self.label} has vectors that are not finite; index again")
        counted = (
            [hit for hit in hits if not hit.part or versions.get(hit.document) == hit.version]
            for hits in answers
        )
        return [best_documents(((hit.document, hit.score) for hit in hits), n) for hits in counted]
