"""A collection of a vector database: what a store of ours, or the search of another, needs of it.

A store of ours has points. The first passage of a document is the point whose key is the
document's, its head, and holds all of the document; further passages are points of their own. A
point names the version of its document, a hash of it: one of another version than the head's does
not count.
"""

from __future__ import annotations

import copy
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np

from boolattn.errors import IndexFolderError
from boolattn.stores.base import Array, warned
from boolattn.stores.filters import EXISTS, NUMBERS, RANGES, Condition, Filter, tag
from boolattn.stores.foreign import DOT, Collection, Row
from boolattn.stores.settings import StoreSettings, no_index, saved_settings
from boolattn.stores.values import filter_hash, number_key, passage_keys

#: Format, settings, collection, mean length of documents, and fields of the metadata.
State = dict[str, Any]
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
IS_HEAD, IS_PASSAGE = Condition("part", "in", (0,)), Condition("part", "gte", (0,))
#: The kind of a condition on a list that lacks one of the values.
LACKS = "lacks"


def of_points(where: Filter) -> Filter:
    """Return a filter of documents as one of points, by their tags and numbers."""
    conditions = [*map(_stored, where.conditions)]
    if where.without:
        conditions.append(Condition("document", "not", where.without))
    conditions += [Condition("asserted", LACKS, terms) for terms in where.lacking if terms]
    return Filter((*conditions,), tuple((*map(_stored, every),) for every in where.alternatives))


def _stored(condition: Condition) -> Condition:
    name, kind, values = condition.name, condition.kind, condition.values
    if kind in RANGES:
        extreme = NUMBERS[condition.is_date][kind in ("gt", "gte")]
        return replace(condition, name=f"numbers.{number_key(f'{extreme}:{name}')}")
    is_wanted = (bool(values[0]) if kind == "exists" else kind != "not") != condition.is_negated
    hashes = [EXISTS] if kind == "exists" else map(filter_hash, values)
    # Without a value no document may match: nothing has an empty tag.
    tags = tuple(tag(name, value) for value in hashes) or ("",)
    return Condition("tags", "in" if is_wanted else "not", tags)


def expression(where: Filter, write: Callable[[Condition], str]) -> str:
    """Write a filter in a language with ``and``, ``or`` and parentheses."""
    tests = [*map(write, where.conditions)]
    if where.alternatives:
        either = " or ".join(" and ".join(map(write, every)) for every in where.alternatives)
        tests.append(f"({either})")
    return " and ".join(tests)


class Database(Collection):
    """A collection of a vector database that can be one of ours, which need not be there yet.

    A body that is read is parsed, and a vector is an array.
    """

    precisions: Sequence[str] = ("float32",)  # how vectors can be stored
    has_idf = False  # whether the database itself multiplies weights of words by rarity
    is_exact = False  # whether a search compares every point, whatever the settings say
    mean_length = 1.0  # of documents, where words are weighted when they are written
    settings: StoreSettings  # of a store of ours
    alias = ""  # the name of a store of ours, for which the name of the collection is looked up
    id_field, vector_field, word_field, metric = "key", VECTOR, WORDS, DOT
    parse: Any  # returns the server or path of an address, and the name of the store

    @classmethod
    def open(cls, address: str) -> Self:
        """Return the collection of a store of ours, which need not be there."""
        database = cls.__new__(cls)
        client, database.alias = cls.parse(address)
        database.name, database.collection = address, database.alias
        database.connect(client)
        return database

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

    def known_target(self) -> str:
        """Return that collection; refuse a name that stands for none."""
        if (not self.path or self.path.exists()) and (target := self.target()):
            return target
        raise no_index(self.name)

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all collections."""

    def builds(self) -> tuple[str, list[str]]:
        """Return the collection in use, and the stopped builds; remove what a build replaced."""
        names, current = sorted(self.names()), self.target()
        if self.alias in names and not current:
            reason = "is a collection that boolattn did not make; choose another name"
            raise IndexFolderError(f"{self.name} {reason}")
        form = re.compile(rf"{re.escape(self.alias)}__[0-9a-f]{{16}}")
        builds = [name for name in names if form.fullmatch(name)]
        for name in builds:
            if name < current:  # its removal failed
                self.drop(name)
        return current, [name for name in builds if name > current]

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
    def remove(self, *conditions: Condition) -> None:
        """Delete the points that meet all of some conditions, in one step."""

    def remove_rest(self, documents: Sequence[int], versions: Sequence[str] = ()) -> None:
        """Delete what documents have beside their heads, but for some versions."""
        conditions = [Condition("document", "in", (*documents,)), Condition("part", "not", (0,))]
        conditions += [Condition("version", "not", (*versions,))] if versions else []
        with warned(f"{self.name}: cannot remove the rest of documents, which is masked"):
            self.remove(*conditions)

    @abstractmethod
    def count(self, where: Filter) -> int:
        """Return the number of points that pass a filter."""

    @abstractmethod
    def select(self, where: Filter, n: int) -> list[int]:
        """Return the ``n`` smallest keys of points that pass a filter."""

    def vectors(self, keys: Iterable[int]) -> dict[int, list[Array]]:
        """Return the vectors of each document's points, in order; one may be missing."""
        points = {key: [key] for key in keys}
        if self.settings.passages:
            rows = self.get(points, "id", "version", "n_passages")
            points = {key: [key, *passage_keys(**row)] for key, row in rows.items()}
        rows = self.get([point for listed in points.values() for point in listed], VECTOR)
        known = {point: row[VECTOR] for point, row in rows.items() if VECTOR in row}
        return {k: [known[p] for p in listed if p in known] for k, listed in points.items()}

    def scores(self, vectors: Array, keys: Iterable[int]) -> dict[int, Array]:
        """Return the similarities of documents, those of their best points; others are absent."""
        known = self.vectors(keys).items()
        return {key: np.max(listed @ vectors.T, axis=0) for key, listed in known if listed}

    def frequency(self, term: str) -> int:
        """Return the number of documents with a term."""
        either = ((Condition(name, "in", (term,)),) for name in ("asserted", "denied"))
        return self.count(Filter((IS_HEAD,), (*either,)))

    def read_state(self) -> State:
        """Read what the store says of itself, settings included; refuse another format."""
        state = self.state()
        known: State = state if isinstance(state, dict) else {}
        self.settings = saved_settings(known, self.name, FORMAT)
        return known

    def state(self) -> object:
        """Return what the store says of itself, by default in a point."""
        return self.get([STATE], "body").get(STATE, {}).get("body")

    def write_state(self, state: State) -> None:
        """Write what the store says of itself."""
        about = {"key": STATE, "document": STATE, "part": NO_PASSAGE, "version": ""}
        self.insert([{**EMPTY, **about, "body": json.dumps(state)}])
