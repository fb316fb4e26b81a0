"""A store in a vector database, by its address.

The store's name is an alias of a collection ``NAME__…``. A build fills a collection of its own, and
the alias changes when it is complete. Several processes may write, but not the same document at
once. Words are weighted for the mean length of the first batch's documents, whatever comes later.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any, ClassVar, Self

from boolattn.errors import (
    ConfigError,
    DataError,
    IndexFolderError,
    IndexMismatchError,
    ServerError,
)
from boolattn.stores.filters import Filter
from boolattn.stores.points.database import FORMAT, warned
from boolattn.stores.points.draft import PointDraft
from boolattn.stores.points.reader import PointReader
from boolattn.stores.settings import StoreSettings, check_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.stores.base import Draft
    from boolattn.stores.points.database import PointDatabase

_VECTORS = ("exact", "hnsw")


class PointStore(PointReader):
    """A store that :meth:`create` made."""

    database_type: ClassVar[type[PointDatabase]]

    @classmethod
    def open(cls, address: str) -> Self:
        """Open a store; it is searched by its alias, so that a build anew is seen at once."""
        database = cls.database_type(address)
        _target(database)
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
        settings = changed(settings, vectors=settings.vectors or "hnsw")
        for value, values in (
            (settings.vectors, _VECTORS),
            (settings.precision, database.precisions),
        ):
            if value not in values:
                raise ConfigError(f"{address} takes {' or '.join(values)}, not {value!r}")
        current, stopped = _builds(database)
        if stopped and not (replace or resume):
            raise IndexFolderError(
                f"a build was stopped in {address}: go on with --resume, or begin again with "
                "--replace"
            )
        is_resumed = resume and bool(stopped)
        if current and not (replace or is_resumed):
            raise IndexFolderError(
                f"{address} holds an index: add to it with boolattn add, or build it anew with "
                "--replace"
            )
        # Later builds have higher names.
        name = stopped.pop() if is_resumed else f"{database.name}__{time.time_ns():016x}"
        draft = _begin(database.at(name), settings, is_resumed=is_resumed)
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
    def adding(self, *, replace_old: bool = False) -> Iterator[Draft]:
        """Add documents, each of which is visible when it is written.

        There are no transactions: after an error the documents that were written stay, each of them
        whole, and the same documents written again, with ``replace_old``, complete the rest.
        """
        # By its name: documents of a store that is built anew meanwhile would be lost unseen.
        database = self._database.at(_target(self._database))
        try:
            yield PointDraft(database, database.read_state())
        finally:
            self._counts.clear()

    def delete(self, ids: Sequence[str]) -> None:
        """Delete the heads, with which the documents are gone, and then the rest."""
        ids = check_ids(ids)
        keys = self.find(ids)
        if missing := [name for name in ids if name not in keys]:
            raise DataError(f"no document {missing[0]!r} in {self.label}; nothing was deleted")
        if not keys:
            return
        try:
            self._database.delete(keys.values())
        except ServerError:
            if self.find(ids):  # else the answer alone was lost
                raise
        self._counts.clear()
        with warned(f"{self.label}: cannot remove the rest of documents, which is masked"):
            self._database.remove_rest(keys.values(), ())

    def info(self) -> dict[str, Any]:
        """Return what people may want to know of the store."""
        settings = self.settings
        return {
            "documents": self.count(Filter()),
            "passages": self._database.count(None),
            "model": settings.model,
            "dimension": settings.dimension,
            "similarity": settings.similarity,
            "vectors": "exact" if self._database.is_exact else settings.vectors,
            "words": settings.words,
            "precision": settings.precision,
        }


def _target(database: PointDatabase) -> str:
    """Return the collection of a store; refuse a name that is none."""
    if target := database.target():
        return target
    raise IndexFolderError(
        f"there is no index at {database.label}; make one with: boolattn index FILE --out "
        f"{database.label}"
    )


def _builds(database: PointDatabase) -> tuple[str, list[str]]:
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


def _begin(database: PointDatabase, settings: StoreSettings, *, is_resumed: bool) -> PointDraft:
    """Begin a build, or go on with a stopped one, which must have the same settings."""
    database.settings = settings
    if is_resumed:
        state = database.read_state()
        if state["settings"] != asdict(settings):
            raise IndexMismatchError(
                f"the build that was stopped in {database.label} has other settings or another "
                "model; begin again with --replace"
            )
        return PointDraft(database, state, is_build=True, is_resumed=True)
    database.create()
    state = {"format": FORMAT, "settings": asdict(settings), "collection": database.collection}
    state |= {"mean_length": 0.0, "fields": {}}
    database.write_state(state)
    return PointDraft(database, state, is_build=True)
