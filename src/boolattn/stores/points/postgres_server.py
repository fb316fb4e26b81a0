"""Connections to a Postgres with pgvector, kept for several threads, and conditions in SQL."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Any

from boolattn.errors import QueryError, ServerError
from boolattn.files import installed_by
from boolattn.stores.base import one_line
from boolattn.stores.filters import RANGES, SIGNS, Condition, Filter, of_type
from boolattn.stores.points.database import LACKS, expression
from boolattn.stores.settings import busy

with installed_by("pgvector", "Postgres"):
    import psycopg
    from pgvector.psycopg import register_vector

Connection = Any
Parameters = Sequence[Any] | Mapping[str, Any]
Types = Mapping[str, tuple[str, str]]  # type and category of each column

#: Connections of one store; further threads wait for one.
_CONNECTIONS = 4
#: pgvector's limit of the candidates of a graph; beyond it, it goes on searching by itself.
_MAX_CANDIDATES, _MIN_CANDIDATES = 1000, 100
#: A plan for any value does not know how many rows a filter selects, and to compile one takes
#: longer than it saves.
_SETTINGS = (
    "SET jit = off; SET plan_cache_mode = force_custom_plan; SET lock_timeout = '60s'; "
    "SET idle_in_transaction_session_timeout = 0; SET client_min_messages = error; "
    "SET hnsw.iterative_scan = relaxed_order; SET hnsw.max_scan_tuples = 100000; "
    "SET hnsw.scan_mem_multiplier = 4; "
    "SET ivfflat.iterative_scan = relaxed_order; SET ivfflat.probes = 32"
)
#: Seconds that an answer may take.
TIMEOUT = 30.0
ERRORS = (psycopg.Error, UnicodeEncodeError)


class PostgresServer:
    """A few connections to a Postgres, by an address as libpq takes it.

    Errors become one line, which a label begins.
    """

    def __init__(self, address: str, label: str) -> None:
        self._address, self._label = address, label
        self._slots = BoundedSemaphore(_CONNECTIONS)
        self._idle: list[Connection] = []
        # Else a connection that is not closed warns of it.
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def writing(self, table: str, *, is_owner: bool) -> Iterator[Connection]:
        """Yield a new connection that alone may write to a store, for as long as it takes.

        An owner installs pgvector where it is not.
        """
        with one_line(self._label, ERRORS), self._connect(0, is_owner=is_owner) as connection:
            lock = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
            if not connection.execute(lock, (f"boolattn {table}",)).fetchone()[0]:
                raise busy(self._label)
            yield connection

    def search(
        self, statement: str, asked: Sequence[Parameters], effort: int = 0
    ) -> list[list[Any]]:
        """Run a statement with several lists of values in one round trip.

        The effort is the number of rows that a graph visits; 0: no graph is asked. Where all
        connections are in use, wait for one.
        """
        n_candidates = min(_MAX_CANDIDATES, max(effort, _MIN_CANDIDATES))
        with self._slots, one_line(self._label, ERRORS):
            connection = self._idle.pop() if self._idle else self._connect(TIMEOUT)
            try:
                with connection.pipeline(), connection.transaction():
                    if effort:
                        connection.execute(f"SET LOCAL hnsw.ef_search = {n_candidates}")
                    runs = [connection.execute(statement, values, binary=True) for values in asked]
                    return [cursor.fetchall() for cursor in runs]
            finally:
                if connection.closed:
                    _close_all(self._idle)  # the server was stopped: these broke too
                else:
                    self._idle.append(connection)

    def _connect(self, timeout: float, *, is_owner: bool = False) -> Connection:
        connection = psycopg.connect(
            self._address,
            autocommit=True,
            connect_timeout=max(1, round(TIMEOUT)),
            tcp_user_timeout=round(1000 * TIMEOUT),
        )
        try:
            connection.execute(f"SET statement_timeout = {round(1000 * timeout)}; {_SETTINGS}")
            if is_owner:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            elif connection.execute("SELECT to_regtype('vector')").fetchone()[0] is None:
                reason = "the database has no type vector; CREATE EXTENSION vector"
                raise ServerError(f"{self._label}: {reason}")
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


def written(where: Filter, types: Types, label: str) -> tuple[str, dict[str, Any]]:
    """Write a filter of a table that is called d; return it with its values."""
    values: dict[str, Any] = {}

    def add(value: object) -> str:
        values[f"value{len(values)}"] = value
        return f"%(value{len(values) - 1})s"

    return expression(where, lambda c: _test(c, types, label, add)) or "true", values


def _test(condition: Condition, types: Types, label: str, add: Callable[[object], str]) -> str:
    """Write a condition on a column, or on a value inside a column of JSON."""
    name, kind = condition.name, condition.kind
    column, _, path = name.partition(".")
    is_json = name not in types and types.get(column, ("",))[0] in ("json", "jsonb")
    if name not in types and not is_json:
        raise QueryError(f"{label} has no column {name!r}; there are: {', '.join(types)}")
    category = types.get(name, ("", "S"))[1]
    wanted = of_type(condition.values, is_text=category != "N")
    value = f"(d.{quoted(column)} #>> {add(path.split('.'))})" if is_json else quoted(name)
    if kind in RANGES:
        cast = "::numeric" if is_json and not isinstance(wanted[0], str) else ""
        test = f"{value}{cast} {SIGNS[kind]} {add(wanted[0])}"
    elif kind == "exists":
        test = f"{value} IS {'NOT ' if wanted[0] else ''}NULL"
    elif kind == LACKS:
        # A join, for which the index of terms is used; a negated test would read every list.
        asserting = f"x.{value} @> {add(wanted)}::text[]"
        return f"NOT EXISTS (SELECT 1 FROM {{points}} x WHERE x.key = d.document AND {asserting})"  # nosec B608
    elif category == "A":
        test = f"{value} && {add(wanted)}"
    else:
        texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in wanted]
        test = f"{value} = ANY({add(texts if is_json else wanted)})"
    return f"({test})" if (kind == "not") == condition.is_negated else f"({test}) IS NOT TRUE"
