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

from pgvector import HalfVector, Vector
from psycopg.errors import LockNotAvailable

from boolattn.errors import DataError, IndexFolderError
from boolattn.stores.base import Draft
from boolattn.stores.batches import document_numbers, document_tags, document_terms
from boolattn.stores.filters import COMPARED, EARLIEST, SMALLEST
from boolattn.stores.postgres import tables as sql
from boolattn.stores.postgres.tables import delete_documents, plain, read_state, tables_of
from boolattn.stores.settings import check_build, check_format, check_resumed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.stores.base import Array
    from boolattn.stores.batches import Batch
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
        tables, connection, kinds = self._tables, self._connection, self._settings.known_kinds
        terms = [document_terms(document, kinds) for document in batch.documents]
        lengths = [words.counts.total() for words in terms]
        with connection.transaction():
            if self._replaces:
                delete_documents(connection, tables, [d.id for d in batch.documents])
            (end,) = connection.execute(
                f"UPDATE {tables.settings} SET next = next + %s, documents = documents + %s, "  # nosec B608
                "passages = passages + %s, length = length + %s RETURNING next",
                (len(terms), len(terms), len(vectors), sum(lengths)),
            ).fetchone()
            numbers = range(end - len(terms), end)
            rows = zip(numbers, batch.documents, terms, lengths, batch.versions, strict=True)
            self._copy(
                tables.documents,
                (
                    (
                        number,
                        *map(plain, (document.id, document.title, document.text)),
                        without_nul(document.metadata),
                        document_tags(document.metadata),
                        without_nul(document_numbers(document.metadata)),
                        words.asserted,
                        words.denied,
                        length,
                        version,
                    )
                    for number, document, words, length, version in rows
                ),
            )
            kind = sql.vector_type(self._settings)
            make, stored = HalfVector if kind == "halfvec" else Vector, iter(vectors)
            passages = (
                (number, part, *span, make(next(stored)))
                for number, spans in zip(numbers, batch.spans, strict=True)
                for part, span in enumerate(spans)
            )
            self._copy(tables.passages, passages, ["int8", "int4", "int4", "int4", kind])
            if self._settings.words:
                with connection.cursor().copy(f"COPY {tables.terms} FROM STDIN") as copy:
                    for number, words, length in zip(numbers, terms, lengths, strict=True):
                        counts = words.counts.items()
                        copy.write("".join(f"{t}\t{number}\t{n}\t{length}\n" for t, n in counts))
            self._add_fields(numbers[0])

    def _copy(self, table: str, rows: Iterable[Sequence[Any]], types: Sequence[str] = ()) -> None:
        """Write rows, in binary where their types are known."""
        statement = f"COPY {table} FROM STDIN" + (" (FORMAT binary)" if types else "")
        with self._connection.cursor().copy(statement) as copy:
            if types:
                copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def _add_fields(self, first: int) -> None:
        """Add the fields of documents from a number on, and their ranges."""
        is_least = {name: name in (SMALLEST, EARLIEST) for name in COMPARED}
        ranges = [
            f"{'min' if is_least[name] else 'max'}((numbers ->> ('{name}:' || name))::float8)"
            for name in COMPARED
        ]
        merged = [
            f"{name} = {'least' if is_least[name] else 'greatest'}(f.{name}, excluded.{name})"
            for name in COMPARED
        ]
        self._connection.execute(
            f"INSERT INTO {self._tables.fields} AS f SELECT name, count(*), {', '.join(ranges)} "  # nosec B608
            f"FROM {self._tables.documents}, json_object_keys(metadata) AS name WHERE number >= %s "
            "GROUP BY name ON CONFLICT (name) DO UPDATE SET "
            f"documents = f.documents + excluded.documents, {', '.join(merged)}",
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
        if old is None and any(sql.exists(connection, name) for name in target):
            raise IndexFolderError(f"{label} is a table of someone else; choose another name")
        is_stopped = bool(stopped and stopped.documents)
        check_build(
            label, has_index=bool(old), is_stopped=is_stopped, replace=replace, resume=resume
        )
        if stopped and is_stopped and not replace:
            check_format(label, stopped.format, sql.FORMAT)
            check_resumed(label, stopped.settings, settings)
            connection.execute("CREATE TEMP TABLE boolattn_seen (id text PRIMARY KEY)")
            return cls(connection, stage, settings, True, _target=target)
        connection.execute(f"DROP TABLE IF EXISTS {', '.join(stage)}", ())
        with connection.transaction():
            sql.create_tables(connection, stage, settings, max(1, old.next) if old else 1)
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
            sql.create_indexes(connection, tables, self._settings)
            self._swap()
        with suppress(Exception):  # the store is complete; the server does this by itself too
            connection.execute(f"VACUUM {', '.join(self._target)}", ())

    def _swap(self) -> None:
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
