"""Postgres with pgvector as a store: tables of points, of terms and of the store's state.

The store's name is a view that names the tables in use, ``NAME__…``. An addition is one
transaction. Terms are postings, over which BM25+ is added up with the statistics of the moment.
"""

from __future__ import annotations

import copy
import json
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from pgvector import HalfVector, Vector
from psycopg.errors import UndefinedColumn, UndefinedTable

from boolattn.errors import ConfigError, ServerError
from boolattn.stores.address import parse_postgres
from boolattn.stores.analysis import DELTA, K1, B
from boolattn.stores.base import Claim, one_line
from boolattn.stores.points.database import VECTOR, WORDS, Match
from boolattn.stores.points.store import PointStore
from boolattn.stores.postgres.collection import Database, filter_test, quoted, quoted_table
from boolattn.stores.settings import HNSW
from boolattn.stores.values import term_index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from boolattn.stores.base import Array, Claims, Keys
    from boolattn.stores.filters import Filter
    from boolattn.stores.points.database import Matches, Row, State
    from boolattn.stores.postgres.collection import Connection, Parameters

#: Up to so many selected points are compared one by one, which is exact and as fast.
_FEW = 16_384
#: Neighbours that a graph is asked for, at most; beyond it every point is compared.
_MAX_ASKED = 65_536
#: Largest vectors, in bytes: of a graph, and on a page beside the rest of a row.
_MAX_GRAPH, _MAX_INLINE = 8000, 7500
#: Columns of a point, and the types in which they are written; JSON is a text.
_COLUMNS = {
    "key": ("bigint PRIMARY KEY", "int8"),
    "document": ("bigint", "int8"),
    "part": ("int", "int4"),
    "version": ("text", "text"),
    "tags": ("text[]", "text[]"),
    "numbers": ("jsonb", "jsonb"),
    "asserted": ("text[]", "text[]"),
    "denied": ("text[]", "text[]"),
    "n_passages": ("int", "int4"),
    "id": ("json", "text"),
    "body": ("json", "text"),
}


