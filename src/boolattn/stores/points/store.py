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
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from boolattn.data.records import Document
from boolattn.errors import IndexMismatchError, ServerError
from boolattn.stores.address import database_class
from boolattn.stores.base import Array, Keys, Mask, Passages, ServerStore, best_documents, warned
from boolattn.stores.filters import NUMBERS, Condition, Field, Filter
from boolattn.stores.points.database import FORMAT, IS_HEAD, IS_PASSAGE, VECTOR, WORDS, of_points
from boolattn.stores.points.draft import PointDraft
from boolattn.stores.settings import HNSW, StoreSettings, check_build, check_ids
from boolattn.stores.values import key_of, term_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from boolattn.scoring.exact import Ranked
    from boolattn.stores.foreign import Found
    from boolattn.stores.points.database import Database, State
    from boolattn.stores.writer import Draft

#: Vectors of one request, which should not exceed the time of one call.
_QUERIES = 64
#: Seconds for which counts are remembered.
_FRESH = 60.0


class PointStore(ServerStore):
    """A store that :meth:`create` made."""

    database: Database

    def __init__(self, address: str) -> None:
        self.label = self.address = address
        self.database = database_class(address).open(address)
        self.limit = self.database.limit
        self._state: State = {}
        self._counts: dict[str, tuple[float, int]] = {}  # of documents, and when they were counted

    def refresh(self) -> bool:
        former, self._state = self._state.get("collection"), self.database.read_state()
        self.settings = self.database.settings
        if is_new := self._state["collection"] != former:
            self._counts.clear()
        return bool(is_new)

    @classmethod
    def open(cls, address: str, *, verify: bool = False) -> Self:
        """Open a store; it is searched by its alias, so that a new build is seen at once."""
        store = cls(address)
        store.database.known_target()
        store.refresh()
        return store

    @classmethod
    @contextmanager
    def create(
        cls, address: str, settings: StoreSettings, *, replace: bool = False, resume: bool = False
    ) -> Iterator[Draft]:
        """Build a collection of another name, which the address means at the end."""
        store = cls(address)
        settings = settings.completed(HNSW, store.database.precisions)
        with store.database.writing(is_build=True) as database:
            current, stopped = database.builds()
            check_build(address, current, stopped, replace=replace, resume=resume)
            is_resumed = resume and bool(stopped)
            # Later builds have higher names.
            name = stopped.pop() if is_resumed else f"{database.alias}__{time.time_ns():016x}"
            build, about = database.at(name), {"format": FORMAT, "settings": asdict(settings)}
            state = about | {"collection": name, "fields": {}, "mean_length": 0.0}
            if is_resumed and (state := build.read_state())["settings"] != about["settings"]:
                changed = "has other settings or another model; begin again with --replace"
                raise IndexMismatchError(f"the build that was stopped in {address} {changed}")
            build.settings = settings
            draft = PointDraft(build, state, is_build=True, is_resumed=is_resumed)
            for other in stopped:
                database.drop(other)
            yield draft
            draft.finish()
            build.switch(current)
            if current:
                with warned(f"{address}: cannot remove what the build replaced"):
                    database.drop(current)

    @contextmanager
    def adding(self) -> Iterator[Draft]:
        """Add documents; without transactions each is visible once it is written.

        After an error those that were written stay, and the same call again completes the rest.
        """
        try:
            with self.database.writing() as database:
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
        with self.database.writing() as database:
            database.remove(Condition(database.id_field, "in", (*keys.values(),)))
            database.remove_rest([*keys.values()])
        self._counts.clear()

    def info(self) -> dict[str, Any]:
        n_passages = self.database.count(Filter((IS_PASSAGE,)))
        counts = {"documents": self.count(Filter()), "passages": n_passages}
        return counts | super().info() | ({"vectors": "exact"} if self.database.is_exact else {})

    def nearest(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        self.check_length(vectors)
        n_points = 2 * n if self.settings.passages else n
        while True:
            n_points = max(1, min(n_points, self.limit or n_points))
            answers = self._search(VECTOR, [*vectors], n_points, where)
            ranked = self._ranked(answers, n)
            pairs = zip(answers, ranked, strict=True)
            is_enough = all(len(a) < n_points or len(r.rows) >= n for a, r in pairs)
            if is_enough or n_points == self.limit:
                return ranked
            n_points *= 4

    def _search(
        self, field: str, queries: Sequence[Any], n: int, where: Filter
    ) -> list[list[Found]]:
        """Search some vectors at a time."""
        has_passages = field == VECTOR and self.settings.passages
        names = ("document", "part", "version") if has_passages else ()
        groups = (queries[start : start + _QUERIES] for start in range(0, len(queries), _QUERIES))
        answers = (self.database.search(field, g, n, of_points(where), *names) for g in groups)
        return [rows for answer in answers for rows in answer]

    def similarities(self, vectors: Array, keys: Keys) -> Array:
        self.check_length(vectors)
        scores = self.database.scores(vectors, keys.tolist()) if len(keys) else {}
        nothing = np.zeros(len(vectors), np.float32)
        columns = [scores.get(key, nothing) for key in keys.tolist()]
        return np.array(columns, np.float32).reshape(len(keys), len(vectors)).T

    def words(self, queries: Sequence[Sequence[str]], n: int, where: Filter) -> list[Ranked]:
        """Search the words of heads; rarity is in the vectors of the queries, or the database's."""
        if not self.has_words:
            raise self.no_words()
        vectors = [
            {term_index(term): rarity for term in terms if (rarity := self._rarity(term))}
            for terms in queries
        ]
        n = max(1, min(n, self.limit or n))
        answers = iter(self._search(WORDS, [*filter(None, vectors)], n, where))
        return self._ranked([next(answers) if vector else [] for vector in vectors], n)

    def _rarity(self, term: str) -> float:
        """Return the weight of a term in a query; 0 for one that no document has."""
        if self.database.has_idf:
            return 1.0
        total, n = self.frequencies(["", term])
        return math.log(1 + (max(total - n, 0) + 0.5) / (n + 0.5)) if n else 0.0

    def count(self, where: Filter) -> int:
        return self.database.count(of_points(where).also(IS_HEAD))

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """Count the documents with each term; of no term, all. Counts are remembered a moment."""
        now = time.monotonic()
        for term in terms:
            if now - self._counts.get(term, (-math.inf, 0))[0] > _FRESH:
                number = self.database.frequency(term) if term else self.count(Filter())
                self._counts[term] = now, number
        return [self._counts[term][1] for term in terms]

    def matching(self, condition: Condition, keys: Keys) -> Mask:
        among = Condition(self.database.id_field, "in", (*keys.tolist(),))
        where = of_points(Filter((condition,))).also(IS_HEAD, among)
        return np.isin(keys, self.database.select(where, len(keys)))

    def _terms(self, keys: Keys) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        rows = self.database.get(keys.tolist(), "asserted", "denied")
        for row in (rows.get(key, {}) for key in keys.tolist()):
            yield row.get("asserted", ()), row.get("denied", ())

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        keys = {row["id"]: key for key, row in self.database.get(map(key_of, ids), "id").items()}
        return {name: keys[name] for name in ids if name in keys}

    def passages(self, keys: Keys) -> dict[int, Passages]:
        """Read all points of documents; one that was just replaced lacks some, and is absent."""
        heads = self.database.get(keys.tolist(), "body")
        vectors = self.database.vectors(keys.tolist())
        passages: dict[int, Passages] = {}
        for key, head in heads.items():
            spans = [(start, end) for start, end in head["body"]["spans"]]
            if len(spans) == len(vectors.get(key, ())):
                passages[key] = spans, np.stack(vectors[key])
        return passages

    def documents(self, keys: Keys) -> list[Document | None]:
        rows = self.database.get(keys.tolist(), "body")
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
        keys = self.database.select(Filter((IS_HEAD,)), n)
        return [*filter(None, self.documents(np.array(keys, np.int64)))]

    def _ranked(self, answers: Sequence[Sequence[Found]], n: int) -> list[Ranked]:
        """Return each document once, without passages of another version than its head."""
        heads = {row["document"] for rows in answers for *_, row in rows if row.get("part")}
        versions = {key: row["version"] for key, row in self.database.get(heads, "version").items()}
        if any(not math.isfinite(score) for rows in answers for _, score, _ in rows):
            raise ServerError(f"{self.label} has vectors that are not finite; index again")
        ranked = []
        for rows in answers:
            counted = (
                (row["document"] if row else key, score)
                for key, score, row in rows
                if not row.get("part") or versions.get(row["document"]) == row["version"]
            )
            ranked.append(best_documents(counted, n))
        return ranked
