"""Documents on their way into a collection of a vector database."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import DataError, ServerError
from boolattn.stores.analysis import document_terms
from boolattn.stores.filters import MAX_TAGS, NUMBERS, Filter, document_numbers, document_tags
from boolattn.stores.points.database import EMPTY, IS_HEAD, VECTOR, WORDS, Database, State
from boolattn.stores.values import key_of, number_key, passage_keys, term_index
from boolattn.stores.writer import NO_DOCUMENTS, Batch, Draft, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from boolattn.data.records import Document
    from boolattn.stores.base import Array
    from boolattn.stores.foreign import Row
    from boolattn.stores.settings import StoreSettings

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
    is_build: bool = False  # whether the collection is a new one, and not searched yet
    is_resumed: bool = False  # whether a stopped build wrote to it before
    _n_documents: int = 0

    def known(self, ids: Sequence[str]) -> set[str]:
        return set() if self.is_build else {*self._versions(ids)}

    def has(self, batch: Batch) -> bool:
        """Compare with the heads that a stopped build wrote."""
        if not self.is_resumed:
            return False
        known = self._versions([entry.document.id for entry in batch])
        is_written = all(known.get(entry.document.id) == entry.version for entry in batch)
        self._n_documents += len(batch) * is_written
        return is_written

    def write(self, batch: Batch, vectors: Array) -> None:
        """Write further passages, then heads; then remove passages of other versions."""
        database = self._database
        is_fresh = self.is_build and not self.is_resumed
        if is_fresh and not self._n_documents:  # nothing is left of a build that fails at once
            database.create_collection()
        ends = np.cumsum([len(entry.spans) for entry in batch])[:-1]
        pairs = zip(batch, np.split(vectors, ends), strict=True)
        points = [_points(entry, rows, database.settings) for entry, rows in pairs]
        lengths = [head[WORDS].total() for head, *_ in points]
        self._register([entry.document for entry in batch], lengths)
        self._upsert(point for _, *passages in points for point in passages)
        self._upsert(head for head, *_ in points)
        self._n_documents += len(points)
        if not is_fresh:
            versions = [entry.version for entry in batch]
            database.remove_rest([head["key"] for head, *_ in points], versions)

    def finish(self) -> None:
        """Let the database index what was written, and count the documents."""
        if not self._n_documents:
            raise DataError(NO_DOCUMENTS)
        self._database.finish()
        if (n_written := self._database.count(Filter((IS_HEAD,)))) != self._n_documents:
            reason = "some were left out since a build was stopped, or the server lost some"
            counts = f"{self._database.name} has {n_written} of {self._n_documents} documents"
            raise ServerError(f"{counts}: {reason}; index again with --replace")

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

    def _versions(self, ids: Sequence[str]) -> dict[str, str]:
        """Return versions of documents by id; unknown ids are absent."""
        rows = self._database.get([*map(key_of, ids)], "id", "version")
        return {row["id"]: row["version"] for row in rows.values()}

    def _register(self, documents: Iterable[Document], lengths: Sequence[int]) -> None:
        """Add new fields and wider ranges to the state, beside those of other writers."""
        if not self.is_build:
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


def _points(entry: Entry, vectors: Array, settings: StoreSettings) -> list[Row]:
    """Return the points of a document, its head first."""
    document, spans, version = entry.document, entry.spans, entry.version
    counts, asserted, denied = document_terms(document, settings.known_kinds)
    numbers, tags = document_numbers(document.metadata), document_tags(document.metadata)
    if len(tags) > MAX_TAGS:
        raise DataError(f"{document.id!r} has over {MAX_TAGS} metadata values; leave some out")
    key, words = key_of(document.id), Counter[int]()
    for term, count in counts.items() if settings.words else ():
        words[term_index(term)] += count
    point = EMPTY | {
        "key": key,
        "document": key,
        "part": 0,
        "version": version,
        VECTOR: vectors[0],
        "tags": tags,
        "numbers": {number_key(name): value for name, value in numbers.items()},
        "asserted": sorted(asserted, key=lambda term: -max(counts[term], 1)),
    }
    head = point | {
        "denied": denied,
        WORDS: words,
        "id": document.id,
        "n_passages": len(spans),
        "body": f'{{"document":{entry.line.decode()},"spans":{json.dumps(spans)}}}',
    }
    keys = enumerate(passage_keys(document.id, version, len(spans)), 1)
    return [head, *(point | {"key": k, "part": n, VECTOR: vectors[n]} for n, k in keys)]
