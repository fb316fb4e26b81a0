"""Connections to a Postgres, kept for several threads, and external tables of it.

A table has a column of pgvector's, exact or with an HNSW or IVFFlat index.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any

import psycopg
from pgvector import HalfVector, Vector
from pgvector.psycopg import register_vector
from psycopg.rows import dict_row

from boolattn.errors import ConfigError, IndexBusyError, QueryError, ServerError
from boolattn.settings import checked
from boolattn.stores.base import one_line
from boolattn.stores.filters import RANGES, SIGNS, of_type, tag_condition
from boolattn.stores.foreign import COSINE, DOT, Collection
from boolattn.stores.values import number_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from boolattn.stores.filters import Condition, Filter
    from boolattn.stores.foreign import Array, Conditions, Row, Scored, Vectors

    Connection = Any
    Parameters = Sequence[Any] | Mapping[str, Any]
    #: Type and category of each column.
    Types = Mapping[str, tuple[str, str]]

#: Connections of one store; further threads wait for one.
_CONNECTIONS = 4
#: pgvector's limit of the candidates of a graph; beyond it, it goes on searching by itself.
_MAX_CANDIDATES, _MIN_CANDIDATES = 1000, 100
_SCAN = (
    "SET hnsw.iterative_scan = relaxed_order; SET hnsw.max_scan_tuples = 100000; "
    "SET hnsw.scan_mem_multiplier = 4; "
    "SET ivfflat.iterative_scan = relaxed_order; SET ivfflat.probes = 32"
)
#: Seconds that an answer may take.
TIMEOUT = 30.0
_OPERATORS = {COSINE: "<=>", DOT: "<#>"}
_CLASSES = {"cosine_ops": COSINE, "ip_ops": DOT, "l2_ops": "L2 distance"}
_TYPES = ("vector", "halfvec")
#: Any word of a text, as the database's configuration stems it, or as it is.
_ANY_WORD = (
    "replace(plainto_tsquery(%s)::text, $$' & '$$, $$' | '$$)::tsquery || "
    "replace(plainto_tsquery('simple', %s)::text, $$' & '$$, $$' | '$$)::tsquery"
)
_COLUMNS = """
    SELECT a.attname, t.typname, t.typcategory, coalesce(i.indisprimary, false)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND i.indnatts = 1
        AND a.attnum = i.indkey[0]
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped"""
_INDEXES = """
    SELECT o.opcname FROM pg_index i JOIN pg_opclass o ON o.oid = i.indclass[0]
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = %s::regclass AND a.attname = %s AND i.indisvalid"""


@dataclass(eq=False)
class Database:
    """A few connections to a Postgres; errors become one line."""

    _address: str  # as libpq takes it
    _label: str  # says in errors what is asked for

    def __post_init__(self) -> None:
        self._slots = BoundedSemaphore(_CONNECTIONS)
        self._idle: list[Connection] = []
        # Else a connection that is not closed warns of it.
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Lend a connection; where all are lent, wait for one."""
        with self._slots, one_line(self._label, (psycopg.Error, UnicodeEncodeError)):
            connection = self._idle.pop() if self._idle else self._connect(TIMEOUT)
            try:
                yield connection
            finally:
                if connection.closed:
                    _close_all(self._idle)  # the server was stopped: these broke too
                else:
                    self._idle.append(connection)

    @contextmanager
    def writing(self, table: str, *, is_owner: bool = False) -> Iterator[Connection]:
        """Yield a new connection that alone may write to a store, for as long as it takes.

        An owner installs pgvector where it is not.
        """
        with one_line(self._label, (psycopg.Error, UnicodeEncodeError)):
            connection = self._connect(0, is_owner=is_owner)
            try:
                lock = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
                if not connection.execute(lock, (f"boolattn {table}",)).fetchone()[0]:
                    raise IndexBusyError(
                        f"{self._label} is being written by another process; wait until it is done"
                    )
                yield connection
            finally:
                connection.close()

    def search(
        self, statement: str, asked: Sequence[Parameters], effort: int = 0
    ) -> list[list[Any]]:
        """Run a statement with several lists of values in one round trip.

        The effort is the number of rows that a graph visits; 0: no graph is asked.
        """
        n_candidates = min(_MAX_CANDIDATES, max(effort, _MIN_CANDIDATES))
        with self.connected() as connection, connection.pipeline(), connection.transaction():
            if effort:
                connection.execute(f"SET LOCAL hnsw.ef_search = {n_candidates}")
            cursors = [connection.execute(statement, values, binary=True) for values in asked]
            return [cursor.fetchall() for cursor in cursors]

    def _connect(self, timeout: float, *, is_owner: bool = False) -> Connection:
        connection = psycopg.connect(
            self._address,
            autocommit=True,
            connect_timeout=max(1, round(TIMEOUT)),
            tcp_user_timeout=round(1000 * TIMEOUT),
        )
        try:
            # A plan for any value does not know how many rows a filter selects, and to compile one
            # takes longer than it saves.
            connection.execute(
                f"SET statement_timeout = {round(1000 * timeout)}; SET jit = off; "
                "SET plan_cache_mode = force_custom_plan; SET lock_timeout = '60s'; "
                "SET idle_in_transaction_session_timeout = 0; SET client_min_messages = error; "
                f"{_SCAN}"
            )
            if is_owner:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            elif connection.execute("SELECT to_regtype('vector')").fetchone()[0] is None:
                raise ServerError(
                    f"{self._label}: the database has no type vector; CREATE EXTENSION vector"
                )
            register_vector(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


def quoted(name: str) -> str:
    """Return a name as SQL writes it.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def quoted_table(name: str) -> str:
    """Return the name of a table, perhaps in a schema, as SQL writes it."""
    return ".".join(map(quoted, name.split(".")))


class PostgresCollection(Collection):
    """A table as it is.

    Args:
        address: ``postgresql://…``, or any connection string of libpq.
        table: Its name, with a schema if needed: ``public.items``.
        vector: The column with the vectors; left out, the only one of type vector or halfvec.
        id: The column with the ids; left out, the primary key.
        words: The column of type tsvector; left out, the only one, if there is one.
        metric: Left out, that of the column's index; without one, cosine.
    """

    @checked
    def __init__(  # noqa: PLR0913 - what a table may call its own
        self,
        address: str,
        table: str,
        *,
        vector: str = "",
        id: str = "",
        text: str = "",
        title: str = "title",
        words: str = "",
        metric: str = "",
    ) -> None:
        self.name, self.text, self.title = f"Postgres ({table})", text, title
        self._database, self._source = Database(address, self.name), quoted_table(table)
        with self._database.connected() as connection:
            columns = connection.execute(_COLUMNS, (table,)).fetchall()
            self._types = {name: (kind, category) for name, kind, category, _ in columns}
            vectors = [name for name, kind, *_ in columns if kind in _TYPES]
            self._vector = self.choose("vector", vector, vectors)
            keys = [name for name, *_, is_key in columns if is_key]
            self._id = self.choose("id", id, self._types if id else keys)
            indexes = connection.execute(_INDEXES, (table, self._vector)).fetchall()
            column = quoted(self._vector)
            lengths = f"SELECT vector_dims({column}) FROM {self._source} WHERE {column} IS NOT NULL"  # nosec B608
            length = connection.execute(f"{lengths} LIMIT 1", ()).fetchone()
        if length is None:
            raise ConfigError(f"{self.name}: no row has a vector in {self._vector!r}")
        [self.dimension] = length
        texts = [name for name, kind, *_ in columns if kind == "tsvector"]
        self._words = self.choose("words", words, texts) if words or len(texts) == 1 else ""
        self.has_words = bool(self._words)
        names = [c.removeprefix("vector_").removeprefix("halfvec_") for (c,) in indexes]
        indexed = [_CLASSES[name] for name in names if name in _CLASSES]
        self.metric = metric or (indexed[0] if indexed else COSINE)

    def nearest(self, queries: Array, n: int, conditions: Conditions = ()) -> list[Vectors]:
        kind = HalfVector if self._types[self._vector][0] == "halfvec" else Vector
        where, values = self._condition(conditions)
        column = quoted(self._vector)
        statement = (
            f"SELECT {quoted(self._id)}, {column} FROM {self._source} WHERE {where} "  # nosec B608
            f"ORDER BY {column} {_OPERATORS[self.metric]} %s LIMIT {int(n)}"
        )
        answers = self._database.search(statement, [(*values, kind(query)) for query in queries], n)
        return [_vectors(rows) for rows in answers]

    def words(self, texts: Sequence[str], n: int, conditions: Conditions = ()) -> list[Scored]:
        """Rank rows that have a word of a text by ``ts_rank_cd``, all texts in one round trip."""
        where, values = self._condition(conditions)
        column, key = quoted(self._words), quoted(self._id)
        statement = (
            f"SELECT {key}, ts_rank_cd({column}, boolattn_asked) AS boolattn_score "  # nosec B608
            f"FROM {self._source}, (SELECT {_ANY_WORD} AS boolattn_asked) AS boolattn "
            f"WHERE {column} @@ boolattn_asked AND {where} "
            f"ORDER BY boolattn_score DESC, {key} LIMIT {int(n)}"
        )
        answers = self._database.search(statement, [(text, text, *values) for text in texts])
        return [([row[0] for row in rows], [row[1] for row in rows]) for rows in answers]

    def vectors(self, ids: Sequence[Any]) -> Vectors:
        statement = (
            f"SELECT {quoted(self._id)}, {quoted(self._vector)} FROM {self._source} "  # nosec B608
            f"WHERE {self._is_known} AND {quoted(self._vector)} IS NOT NULL"
        )
        [rows] = self._database.search(statement, [([*map(str, ids)],)])
        return _vectors(rows)

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        hidden = (self._vector, self._words)
        names = [quoted(name) for name in self._types if name not in hidden]
        statement = f"SELECT {', '.join(names)} FROM {self._source} WHERE {self._is_known}"  # nosec B608
        with self._database.connected() as connection:
            cursor = connection.cursor(row_factory=dict_row).execute(statement, ([*map(str, ids)],))
            return {row[self._id]: row for row in cursor.fetchall()}

    def key(self, text: str) -> str:
        """Return the text: Postgres makes an id of it."""
        return text

    @property
    def _is_known(self) -> str:
        return f"{quoted(self._id)} = ANY(%s::{quoted(self._types[self._id][0])}[])"

    def _condition(self, conditions: Conditions) -> tuple[str, list[Any]]:
        tests, values = [f"{quoted(self._vector)} IS NOT NULL"], list[Any]()
        for condition in conditions:
            test, compared = compare(condition, self._types, self.name)
            tests.append(f"({test}) IS NOT TRUE" if condition.is_negated else test)
            values += compared
        return " AND ".join(tests), values


def _vectors(rows: Sequence[Any]) -> Vectors:
    return {name: vector.to_numpy() for name, vector in rows}


def compare(condition: Condition, types: Types, where: str) -> tuple[str, list[Any]]:
    """Write a condition on a column, or on a value inside a column of JSON."""
    name, kind = condition.name, condition.kind
    column, _, path = name.partition(".")
    is_json = name not in types and types.get(column, ("",))[0] in ("json", "jsonb")
    if name not in types and not is_json:
        raise QueryError(f"{where} has no column {name!r}; there are: {', '.join(types)}")
    wanted = of_type(condition.values, is_text=types.get(name, ("", "S"))[1] != "N")
    value, before = quoted(name), list[Any]()
    if is_json:
        value, before = f"({quoted(column)} #>> %s)", [path.split(".")]
    if kind in RANGES:
        cast = "::numeric" if is_json and not isinstance(wanted[0], str) else ""
        return f"{value}{cast} {SIGNS[kind]} %s", [*before, wanted[0]]
    if kind == "exists":
        return f"{value} IS {'NOT ' if wanted[0] else ''}NULL", before
    if is_json:
        wanted = [str(v).lower() if isinstance(v, bool) else str(v) for v in wanted]
    is_list = not is_json and types[name][1] == "A"
    test = f"{value} && %s" if is_list else f"{value} = ANY(%s)"
    return (f"({test}) IS NOT TRUE" if kind == "not" else test), [*before, wanted]


def filter_test(where: Filter) -> tuple[str, dict[str, Any]]:
    """Write a filter on points, which are called d; return it with its values."""
    values: dict[str, Any] = {}

    def add(value: object) -> str:
        values[f"value{len(values)}"] = value
        return f"%(value{len(values) - 1})s"

    tests = [_test(condition, add) for condition in where.conditions]
    if where.alternatives:
        either = [[_test(c, add) for c in conditions] for conditions in where.alternatives]
        tests.append(f"({' OR '.join(' AND '.join(both) for both in either)})")
    if where.without:
        tests.append(f"d.document <> ALL({add([*where.without])}::bigint[])")
    for terms in filter(None, where.lacking):
        # A join, for which the index of terms is used; a negated test would read every list.
        asserting = f"x.asserted @> {add([*terms])}::text[]"
        selected = f"SELECT 1 FROM {{points}} x WHERE x.key = d.document AND {asserting}"  # nosec B608
        tests.append(f"NOT EXISTS ({selected})")
    return " AND ".join(tests) or "true", values


def _test(condition: Condition, add: Callable[[object], str]) -> str:
    kind = condition.kind
    if kind in RANGES:
        number = add(number_key(condition.number))
        limit = add(float(condition.values[0]))
        test = f"(d.numbers ->> {number}::text)::float8 {SIGNS[kind]} {limit}::float8"
        return f"({test}) IS NOT TRUE" if condition.is_negated else f"({test})"
    tags, is_wanted = tag_condition(condition)
    test = f"d.tags && {add([*tags])}::text[]"
    return test if is_wanted else f"NOT ({test})"
