"""Documents on their way into a vector database."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from boolattn.errors import DataError, ServerError
from boolattn.stores.analysis import document_terms
from boolattn.stores.filters import NUMBERS, Filter, document_numbers, document_tags
from boolattn.stores.points.database import (
    EMPTY,
    FORMAT,
    VECTOR,
    WORDS,
    key_of,
    number_key,
    passage_keys,
    term_index,
    warned,
)
from boolattn.stores.settings import check_resumed, no_documents
from boolattn.stores.writer import Draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from boolattn.data.records import Document
    from boolattn.stores.analysis import DocumentTerms
    from boolattn.stores.base import Array
    from boolattn.stores.points.database import PointDatabase, Row, State
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Batch


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

    def __post_init__(self) -> None:
        self.is_empty = not self._is_resumed

    @classmethod
    def begin(cls, database: PointDatabase, settings: StoreSettings, *, is_resumed: bool) -> Self:
        """Begin a build, or go on with a stopped one, which must have the same settings."""
        database.settings = settings
        if is_resumed:
            state = database.read_state()
            check_resumed(database.label, state["settings"], settings)
        else:
            database.create_collection()
            state = {"format": FORMAT, "settings": asdict(settings), "mean_length": 0.0}
            state |= {"collection": database.collection, "fields": {}}
            database.write_state(state)
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
        kinds = database.settings.known_kinds
        terms = [document_terms(document, kinds) for document in batch.documents]
        self._register(batch.documents, [words.counts.total() for words in terms])
        heads, others, row = [], list[Any](), 0
        for number, spans in enumerate(batch.spans):
            rows = vectors[row : row + len(spans)]
            head, *rest = self._points(batch, number, versions[number], terms[number], rows)
            heads.append(head)
            others += rest
            row += len(spans)
        self.is_empty = False
        database.upsert(others)
        database.upsert(heads)
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

    def _points(
        self, batch: Batch, number: int, version: str, terms: DocumentTerms, rows: Array
    ) -> list[Row]:
        """Return the points of a document, its head first."""
        document, spans = batch.documents[number], batch.spans[number]
        key, words = key_of(document.id), Counter[int]()
        for term, count in terms.counts.items() if self._database.settings.words else ():
            words[term_index(term)] += count
        numbers = document_numbers(document.metadata)
        point = EMPTY | {
            "key": key,
            "document": key,
            "part": 0,
            "version": version,
            VECTOR: rows[0],
            "tags": document_tags(document.metadata),
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
