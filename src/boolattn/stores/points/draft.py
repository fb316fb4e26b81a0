"""Documents on their way into a vector database."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import DataError, ServerError
from boolattn.stores.analysis import term_weights
from boolattn.stores.base import Draft
from boolattn.stores.batches import document_numbers, document_tags, document_terms, number_name
from boolattn.stores.filters import EARLIEST, LARGEST, LATEST, SMALLEST, Field, Filter
from boolattn.stores.points.database import (
    Point,
    key_of,
    number_key,
    passage_keys,
    term_index,
    warned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from boolattn.data.records import Document
    from boolattn.stores.base import Array
    from boolattn.stores.batches import Batch, DocumentTerms
    from boolattn.stores.points.database import PointDatabase, State

#: Keys of documents that are read at once.
_PAGE = 5000


class PointDraft(Draft):
    """Documents on their way into a collection.

    The head of a document is written last: with it the document is there. What is written again,
    after a writer was stopped, has the same keys.

    Args:
        database: The collection.
        state: Of the store.
        is_build: Whether the collection is a new one, and not searched yet.
        is_resumed: Whether a stopped build wrote to it before.
    """

    def __init__(
        self,
        database: PointDatabase,
        state: State,
        *,
        is_build: bool = False,
        is_resumed: bool = False,
    ) -> None:
        self._database, self._state = database, state
        self._is_build, self._is_resumed = is_build, is_resumed
        self._n_documents = 0
        self._seen: set[int] = set()  # keys of the documents of a resumed build
        self.is_empty = not is_resumed

    def known(self, ids: Sequence[str]) -> set[str]:
        """Look ids up; a build has none but its own."""
        return set() if self._is_build else {*self._versions(ids)}

    def has(self, batch: Batch) -> bool:
        """Compare with the heads that a stopped build wrote."""
        if not self._is_resumed:
            return False
        ids = [document.id for document in batch.documents]
        known = self._versions(ids)
        is_written = [known.get(name) for name in ids] == _batch_versions(batch)
        if is_written:
            self._note(ids)
        return is_written

    def write(self, batch: Batch, vectors: Array) -> None:
        """Write further passages, then heads; then remove passages of other versions."""
        ids, versions = [document.id for document in batch.documents], _batch_versions(batch)
        is_fresh = self._is_build and not self._is_resumed
        if not is_fresh:  # a build looks for documents with the same key when it is complete
            self._versions(ids)
        kinds = self._database.settings.known_kinds
        terms = [document_terms(document, kinds) for document in batch.documents]
        self._register(batch.documents, [words.counts.total() for words in terms])
        heads, others, row = [], list[Point](), 0
        for number, spans in enumerate(batch.spans):
            rows = vectors[row : row + len(spans)]
            head, *rest = self._points(batch, number, versions[number], terms[number], rows)
            heads.append(head)
            others += rest
            row += len(spans)
        self.is_empty = False
        self._database.upsert(others)
        self._database.upsert(heads)
        self._note(ids)
        if not is_fresh:
            with warned(f"{self._database.label}: cannot remove old passages, which are masked"):
                self._database.remove_rest([head.key for head in heads], versions)

    def finish(self) -> None:
        """Remove what a stopped build wrote and this one did not; count the documents."""
        database, start = self._database, 1
        database.finish()
        n_written = database.count(Filter())
        while n_written > self._n_documents and (keys := database.heads(start, _PAGE)):
            if stale := [key for key in keys if key not in self._seen]:
                database.delete(stale)
                database.remove_rest(stale, ())
            start = keys[-1] + 1
        if (n_written := database.count(Filter())) != self._n_documents:
            raise ServerError(
                f"{database.label} has {n_written} of {self._n_documents} documents: the keys of "
                "two ids are the same, or the server lost some; index again with --replace"
            )

    def _note(self, ids: Sequence[str]) -> None:
        self._n_documents += len(ids)
        if self._is_resumed:
            self._seen.update(map(key_of, ids))

    def _points(
        self, batch: Batch, number: int, version: str, terms: DocumentTerms, rows: Array
    ) -> list[Point]:
        """Return the points of a document, its head first."""
        document, spans = batch.documents[number], batch.spans[number]
        key, weights, mean = key_of(document.id), dict[int, float](), self._state["mean_length"]
        if self._database.settings.words:
            for term, weight in term_weights(terms.counts, mean).items():
                weights[term_index(term)] = weights.get(term_index(term), 0.0) + weight
        numbers = document_numbers(document.metadata)
        head = Point(
            key=key,
            document=key,
            part=0,
            version=version,
            vector=rows[0],
            tags=document_tags(document.metadata),
            numbers={number_key(name): value for name, value in numbers.items()},
            asserted=sorted(terms.asserted, key=lambda term: -max(terms.counts[term], 1)),
            denied=terms.denied,
            words=weights,
            id=document.id,
            n_passages=len(spans),
            body=f'{{"document":{batch.lines[number].decode()},"spans":{json.dumps(spans)}}}',
        )
        points, alone = [head], replace(head, denied=(), words={}, id="", n_passages=0, body="{}")
        for part, other in enumerate(passage_keys(document.id, version, len(spans)), 1):
            points.append(replace(alone, key=other, part=part, vector=rows[part]))
        return points

    def _versions(self, ids: Sequence[str]) -> dict[str, str]:
        """Return versions of documents by id; refuse an id whose key another one has."""
        names = {key_of(name): name for name in ids}
        rows = self._database.get(names, ["id", "version"])
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
        before = fields_of(self._state)
        fields = dict(before)
        for document in documents:
            numbers = document_numbers(document.metadata)
            for name in document.metadata:
                limits = [
                    [*(known or ()), *(numbers[c] for c in columns if c in numbers)]
                    for known, columns in zip(
                        fields.get(name, Field()), _columns(name), strict=True
                    )
                ]
                fields[name] = Field(*((min(span), max(span)) if span else None for span in limits))
        if fields != before or not self._state["mean_length"]:
            mean = self._state["mean_length"] or float(np.mean(lengths)) or 1.0
            self._state = {**self._state, "fields": fields, "mean_length": mean}
            self._database.write_state(self._state)
        for name, field in fields.items():
            known = before.get(name, Field())
            for span, old, columns in zip(field, known, _columns(name), strict=True):
                for column in columns if span and not old else ():
                    self._database.create_index(f"numbers.{number_key(column)}")


def fields_of(state: State) -> dict[str, Field]:
    """Return the fields of the metadata that a state names."""
    return {
        name: Field(*(tuple(limits) if limits else None for limits in ranges))
        for name, ranges in state["fields"].items()
    }


def _columns(name: str) -> list[list[str]]:
    """Return the names of a field's numbers, and those of its dates, as they are stored."""
    pairs = ((SMALLEST, LARGEST), (EARLIEST, LATEST))
    return [[number_name(column, name) for column in pair] for pair in pairs]


def _batch_versions(batch: Batch) -> list[str]:
    """Return a hash of each document and its passages."""
    pairs = zip(batch.lines, batch.spans, strict=True)
    return [hashlib.sha256(line + f"{spans}".encode()).hexdigest()[:32] for line, spans in pairs]
