"""Connections to a Postgres with pgvector, kept for several threads."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any

from boolattn.errors import IndexBusyError, MissingDataError, ServerError
from boolattn.stores.base import one_line

try:
    import psycopg
    from pgvector.psycopg import register_vector
except ImportError as error:
    raise MissingDataError("Postgres needs: pip install 'boolattn[pgvector]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Connection = Any
    Parameters = Sequence[Any] | Mapping[str, Any]

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


@dataclass(eq=False)
class PostgresServer:
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
        with self._slots, one_line(self._label, ERRORS):
            connection = self._idle.pop() if self._idle else self._connect(TIMEOUT)
            try:
                yield connection
            finally:
                if connection.closed:
                    _close_all(self._idle)  # the server was stopped: these broke too
                else:
                    self._idle.append(connection)

    @contextmanager
    def writing(self, table: str, *, is_owner: bool) -> Iterator[Connection]:
        """Yield a new connection that alone may write to a store, for as long as it takes.

        An owner installs pgvector where it is not.
        """
        with one_line(self._label, ERRORS), self._connect(0, is_owner=is_owner) as connection:
            lock = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
            if not connection.execute(lock, (f"boolattn {table}",)).fetchone()[0]:
                raise IndexBusyError(
                    f"{self._label} is being written by another process; wait until it is done"
                )
            yield connection

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
            connection.execute(f"SET statement_timeout = {round(1000 * timeout)}; {_SETTINGS}")
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
    """Return the name of a column, or of a table, perhaps in a schema, as SQL writes it.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'
