"""Postgres with pgvector as a store: everything is in tables of the server."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any

from boolattn.errors import BoolattnError, DataError
from boolattn.stores.base import check_ids
from boolattn.stores.postgres.database import Database, parse_address
from boolattn.stores.postgres.draft import PostgresBuild, PostgresDraft
from boolattn.stores.postgres.reader import PostgresReader
from boolattn.stores.postgres.tables import check_settings, delete_documents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.stores.base import StoreSettings


class PostgresStore(PostgresReader):
    """A store at ``postgresql://[user@]host[:port]/database?table=NAME``."""

    @classmethod
    def open(cls, address: str) -> PostgresStore:
        """Open a store that :meth:`create` made."""
        return cls(address)

    @classmethod
    @contextmanager
    def create(
        cls, address: str, settings: StoreSettings, *, replace: bool = False, resume: bool = False
    ) -> Iterator[PostgresBuild]:
        """Build a store, which appears when it is complete."""
        connection_address, table = parse_address(address)
        settings = changed(settings, vectors=settings.vectors or "hnsw")
        check_settings(settings)
        label = f"Postgres ({table})"
        with Database(connection_address, label, is_owner=True).writing(table) as connection:
            build = PostgresBuild.begin(
                connection, table, settings, label, replace=replace, resume=resume
            )
            yield build
            build.finish()

    @contextmanager
    def adding(self, *, replace_old: bool = False) -> Iterator[PostgresDraft]:
        """Add documents in one transaction; searches go on meanwhile."""
        with self._database.writing(self._table) as connection:
            settings = self._read_state().settings
            with connection.transaction():
                yield PostgresDraft(connection, self._tables, settings, replaces=replace_old)
        with suppress(BoolattnError):  # the documents are added
            self.refresh()

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents in one transaction."""
        names = check_ids(ids)
        with self._database.writing(self._table) as connection, connection.transaction():
            known = PostgresDraft(connection, self._tables, self.settings, replaces=False).known(
                names
            )
            if missing := [name for name in names if name not in known]:
                raise DataError(f"no document {missing[0]!r} in {self.label}; nothing was deleted")
            delete_documents(connection, self._tables, names)

    def info(self) -> dict[str, Any]:
        """Return sizes and settings."""
        state = self._read_state()
        return {
            "documents": state.documents,
            "passages": state.passages,
            "model": state.settings.model,
            "dimension": state.settings.dimension,
            "similarity": state.settings.similarity,
            "vectors": state.settings.vectors,
            "precision": state.settings.precision,
            "words": state.settings.words,
        }
