"""Postgres with pgvector: stores, and tables that someone else filled.

A store has tables of points, of terms and of its state; its name is a view that names the tables in
use, ``NAME__…``. An addition is one transaction. Terms are postings, over which BM25+ is added up
with the statistics of the moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Self

import numpy as np

from boolattn.errors import ConfigError, ServerError
from boolattn.files import installed_by
from boolattn.stores.address import parse_postgres
from boolattn.stores.analysis import DELTA, K1, B
from boolattn.stores.base import Array, one_line
from boolattn.stores.filters import Condition, Filter
from boolattn.stores.foreign import COSINE, DOT, Client, Described, Found, Row
from boolattn.stores.points.database import IS_HEAD, VECTOR, WORDS, Database, State
from boolattn.stores.points.postgres_server import (
    ERRORS,
    Connection,
    Parameters,
    PostgresServer,
    Types,
    quoted,
    quoted_table,
    written,
)
from boolattn.stores.settings import HNSW
from boolattn.stores.values import term_index

with installed_by("pgvector", "Postgres"):
    from pgvector import HalfVector, Vector
    from psycopg.errors import UndefinedTable

#: Up to so many selected points are compared one by one, which is exact and as fast.
_FEW = 16_384
#: Largest vectors, in bytes: of a graph, and on a page beside the rest of a row.
_MAX_GRAPH, _MAX_INLINE = 8000, 7500
#: Columns of a point beside its vector: their types, and the categories of these.
_COLUMNS = {"key": ("int8", "N"), "document": ("int8", "N"), "part": ("int4", "N")}
_COLUMNS |= {"version": ("text", "S"), "tags": ("_text", "A"), "numbers": ("jsonb", "U")}
_COLUMNS |= {"asserted": ("_text", "A"), "denied": ("_text", "A"), "n_passages": ("int4", "N")}
_COLUMNS |= {"id": ("json", "U"), "body": ("json", "U")}
#: The collection that a view names; nothing, where there is no such view.
_TARGET = (
    "SELECT substring(pg_get_viewdef(to_regclass(%s)) FROM $$'(.+)'::text AS boolattn_collection$$)"
)
_METRICS = {"cosine": COSINE, "ip": DOT, "l2": "L2 distance"}
#: The columns of a table: type, its category, whether it is the key, how its indexes compare.
_FIELDS = """
    SELECT a.attname, t.typname, t.typcategory,
        coalesce(bool_or(i.indisprimary AND i.indnatts = 1), false),
        array_agg(split_part(o.opcname, '_', 2)) FILTER (WHERE i.indisvalid)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indkey[0] = a.attnum
    LEFT JOIN pg_opclass o ON o.oid = i.indclass[0]
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
    GROUP BY a.attnum, 1, 2, 3 ORDER BY a.attnum"""
_OPERATORS = {COSINE: "<=>", DOT: "<#>"}
#: Any word of a text, as the database's configuration stems it, or as it is.
_ANY_WORD = (
    "replace(plainto_tsquery(%(text)s)::text, $$' & '$$, $$' | '$$)::tsquery || "
    "replace(plainto_tsquery('simple', %(text)s)::text, $$' & '$$, $$' | '$$)::tsquery"
)


class PostgresCollection(Database):
    """A table of a Postgres, or the tables of a store.

    ``{points}`` in a statement stands for the name of the table.
    """

    precisions = ("float32", "float16")
    has_schema = True
    has_text_ids = True  # Postgres makes an id of it
    parse = staticmethod(parse_postgres)
    types: Types = _COLUMNS
    _connection: Connection = None  # the only one that may write, while one does
    _current = ""  # the tables in use, once they are known

    def connect(self, client: Client | str) -> None:
        if not isinstance(client, str):
            raise ConfigError(f"{self.name}: a Postgres is named by its address")
        self._server = PostgresServer(client, self.name)

    @contextmanager
    def writing(self, *, is_build: bool = False) -> Iterator[Self]:
        with self._server.writing(self.alias, is_owner=is_build) as connection:
            other = self.at(self.collection)
            other._connection = connection
            with nullcontext() if is_build else connection.transaction():
                yield other

    def _named(self, statement: str) -> str:
        """Write the names of tables into a statement."""
        table = self.collection
        if table == self.alias and "{" in statement:
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
            if not isinstance(error.__cause__, UndefinedTable) or self.collection != self.alias:
                raise
        self._current = ""  # the store was built anew
        return self._server.search(self._named(statement), asked, effort)

    def describe(self) -> Described:
        [columns], vectors = self.rows_of(_FIELDS, [(self.collection,)]), {}
        for name, kind, *_, indexes in columns:
            if kind in ("vector", "halfvec"):
                source = f"FROM {{points}} WHERE {quoted(name)} IS NOT NULL LIMIT 1"
                [length] = self.rows_of(f"SELECT vector_dims({quoted(name)}) {source}")  # nosec B608
                metrics = [_METRICS[index] for index in indexes or () if index in _METRICS]
                vectors[name] = (length[0][0] if length else 0, [*metrics, COSINE][0])
        types = {name: (kind, category) for name, kind, category, *_ in columns}
        keys = [name for name, *_, is_key, _ in columns if is_key]
        return types, keys, vectors, [name for name, kind, *_ in columns if kind == "tsvector"]

    def get(self, keys: Iterable[Any], *names: str) -> dict[Any, Row]:
        columns = ", ".join(map(quoted, (self.id_field, *(names or self.types))))
        chosen = f"{quoted(self.id_field)} = ANY(%s::{quoted(self.types[self.id_field][0])}[])"
        statement = f"SELECT {columns} FROM {{points}} WHERE {chosen}"  # nosec B608
        [rows] = self.rows_of(statement, [([*map(str, keys)],)])
        return {key: self._row(names or self.types, values) for key, *values in rows}

    def _row(self, names: Iterable[str], values: Iterable[Any]) -> Row:
        row = dict(zip(names, values, strict=True))
        if (vector := row.pop(self.vector_field, None)) is not None:
            row[self.vector_field] = np.asarray(vector.to_numpy(), np.float32)
        return row

    def search(
        self, field: str, queries: Sequence[Any], n: int, where: Filter, *names: str
    ) -> list[list[Found]]:
        test, values = written(where, self.types, self.name)
        if field == self.vector_field:
            answers = self._near(queries, n, test, values, names)
        else:
            answers = (self._worded if self.alias else self._texts)(queries, n, test, values)
        return [[(key, score, self._row(names, row)) for score, key, *row in a] for a in answers]

    def _near(
        self, vectors: Sequence[Array], n: int, test: str, values: Row, names: Sequence[str]
    ) -> list[list[Any]]:
        """Ask the graph; compare all points where a filter leaves few, or the graph finds few."""
        is_exact = bool(self.alias) and self.settings.vectors != HNSW
        if self.alias and values and not is_exact:
            limited = f"(SELECT 1 FROM {{points}} d WHERE {test} LIMIT {_FEW + 1}) AS few"  # nosec B608
            [[(total,)]] = self.rows_of(f"SELECT count(*) FROM {limited}", [values])  # nosec B608
            is_exact = total <= _FEW
        asked = [{**values, "query": Vector(vector)} for vector in vectors]
        column, columns = quoted(self.vector_field), ", ".join(map(quoted, (self.id_field, *names)))
        distance = f"({column} {_OPERATORS[self.metric]} %(query)s::{self.vector_type})"
        select = (
            f"SELECT {int(self.metric == COSINE)} - {distance}, {columns} FROM {{points}} d "  # nosec B608
            f"WHERE {test} AND {column} IS NOT NULL ORDER BY"
        )
        if not is_exact:
            answers = self.rows_of(f"{select} {distance} LIMIT {int(n)}", asked, n)
            if not self.alias or all(len(rows) == n for rows in answers):
                return answers
        # The index is not for a sum.
        return self.rows_of(f"{select} {distance} + 0, d.document LIMIT {int(n)}", asked)

    def _worded(
        self, queries: Sequence[Mapping[int, float]], n: int, test: str, values: Row
    ) -> list[list[Any]]:
        """Add up BM25+ over the postings of the terms."""
        passing, source = "", "asked JOIN {terms} t USING (term)"
        if values:
            # Selected once: few terms have the number of documents that the server expects.
            selected = f"SELECT key FROM {{points}} d WHERE d.part = 0 AND {test}"  # nosec B608
            passing = f", passing AS MATERIALIZED ({selected})"
            source += " JOIN passing ON key = t.document"
        statement = (
            "WITH asked AS MATERIALIZED (SELECT q.term, q.rarity, greatest(s.length::float8 / "  # nosec B608
            "greatest(s.documents, 1), 1) AS mean FROM {state} s, unnest(%(terms)s::bigint[], "
            f"%(rarities)s::float8[]) AS q (term, rarity)){passing} "
            f"SELECT sum(rarity * ({K1 + 1}::float8 * t.count / (t.count + "
            f"{K1}::float8 * ({1 - B} + {B}::float8 * t.length / mean)) + {DELTA})) AS score, "
            f"t.document FROM {source} GROUP BY t.document "
            f"ORDER BY score DESC, t.document LIMIT {int(n)}"
        )
        asked = [{**values, "terms": [*q], "rarities": [*q.values()]} for q in queries]
        return self.rows_of(statement, asked)

    def _texts(self, texts: Sequence[str], n: int, test: str, values: Row) -> list[list[Any]]:
        """Rank rows that have a word of a text by ``ts_rank_cd``."""
        column, key = quoted(self.word_field), quoted(self.id_field)
        statement = (
            f"SELECT ts_rank_cd({column}, boolattn_asked) AS boolattn_score, {key} "  # nosec B608
            f"FROM {{points}} d, (SELECT {_ANY_WORD} AS boolattn_asked) AS boolattn "
            f"WHERE {column} @@ boolattn_asked AND {quoted(self.vector_field)} IS NOT NULL "
            f"AND {test} ORDER BY boolattn_score DESC, {key} LIMIT {int(n)}"
        )
        return self.rows_of(statement, [{**values, "text": text} for text in texts])

    def target(self) -> str:
        [[(name,)]] = self.rows_of(_TARGET, [(quoted_table(self.alias),)])
        return name or ""

    def names(self) -> list[str]:
        schema, dot, _ = self.alias.rpartition(".")
        statement = (
            "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE "
            "nspname = coalesce(nullif(%s, ''), current_schema())"
        )
        return [schema + dot + name for (name,) in self._execute(statement, (schema,))]

    def create_collection(self) -> None:
        dimension = self.settings.dimension
        n_bytes = dimension * (2 if self.vector_type == "halfvec" else 4)
        if self.settings.vectors == HNSW and n_bytes > _MAX_GRAPH:
            limits = f"vectors of 2000 dimensions, of 4000 in float16, not {dimension}"
            raise ConfigError(f"pgvector's graph takes {limits}: use --vectors exact")
        columns = [f"{name} {kind} NOT NULL" for name, (kind, _) in _COLUMNS.items()]
        columns.append(f"vector {self.vector_type}({dimension}) NOT NULL")
        # Plain vectors are read without a detour by searches that compare every row.
        storage = "PLAIN" if n_bytes <= _MAX_INLINE else "EXTERNAL"
        self._execute(
            f"CREATE TABLE {{points}} ({', '.join(columns)}, PRIMARY KEY (key)); "  # nosec B608
            f"ALTER TABLE {{points}} ALTER vector SET STORAGE {storage}; "
            "CREATE INDEX ON {points} (document); "
            "CREATE TABLE {terms} (term bigint, document bigint, count int, length int); "
            "CREATE INDEX ON {terms} (document); "
            "CREATE TABLE {state} (body json, documents bigint, length bigint); "
            "INSERT INTO {state} VALUES ('{}', 0, 0)"
        )

    @property
    def vector_type(self) -> str:
        """The type of the vectors."""
        if not self.alias:
            return self.types[self.vector_field][0]
        return "halfvec" if self.settings.precision == "float16" else "vector"

    def finish(self) -> None:
        indexes = ["{terms} (term, document) INCLUDE (count, length)"]
        indexes += ["{points} USING gin (tags)", "{points} USING gin (asserted)"]
        if self.settings.vectors == HNSW:
            graph = f"hnsw (vector {self.vector_type}_ip_ops) WITH (m = 32, ef_construction = 80)"
            indexes.append(f"{{points}} USING {graph}")
        for number, index in enumerate(indexes):
            name = quoted(f"{self.collection.rpartition('.')[2]}_{number}")
            self._execute(f"CREATE INDEX IF NOT EXISTS {name} ON {index}")
        for table in ("{points}", "{terms}"):
            self._execute(f"VACUUM ANALYZE {table}")

    def switch(self, old: str) -> None:
        view, value = quoted_table(self.alias), f"'{self.collection}'::text AS boolattn_collection"
        self._execute(f"CREATE OR REPLACE VIEW {view} AS SELECT {value}")

    def drop(self, collection: str) -> None:
        # Each by itself: a search that waits for one table may have read another.
        with one_line(self.name, ERRORS):
            for table in ("{points}", "{terms}", "{state}"):
                self.at(collection)._execute(f"DROP TABLE IF EXISTS {table}")

    def insert(self, points: list[Row]) -> None:
        make = HalfVector if self.vector_type == "halfvec" else Vector
        rows, terms, lengths = [], [], [sum(point[WORDS].values()) for point in points]
        for point, length in zip(points, lengths, strict=True):
            row = point | {name: json.dumps(point[name]) for name in ("id", "numbers")}
            rows.append([*(row[name] for name in _COLUMNS), make(point[VECTOR])])
            terms += [(term, row["key"], count, length) for term, count in row[WORDS].items()]
        with self._connection.transaction(), self._connection.cursor() as cursor:
            self.remove(Condition("key", "in", (*(point["key"] for point in points),)))
            values = ", ".join(["%s"] * len(_COLUMNS))
            cursor.executemany(self._named(f"INSERT INTO {{points}} VALUES ({values}, %b)"), rows)  # nosec B608
            lists = "%s::bigint[], %s::bigint[], %s::int[], %s::int[]"
            columns = [*map(list, zip(*terms, strict=True))] or [[]] * 4
            self._execute(f"INSERT INTO {{terms}} SELECT * FROM unnest({lists})", columns)  # nosec B608
            totals = (sum(not point["part"] for point in points), sum(lengths))
            change = "UPDATE {state} SET documents = documents + %s, length = length + %s"
            self._execute(change, totals)

    def remove(self, *conditions: Condition) -> None:
        test, values = written(Filter(conditions), self.types, self.name)
        self._execute(
            f"WITH gone AS (DELETE FROM {{points}} d WHERE {test} RETURNING key, part), words AS "  # nosec B608
            "(DELETE FROM {terms} t USING gone WHERE t.document = gone.key RETURNING count) "
            "UPDATE {state} SET documents = documents - (SELECT count(*) FROM gone WHERE part = 0),"
            " length = length - (SELECT coalesce(sum(count), 0) FROM words)",
            values,
        )

    def count(self, where: Filter) -> int:
        test, values = written(where, self.types, self.name)
        statement = f"SELECT count(*) FROM {{points}} d WHERE {test}"  # nosec B608
        if where == Filter((IS_HEAD,)):
            statement = "SELECT documents FROM {state}"
        [rows] = self.rows_of(statement, [values])
        return sum(number for (number,) in rows)

    def frequency(self, term: str) -> int:
        statement = "SELECT count(*) FROM {terms} WHERE term = %s"
        [[(number,)]] = self.rows_of(statement, [(term_index(term),)])
        return int(number)

    def select(self, where: Filter, n: int) -> list[int]:
        test, values = written(where, self.types, self.name)
        ordered = f"WHERE {test} ORDER BY d.key LIMIT {int(n)}"
        [rows] = self.rows_of(f"SELECT d.key FROM {{points}} d {ordered}", [values])  # nosec B608
        return [key for (key,) in rows]

    def state(self) -> object:
        self._current = ""  # another process may have built the store anew
        [rows] = self.rows_of("SELECT body FROM {state}")
        return rows[0][0] if rows else None

    def write_state(self, state: State) -> None:
        self._execute("UPDATE {state} SET body = %s", (json.dumps(state),))

    def scores(self, vectors: Array, keys: Iterable[int]) -> dict[int, Array]:
        """Compare on the server, which would else send vectors."""
        columns = ", ".join(len(vectors) * [f"max(-(vector <#> %s::{self.vector_type}))"])
        statement = (
            f"SELECT document, {columns} FROM {{points}} WHERE document = ANY(%s) "  # nosec B608
            "GROUP BY document"
        )
        [rows] = self.rows_of(statement, [(*map(Vector, vectors), [*keys])])
        return {row[0]: np.array(row[1:], np.float32) for row in rows}
