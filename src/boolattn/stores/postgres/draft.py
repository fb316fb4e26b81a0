"""Documents on their way into the tables of a Postgres.

A build fills tables of its own, a batch in a transaction, and gives them the store's names when it
is finished. An addition is one transaction.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boolattn.errors import DataError, IndexFolderError, IndexMismatchError
from boolattn.stores.base import Draft
from boolattn.stores.batches import document_numbers, document_tags, document_terms
from boolattn.stores.postgres.tables import (
    FORMAT,
    create_indexes,
    create_tables,
    delete_documents,
    exists,
    plain,
    read_state,
    tables_of,
)
from boolattn.stores.settings import check_build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.stores.base import Array
    from boolattn.stores.batches import Batch, DocumentTerms
    from boolattn.stores.postgres.database import Connection
    from boolattn.stores.postgres.tables import Tables
    from boolattn.stores.settings import StoreSettings

_STAGE = "__new"
#: A server that waits for a lock for one second looks for a deadlock, and may end a search.
_LOCK_SECONDS, _SWAP_SECONDS = 0.5, 600
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


@dataclass
class PostgresDraft(Draft):
    """Documents on their way into tables."""

    _connection: Connection  # its own, which alone may write
    _tables: Tables
    _settings: StoreSettings
    _replaces: bool = False  # whether they replace those with the same ids

    def known(self, ids: Sequence[str]) -> set[str]:
        """Look ids up."""
        statement = f"SELECT id FROM {self._tables.documents} WHERE id = ANY(%s)"  # nosec B608
        rows = self._connection.execute(statement, ([plain(name) for name in ids],)).fetchall()
        names = {row[0] for row in rows}
        return {name for name in ids if plain(name) in names}

    def write(self, batch: Batch, vectors: Array) -> None:
        """Write a batch in one transaction."""
        tables, connection = self._tables, self._connection
        terms = [
            document_terms(document, self._settings.known_kinds) for document in batch.documents
        ]
        n, length = len(terms), sum(words.counts.total() for words in terms)
        with connection.transaction():
            if self._replaces:
                delete_documents(connection, tables, [d.id for d in batch.documents])
            (last,) = connection.execute(
                f"UPDATE {tables.settings} SET next = next + %s, documents = documents + %s, "  # nosec B608
                "passages = passages + %s, length = length + %s RETURNING next",
                (n, n, len(vectors), length),
            ).fetchone()
            self._copy_documents(batch, terms, last - n)
            self._copy_passages(batch, vectors, last - n)
            if self._settings.words:
                with connection.cursor().copy(f"COPY {tables.terms} FROM STDIN") as copy:
                    for number, words in enumerate(terms, last - n):
                        size = words.counts.total()
                        copy.write(
                            "".join(
                                f"{t}\t{number}\t{c}\t{size}\n" for t, c in words.counts.items()
                            )
                        )
            self._add_fields(last - n)

    def _copy_documents(self, batch: Batch, terms: list[DocumentTerms], first: int) -> None:
        with self._connection.cursor().copy(f"COPY {self._tables.documents} FROM STDIN") as copy:
            rows = zip(batch.documents, terms, batch.versions, strict=True)
            for number, (document, words, digest) in enumerate(rows, first):
                copy.write_row(
                    (
                        number,
                        *map(plain, (document.id, document.title, document.text)),
                        without_nul(document.metadata),
                        document_tags(document.metadata),
                        without_nul(document_numbers(document.metadata)),
                        words.asserted,
                        words.denied,
                        words.counts.total(),
                        digest,
                    )
                )

    def _copy_passages(self, batch: Batch, vectors: Array, first: int) -> None:
        from pgvector import HalfVector, Vector

        is_half = self._settings.precision == "float16"
        kind, make = ("halfvec", HalfVector) if is_half else ("vector", Vector)
        rows, cursor = iter(vectors), self._connection.cursor()
        with cursor.copy(f"COPY {self._tables.passages} FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", "int4", "int4", "int4", kind])
            for number, spans in enumerate(batch.spans, first):
                for part, span in enumerate(spans):
                    copy.write_row((number, part, *span, make(next(rows))))

    def _add_fields(self, first: int) -> None:
        def best(choose: str, column: str) -> str:
            return f"{choose}((numbers ->> ('{column}:' || name))::float8)"

        names = ("smallest", "largest", "earliest", "latest")
        ranges = ", ".join(best("min" if name in names[::2] else "max", name) for name in names)
        merged = ", ".join(
            f"{name} = {'least' if name in names[::2] else 'greatest'}(f.{name}, excluded.{name})"
            for name in names
        )
        self._connection.execute(
            f"INSERT INTO {self._tables.fields} AS f SELECT name, count(*), {ranges} FROM "  # nosec B608
            f"{self._tables.documents}, json_object_keys(metadata) AS name WHERE number >= %s "
            "GROUP BY name ON CONFLICT (name) DO UPDATE SET "
            f"documents = f.documents + excluded.documents, {merged}",
            (first,),
        )


@dataclass
class PostgresBuild(PostgresDraft):
    """A new store, in tables that get its name when it is finished.

    One that goes on with a stopped build replaces what that wrote.
    """

    _target: Tables = field(kw_only=True)

    @classmethod
    def begin(
        cls, connection: Connection, table: str, settings: StoreSettings, label: str, *,
        replace: bool, resume: bool,
    ) -> PostgresBuild:  # fmt: skip
        """Begin a build, or go on with one that was stopped; refuse what would be lost."""
        target, stage = tables_of(table), tables_of(table, _STAGE)
        old, stopped = read_state(connection, target), read_state(connection, stage)
        if old is None and any(exists(connection, name) for name in target):
            raise IndexFolderError(f"{label} is a table of someone else; choose another name")
        is_stopped = bool(stopped and stopped.documents)
        check_build(
            label, has_index=bool(old), is_stopped=is_stopped, replace=replace, resume=resume
        )
        if stopped and is_stopped and not replace:
            if (stopped.format, stopped.settings) != (FORMAT, settings):
                raise IndexMismatchError(
                    f"the stopped build in {label} has another model or other settings; begin "
                    "again with --replace"
                )
            connection.execute("CREATE TEMP TABLE boolattn_seen (id text PRIMARY KEY)")
            return cls(connection, stage, settings, True, _target=target)
        connection.execute(f"DROP TABLE IF EXISTS {', '.join(stage)}", ())
        with connection.transaction():
            create_tables(connection, stage, settings, max(1, old.next) if old else 1)
        return cls(connection, stage, settings, _target=target)

    def known(self, _ids: Sequence[str]) -> set[str]:
        """Return none: what a stopped build wrote is written by this one."""
        return set()

    def has(self, batch: Batch) -> bool:
        """Return whether all documents of a batch were written before, as they are."""
        if not self._replaces:
            return False
        ids = [plain(document.id) for document in batch.documents]
        (n,) = self._connection.execute(
            f"SELECT count(*) FROM {self._tables.documents} JOIN "  # nosec B608
            "unnest(%s::text[], %s::text[]) AS batch (id, digest) USING (id, digest)",
            (ids, batch.versions),
        ).fetchone()
        self._connection.execute(
            "INSERT INTO boolattn_seen SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", (ids,)
        )
        return bool(n == len(ids))

    def finish(self) -> None:
        """Index the tables and give them the names of the store, all at once."""
        connection, tables = self._connection, self._tables
        if self._replaces:
            # The corpus may have changed since the build was stopped.
            stale = f"SELECT id FROM {tables.documents} WHERE id NOT IN (TABLE boolattn_seen)"  # nosec B608
            delete_documents(connection, tables, [row[0] for row in connection.execute(stale, ())])
        state = read_state(connection, tables)
        if state is None or not state.documents:
            raise DataError("the corpus holds no documents, so there is nothing to index")
        with connection.transaction():
            create_indexes(connection, tables, self._settings)
            self._swap()
        with suppress(Exception):  # the store is complete; the server does this by itself too
            connection.execute(f"VACUUM {', '.join(self._target)}", ())

    def _swap(self) -> None:
        from psycopg.errors import LockNotAvailable

        connection = self._connection
        connection.execute(f"SET LOCAL lock_timeout = {round(1000 * _LOCK_SECONDS)}")
        end = time.monotonic() + _SWAP_SECONDS
        while True:
            try:
                with connection.transaction():
                    connection.execute(f"DROP TABLE IF EXISTS {', '.join(self._target)}", ())
                    for source, name in zip(self._tables, self._target, strict=True):
                        last = name.rpartition(".")[2]
                        connection.execute(f"ALTER TABLE {source} RENAME TO {last}", ())
                return
            except LockNotAvailable:
                # Someone searches the old tables: wait, without making others wait in turn.
                if time.monotonic() > end:
                    raise
                time.sleep(_LOCK_SECONDS)


def without_nul(values: Mapping[str, Any]) -> str:
    """Return values as JSON, in which Postgres takes no NUL."""
    return _NUL.sub(r"\1\\ufffd", json.dumps(values, ensure_ascii=False))
