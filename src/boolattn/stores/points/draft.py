"""Documents on their way into a collection of a vector database."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from boolattn.errors import DataError, ServerError
from boolattn.stores.analysis import document_terms
from boolattn.stores.base import warned
from boolattn.stores.filters import MAX_TAGS, NUMBERS, Condition, document_numbers, document_tags
from boolattn.stores.points.database import EMPTY, FORMAT, HEADS, VECTOR, WORDS
from boolattn.stores.settings import check_resumed, no_documents
from boolattn.stores.values import key_of, number_key, passage_keys, term_index
from boolattn.stores.writer import Draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from boolattn.data.records import Document
    from boolattn.stores.analysis import DocumentTerms
    from boolattn.stores.base import Array
    from boolattn.stores.foreign import Row, Tests
    from boolattn.stores.points.database import Database, State
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Batch

#: Points and estimated bytes of one request; a server takes some 32 MB.
_MAX_POINTS, _MAX_BYTES = 250, 1 << 24


@dataclass
class PointDraft(Draft):
    """Documents on their way into a collection.

    The head of a document is written last: with it the document is there. What is written again,
    after a writer was stopped, has the same keys.
    """

    _database: Database
    _state: State
    _is_build: bool = False  # whether the collection is a new one, and not searched yet
    _is_resumed: bool = False  # whether a stopped build wrote to it before
    _n_documents: int = 0

    @classmethod
    def begin(cls, database: Database, settings: StoreSettings, *, is_resumed: bool) -> Self:
        """Begin a build, or go on with a stopped one, which must have the same settings."""
        state: State = {"format": FORMAT, "settings": asdict(settings), "mean_length": 0.0}
        state |= {"collection": database.collection, "fields": {}}
        if is_resumed:
            state = database.read_state()
            check_resumed(database.name, state["settings"], settings)
        database.settings = settings
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
        database = self._database
        ids = [document.id for document in batch.documents]
        is_fresh = self._is_build and not self._is_resumed
        if not is_fresh:  # a build looks for documents with the same key when it is complete
            self._versions(ids)
        elif not self._n_documents:  # not before: nothing is left of a build that fails at once
            database.create_collection()
        kinds = database.settings.known_kinds
        terms = [document_terms(document, kinds) for document in batch.documents]
        self._register(batch.documents, [words.counts.total() for words in terms])
        ends = np.cumsum([len(spans) for spans in batch.spans])[:-1]
        points = [*self._points(batch, terms, np.split(vectors, ends))]
        self._upsert(point for _, *passages in points for point in passages)
        self._upsert(head for head, *_ in points)
        self._n_documents += len(ids)
        if not is_fresh:
            with warned(f"{database.name}: cannot remove old passages, which are masked"):
                database.remove(rest([head["key"] for head, *_ in points], batch.versions))

    def finish(self) -> None:
        """Let the database index what was written, and count the documents."""
        if not self._n_documents:
            raise no_documents()
        self._database.finish()
        if (n_written := self._database.count(HEADS)) != self._n_documents:
            raise ServerError(
                f"{self._database.name} has {n_written} of {self._n_documents} documents: some "
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
        self, batch: Batch, terms: Sequence[DocumentTerms], vectors: Sequence[Array]
    ) -> Iterator[list[Row]]:
        """Yield the points of each document, its head first."""
        rows = zip(
            *(batch.documents, batch.lines, batch.spans, batch.versions, terms, vectors),
            strict=True,
        )
        for document, line, spans, version, (counts, asserted, denied), passages in rows:
            key, words = key_of(document.id), Counter[int]()
            for term, count in counts.items() if self._database.settings.words else ():
                words[term_index(term)] += count
            numbers, tags = document_numbers(document.metadata), document_tags(document.metadata)
            if len(tags) > MAX_TAGS:
                raise DataError(
                    f"{document.id!r} has over {MAX_TAGS} metadata values; leave some out"
                )
            point = EMPTY | {
                "key": key,
                "document": key,
                "part": 0,
                "version": version,
                VECTOR: passages[0],
                "tags": tags,
                "numbers": {number_key(name): value for name, value in numbers.items()},
                "asserted": sorted(asserted, key=lambda term: -max(counts[term], 1)),
            }
            head = point | {
                "denied": denied,
                WORDS: words,
                "id": document.id,
                "n_passages": len(spans),
                "body": f'{{"document":{line.decode()},"spans":{json.dumps(spans)}}}',
            }
            keys = enumerate(passage_keys(document.id, version, len(spans)), 1)
            yield [head, *(point | {"key": k, "part": n, VECTOR: passages[n]} for n, k in keys)]

    def _versions(self, ids: Sequence[str]) -> dict[str, str]:
        """Return versions of documents by id; refuse an id whose key another one has."""
        names = {key_of(name): name for name in ids}
        rows = self._database.get(names, "id", "version")
        pairs = [(name, names[key_of(name)]) for name in ids]
        pairs += [(names[key], row["id"]) for key, row in rows.items()]
        for name, other in pairs:
            if name != other:
                raise DataError(
                    f"{self._database.name}: the ids {name!r} and {other!r} have the same key; "
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


def rest(documents: Sequence[int], versions: Sequence[str]) -> Tests:
    """Return tests for what documents have beside their heads, but for some versions."""
    of_documents = Condition("document", "in", (*documents,))
    conditions = [of_documents, Condition("part", "not", (0,))]
    conditions += [Condition("version", "not", (*versions,))] if versions else []
    return [[conditions]]