class PostgresStore(PointStore):
    """A store at ``postgresql://[user@]host[:port]/database?table=NAME``.

    ``{points}`` in a statement stands for the name of a table.
    """

    precisions = ("float32", "float16")
    _connection: Connection = None  # the only one that may write, while one does
    _current = ""  # the tables in use, once they are known

    def connect(self) -> str:
        server, name = parse_postgres(self.address)
        self._server = Database(server, self.address)
        return name

    @contextmanager
    def writing(self, *, is_build: bool = False) -> Iterator[Self]:
        with self._server.writing(self.name, is_owner=is_build) as connection:
            other = copy.copy(self)
            other._connection = connection
            with nullcontext() if is_build else connection.transaction():
                yield other

    def _named(self, statement: str) -> str:
        """Write the names of tables into a statement."""
        table = self.collection
        if table == self.name:
            table = self._current = self._current or self.known_target()
        for name, suffix in {"points": "", "terms": "_terms", "state": "_state"}.items():
            statement = statement.replace(f"{{{name}}}", quoted_table(table + suffix))
        return statement

    def _execute(self, statement: str, values: Parameters | None = None) -> Any:  # noqa: ANN401
        return self._connection.execute(self._named(statement), values)

    def rows_of(
        self, statement: str, asked: Sequence[Parameters] = ((),), effort: int = 0
    ) -> list[list[Any]]:
        """Return the rows of a statement for each of several lists of values."""
        if self._connection is not None:
            return [self._execute(statement, values).fetchall() for values in asked]
        try:
            return self._server.search(self._named(statement), asked, effort)
        except ServerError as error:
            if not isinstance(error.__cause__, UndefinedTable) or self.collection != self.name:
                raise
        self._current = ""  # the store was built anew
        return self._server.search(self._named(statement), asked, effort)

    def target(self) -> str:
        statement = f"SELECT boolattn_collection FROM {quoted_table(self.name)}"  # nosec B608
        lent = nullcontext(self._connection) if self._connection else self._server.connected()
        missing = suppress(UndefinedTable, UndefinedColumn)
        with lent as connection, missing:
            return str(connection.execute(statement, ()).fetchone()[0])
        return ""

    def names(self) -> list[str]:
        schema, dot, _ = self.name.rpartition(".")
        statement = (
            "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE "
            "nspname = coalesce(nullif(%s, ''), current_schema())"
        )
        names = [schema + dot + row[0] for row in self._connection.execute(statement, (schema,))]
        return [name for name in names if name != self.name or not self.target()]

    def create_collection(self) -> None:
        n_bytes = self.settings.dimension * (2 if self._type == "halfvec" else 4)
        if self.settings.vectors == HNSW and n_bytes > _MAX_GRAPH:
            raise ConfigError(
                f"pgvector's graph takes vectors of 2000 dimensions, of 4000 in float16, not "
                f"{self.settings.dimension}: index with --vectors exact"
            )
        columns = [f"{name} {kind} NOT NULL" for name, (kind, _) in _COLUMNS.items()]
        columns.append(f"vector {self._type}({self.settings.dimension}) NOT NULL")
        # Plain vectors are read without a detour by searches that compare every row.
        storage = "PLAIN" if n_bytes <= _MAX_INLINE else "EXTERNAL"
        self._execute(
            f"CREATE TABLE {{points}} ({', '.join(columns)}); "  # nosec B608
            f"ALTER TABLE {{points}} ALTER vector SET STORAGE {storage}; "
            "CREATE INDEX ON {points} (document); "
            "CREATE TABLE {terms} (term bigint, document bigint, count int, length int); "
            "CREATE INDEX ON {terms} (document); "
            "CREATE TABLE {state} (body json, documents bigint, length bigint); "
            "INSERT INTO {state} VALUES ('{}', 0, 0)"
        )

    @property
    def _type(self) -> str:
        return "halfvec" if self.settings.precision == "float16" else "vector"

    def finish(self) -> None:
        indexes = ["{terms} (term, document) INCLUDE (count, length)"]
        indexes += ["{points} USING gin (tags)", "{points} USING gin (asserted)"]
        if self.settings.vectors == HNSW:
            graph = f"hnsw (vector {self._type}_ip_ops) WITH (m = 32, ef_construction = 80)"
            indexes.append(f"{{points}} USING {graph}")
        for number, index in enumerate(indexes):
            name = quoted(f"{self.collection.rpartition('.')[2]}_{number}")
            self._execute(f"CREATE INDEX IF NOT EXISTS {name} ON {index}")
        for table in ("{points}", "{terms}"):
            self._execute(f"VACUUM ANALYZE {table}")

    def switch(self, old: str) -> None:
        view, value = quoted_table(self.name), f"'{self.collection}'::text AS boolattn_collection"
        self._execute(f"CREATE OR REPLACE VIEW {view} AS SELECT {value}")

    def drop(self, collection: str) -> None:
        # Each by itself: a search that waits for one table may have read another.
        with one_line(self.label, (psycopg.Error,)):
            for table in ("{points}", "{terms}", "{state}"):
                self.at(collection)._execute(f"DROP TABLE IF EXISTS {table}")

    def insert(self, points: list[Row]) -> None:
        make = HalfVector if self._type == "halfvec" else Vector
        with self._connection.transaction():
            self.remove([point["key"] for point in points])
            with self._copied("{points}") as copied:
                copied.set_types([*(kind for _, kind in _COLUMNS.values()), self._type])
                for point in points:
                    row = point | {"id": json.dumps(point["id"])}
                    copied.write_row([*(row[name] for name in _COLUMNS), make(point[VECTOR])])
            lengths = [sum(point[WORDS].values()) for point in points]
            with self._copied("{terms}") as copied:
                copied.set_types(["int8", "int8", "int4", "int4"])
                for point, length in zip(points, lengths, strict=True):
                    for term, count in point[WORDS].items():
                        copied.write_row((term, point["key"], count, length))
            totals = (sum(not point["part"] for point in points), sum(lengths))
            change = "UPDATE {state} SET documents = documents + %s, length = length + %s"
            self._execute(change, totals)

    def _copied(self, table: str) -> Any:  # noqa: ANN401 - a context
        return self._connection.cursor().copy(
            self._named(f"COPY {table} FROM STDIN (FORMAT binary)")
        )

    def get(self, keys: Iterable[int], *names: str) -> dict[int, Row]:
        columns = ["key", *("vector::vector" if name == VECTOR else name for name in names)]
        statement = f"SELECT {', '.join(columns)} FROM {{points}} WHERE key = ANY(%s)"  # nosec B608
        [rows] = self.rows_of(statement, [([*keys],)])
        points = {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}
        for point in points.values() if VECTOR in names else ():
            point[VECTOR] = point[VECTOR].to_numpy()
        return points

    def search(self, field: str, vectors: Sequence[Any], n: int, where: Filter) -> Matches:
        answers = (self._near if field == VECTOR else self._worded)(vectors, n, where)
        return [[Match(*row) for row in rows] for rows in answers]

    def _near(self, vectors: Sequence[Array], n: int, where: Filter) -> list[list[Any]]:
        """Ask the graph; compare all points where a filter leaves few, or the graph finds few."""
        test, values = filter_test(where)
        is_exact = self.settings.vectors != HNSW or n > _MAX_ASKED
        if where and not is_exact:
            limited = f"(SELECT 1 FROM {{points}} d WHERE {test} LIMIT {_FEW + 1}) AS few"  # nosec B608
            [[(total,)]] = self.rows_of(f"SELECT count(*) FROM {limited}", [values])  # nosec B608
            is_exact = total <= _FEW
        asked = [{**values, "vector": Vector(vector)} for vector in vectors]
        distance = f"d.vector <#> %(vector)s::{self._type}"
        select = f"SELECT d.document, -({distance}) FROM {{points}} d WHERE {test} ORDER BY "  # nosec B608
        if not is_exact:
            answers = self.rows_of(f"{select} {distance} LIMIT {int(n)}", asked, n)
            if all(len(rows) == n for rows in answers):
                return answers
        # The index is not for a sum.
        return self.rows_of(f"{select} ({distance}) + 0, d.document LIMIT {int(n)}", asked)

    def _worded(
        self, weights: Sequence[Mapping[int, float]], n: int, where: Filter
    ) -> list[list[Any]]:
        """Add up BM25+ over the postings of the terms."""
        test, values = filter_test(where)
        passing, source = "", "asked JOIN {terms} t USING (term)"
        if where:
            # Selected once: few terms have the number of documents that the server expects.
            selected = f"SELECT key FROM {{points}} d WHERE d.part = 0 AND {test}"  # nosec B608
            passing = f", passing AS MATERIALIZED ({selected})"
            source += " JOIN passing ON key = t.document"
        statement = (
            "WITH asked AS MATERIALIZED (SELECT q.term, q.rarity, greatest(s.length::float8 / "  # nosec B608
            "greatest(s.documents, 1), 1) AS mean FROM {state} s, unnest(%(terms)s::bigint[], "
            f"%(rarities)s::float8[]) AS q (term, rarity)){passing} "
            f"SELECT t.document, sum(rarity * ({K1 + 1}::float8 * t.count / (t.count + "
            f"{K1}::float8 * ({1 - B} + {B}::float8 * t.length / mean)) + {DELTA})) AS score "
            f"FROM {source} GROUP BY t.document ORDER BY score DESC, t.document LIMIT {int(n)}"
        )
        asked = [{**values, "terms": [*w], "rarities": [*w.values()]} for w in weights]
        return self.rows_of(statement, asked)

    def scores(self, vectors: Array, keys: Iterable[int]) -> dict[int, Array]:
        columns = ", ".join(len(vectors) * [f"max(-(vector <#> %s::{self._type}))"])
        statement = (
            f"SELECT document, {columns} FROM {{points}} WHERE document = ANY(%s) "  # nosec B608
            "GROUP BY document"
        )
        [rows] = self.rows_of(statement, [(*map(Vector, vectors), [*keys])])
        return {row[0]: np.array(row[1:], np.float32) for row in rows}

    def n_passages(self) -> int:
        [[(number,)]] = self.rows_of("SELECT count(*) FROM {points}")
        return int(number)

    def count(self, where: Filter, term: str = "") -> int:
        values: Mapping[str, Any] = {"term": term_index(term)}
        if term:
            statement = "SELECT count(*) FROM {terms} WHERE term = %(term)s"
        elif not where:
            statement = "SELECT documents FROM {state}"
        else:
            test, values = filter_test(where)
            statement = f"SELECT count(*) FROM {{points}} d WHERE d.part = 0 AND {test}"  # nosec B608
        [rows] = self.rows_of(statement, [values])
        return sum(n for (n,) in rows)

    def select(self, where: Filter, n: int, keys: Sequence[int] | None = None) -> list[int]:
        test, values = filter_test(where)
        test += "" if keys is None else " AND d.key = ANY(%(keys)s)"
        ordered = f"WHERE d.part = 0 AND {test} ORDER BY d.key LIMIT {int(n)}"
        statement = f"SELECT d.key FROM {{points}} d {ordered}"  # nosec B608
        [rows] = self.rows_of(statement, [{**values, "keys": keys}])
        return [key for (key,) in rows]

    def remove(self, keys: Collection[int]) -> None:
        self._execute(
            "WITH gone AS (DELETE FROM {points} WHERE key = ANY(%s) RETURNING key, part), words AS "
            "(DELETE FROM {terms} t USING gone WHERE t.document = gone.key RETURNING count) "
            "UPDATE {state} SET documents = documents - (SELECT count(*) FROM gone WHERE part = 0),"
            " length = length - (SELECT coalesce(sum(count), 0) FROM words)",
            ([*keys],),
        )

    def remove_rest(self, documents: Collection[int], versions: Collection[str]) -> None:
        self._execute(
            "DELETE FROM {points} WHERE document = ANY(%s) AND part <> 0 AND version <> ALL(%s)",
            ([*documents], [*versions]),
        )

    def state(self) -> object:
        self._current = ""  # another process may have built the store anew
        [rows] = self.rows_of("SELECT body FROM {state}")
        return rows[0][0] if rows else None

    def write_state(self, state: State) -> None:
        self._execute("UPDATE {state} SET body = %s", (json.dumps(state),))

    def claims(self, terms: Sequence[str], keys: Keys) -> Claims:
        claims = np.zeros(len(keys), np.int8)
        statement = (
            "SELECT key, asserted @> %(terms)s FROM {points} WHERE key = ANY(%(keys)s) "
            "AND asserted || denied @> %(terms)s"
        )
        asked = [{"terms": [*terms], "keys": keys.tolist()}] if terms else []
        for rows in self.rows_of(statement, asked):
            claims[np.isin(keys, [key for key, _ in rows])] = Claim.DENIED
            claims[np.isin(keys, [key for key, is_said in rows if is_said])] = Claim.ASSERTED
        return claims
