"""Documents on their way into a vector database."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import DataError, IndexFolderError, ServerError
from boolattn.stores.analysis import document_terms
from boolattn.stores.filters import NUMBERS, Field, Filter, document_numbers, document_tags
from boolattn.stores.points.database import (
    FORMAT,
    Point,
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
    from boolattn.stores.points.database import PointDatabase, State
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Batch

#: Keys of documents that are read at once.
_PAGE = 5000


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
    _seen: set[int] = field(default_factory=set)  # keys of the documents of a resumed build

    def __post_init__(self) -> None:
        self.is_empty = not self._is_resumed

    def known(self, ids: Sequence[str]) -> set[str]:
        return set() if self._is_build else {*self._versions(ids)}

    def has(self, batch: Batch) -> bool:
        """Compare with the heads that a stopped build wrote."""
        if not self._is_resumed:
            return False
        ids = [document.id for document in batch.documents]
        known = self._versions(ids)
        is_written = [known.get(name) for name in ids] == batch.versions
        if is_written:
            self._note(ids)
        return is_written

    def write(self, batch: Batch, vectors: Array) -> None:
        """Write further passages, then heads; then remove passages of other versions."""
        ids, versions = [document.id for document in batch.documents], batch.versions
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
        if not self._n_documents:
            raise no_documents()
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
        key, words = key_of(document.id), Counter[int]()
        for term, count in terms.counts.items() if self._database.settings.words else ():
            words[term_index(term)] += count
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
            words=words,
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


def fields_of(state: State) -> dict[str, Field]:
    """Return the fields of the metadata that a state names."""
    return {
        name: Field(
            *((ranges[a], ranges[b]) if a in ranges and b in ranges else None for a, b in NUMBERS)
        )
        for name, ranges in state["fields"].items()
    }


def find_builds(database: PointDatabase) -> tuple[str, list[str]]:
    """Return the collection in use, and the stopped builds; remove what a build replaced."""
    name, names, current = database.name, sorted(database.names()), database.target()
    if name in names:
        raise IndexFolderError(
            f"{database.label} is a collection that boolattn did not make; choose another name"
        )
    builds = [
        other for other in names if re.fullmatch(rf"{re.escape(name)}__[0-9a-f]{{16}}", other)
    ]
    for other in builds:
        if other < current:  # its removal failed
            database.drop(other)
    return current, [other for other in builds if other > current]


def begin(database: PointDatabase, settings: StoreSettings, *, is_resumed: bool) -> PointDraft:
    """Begin a build, or go on with a stopped one, which must have the same settings."""
    database.settings = settings
    if is_resumed:
        state = database.read_state()
        check_resumed(database.label, state["settings"], settings)
        return PointDraft(database, state, True, True)
    database.create()
    state = {"format": FORMAT, "settings": asdict(settings), "collection": database.collection}
    state |= {"mean_length": 0.0, "fields": {}}
    database.write_state(state)
    return PointDraft(database, state, True)
