"""Connections to a Postgres: kept for several threads, made again where they broke."""

from __future__ import annotations

import re
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from pgvector.psycopg import register_vector

from boolattn.errors import ConfigError, IndexBusyError, ServerError
from boolattn.stores.filters import RANGES, SIGNS, tag_condition
from boolattn.stores.points.database import number_key, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from boolattn.stores.filters import Condition, Filter

    Connection = Any
    Parameters = Sequence[Any] | Mapping[str, Any]

_FORM = "postgresql://[user@]host[:port]/database?table=NAME"
#: A schema may stand before the name. Longer names would be cut, with what is appended to them.
_TABLE, _MAX_NAME = re.compile(r"(?:[\w$-]+\.)?[\w$-]+"), 39
#: Connections of one store; further threads wait for one.
_CONNECTIONS = 4
#: pgvector's limit of the candidates of a graph; beyond it, it goes on searching by itself.
_MAX_CANDIDATES, _MIN_CANDIDATES, _CELLS = 1000, 100, 32
_MAX_VISITED = 100_000
#: Seconds that an answer may take.
TIMEOUT = 30.0


def parse_address(address: str) -> tuple[str, str]:
    """Split the address of a store from its table; refuse one with a password or without a table.

    >>> parse_address("postgresql://me@db/shop?sslmode=require&table=docs")
    ('postgresql://me@db/shop?sslmode=require', 'docs')
    """
    server, _, query = address.partition("?")
    values = dict(parse_qsl(query, keep_blank_values=True))
    if re.search("//[^/]*:[^/]+@", server) or "password" in values:
        raise ConfigError("an address holds no password: set the password in PGPASSWORD")
    table = values.pop("table", "")
    if not server.startswith(("postgresql://", "postgres://")) or not table:
        raise ConfigError(f"a Postgres address is {_FORM}, not {address!r}")
    if not _TABLE.fullmatch(table) or len(table.rpartition(".")[2].encode()) > _MAX_NAME:
        raise ConfigError(
            f"a table's name is made of letters, digits, _, $ and -, at most {_MAX_NAME}, "
            f"not {table!r}"
        )
    rest = urlencode(values, quote_via=quote)
    return server + (f"?{rest}" if rest else ""), table


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
        limits = {
            "hnsw.ef_search": min(_MAX_CANDIDATES, max(effort, _MIN_CANDIDATES)),
            "hnsw.iterative_scan": "relaxed_order",
            "hnsw.max_scan_tuples": _MAX_VISITED,
            "hnsw.scan_mem_multiplier": 4,
            "ivfflat.iterative_scan": "relaxed_order",
            "ivfflat.probes": _CELLS,
        }
        changes = [f"set_config('{name}', '{value}', true)" for name, value in limits.items()]
        with self.connected() as connection, connection.pipeline(), connection.transaction():
            if effort:
                connection.execute(f"SELECT {', '.join(changes)}")
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
                "SET idle_in_transaction_session_timeout = 0; SET client_min_messages = error"
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
