"""Postgres with pgvector as an engine: a table by the server's address, with a graph or exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boolattn.search.engines.database import Collection, DatabaseEngine, stored_condition
from boolattn.search.stores.postgres import Database, compare, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.search.engines.base import Selection
    from boolattn.search.engines.database import Answers, Entry
    from boolattn.search.storage.segments import Array

#: Up to so many selected rows are compared one by one, which is exact and as fast.
_FEW = 16_384
_TYPES = {"tags": ("_text", "A"), "numbers": ("jsonb", "U")}


class _Table(Collection):
    schemes = ("postgresql://", "postgres://")

    def __init__(self, address: str, name: str) -> None:
        self.label, self._table = f"Postgres ({name or address})", quoted(name)
        self._database = Database(address, self.label, is_owner=True)

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with self._database.connected() as connection:
            cursor = connection.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []

    def names(self) -> list[str]:
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        return [name for (name,) in self._run(tables)]

    def drop(self, name: str) -> None:
        self._run(f"DROP TABLE {quoted(name)}")

    def create(self, dimension: int, _max_tags: int) -> None:
        columns = f"vector vector({dimension}) NOT NULL, tags text[], numbers jsonb"
        self._run(f"CREATE TABLE {self._table} (row bigint PRIMARY KEY, {columns})")

    def insert(self, entries: Sequence[Entry]) -> None:
        from pgvector import Vector
        from psycopg.types.json import Jsonb

        statement = f"COPY {self._table} (row, vector, tags, numbers) FROM STDIN"
        with self._database.connected() as connection, connection.cursor().copy(statement) as copy:
            for own in entries:
                copy.write_row((own.row, Vector(own.vector), own.tags, Jsonb(own.plain_numbers)))

    def finish(self, *, is_new: bool) -> None:
        if not is_new:
            return
        graph = "hnsw (vector vector_ip_ops) WITH (m = 32, ef_construction = 80)"
        with self._database.connected() as connection, connection.transaction():
            # It may take longer than an answer.
            connection.execute("SET LOCAL statement_timeout = 0")
            for kind in ("gin (tags)",) if self.is_exact else ("gin (tags)", graph):
                connection.execute(f"CREATE INDEX ON {self._table} USING {kind}")
            connection.execute(f"ANALYZE {self._table}")

    def delete(self, rows: Sequence[int]) -> None:
        self._run(f"DELETE FROM {self._table} WHERE row = ANY(%s)", list(rows))  # nosec B608

    def delete_from(self, row: int) -> None:
        self._run(f"DELETE FROM {self._table} WHERE row >= %s", row)  # nosec B608

    def count(self) -> int:
        return int(self._run(f"SELECT count(*) FROM {self._table}")[0][0])  # nosec B608

    def search(self, queries: Array, n: int, effort: int, selection: Selection) -> Answers:
        from pgvector import Vector

        tests = [compare(stored_condition(c), _TYPES, self.label) for c in selection.conditions]
        where = " AND ".join(["true", *(test for test, _ in tests)])
        values = [value for _, own in tests for value in own]
        statement = (
            f"SELECT row, -(vector <#> %s) FROM {self._table} WHERE {where} "  # nosec B608
            f"ORDER BY vector <#> %s LIMIT {int(n)}"
        )
        # Among few rows a graph would visit many that are not selected, and give up.
        is_few = selection.mask is not None and int(selection.mask.sum()) <= _FEW
        asked = [(vector, *values, vector) for vector in map(Vector, queries)]
        found = self._database.search(statement, asked, effort, uses_index=not is_few)
        return [([row for row, _ in rows], [score for _, score in rows]) for rows in found]


class _ExactTable(_Table):
    is_exact = True


class Postgres(DatabaseEngine):
    """Postgres with pgvector's HNSW graph."""

    collection = _Table


class PostgresExact(DatabaseEngine):
    """Postgres that compares every row."""

    collection = _ExactTable
