"""A Postgres table with a pgvector column, exact or with an HNSW or IVFFlat index."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError, MissingDataError, QueryError, ServerError
from boolattn.search.filters import RANGES, SIGNS, of_type
from boolattn.search.stores.base import COSINE, DOT, L2, Neighbours, Store, as_array, check_metric
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from boolattn.search.filters import Condition
    from boolattn.search.stores.base import Array, Row

    Connection = Any
    #: Type and category of each column.
    Types = Mapping[str, tuple[str, str]]

_OPERATORS = {COSINE: "<=>", DOT: "<#>", L2: "<->"}
_CLASSES = {"cosine_ops": COSINE, "ip_ops": DOT, "l2_ops": L2}
_TYPES = ("vector", "halfvec")
#: pgvector's own limit of the candidates of a graph; beyond it, it goes on searching by itself.
_MOST_CANDIDATES, _LEAST_CANDIDATES, _CELLS = 1000, 100, 32
_COLUMNS = """
    SELECT a.attname, t.typname, a.atttypmod, t.typcategory, coalesce(i.indisprimary, false)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND i.indnatts = 1
        AND a.attnum = i.indkey[0]
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped"""
_INDEXES = """
    SELECT o.opcname FROM pg_index i JOIN pg_opclass o ON o.oid = i.indclass[0]
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = %s::regclass AND a.attname = %s AND i.indisvalid"""


class PostgresStore(Store):
    """A table as it is.

    Args:
        address: ``postgresql://…``, or any connection string of libpq.
        table: Its name, with a schema if needed: ``public.items``.
        vector: The column with the vectors; left out, the only one of type vector or halfvec.
        id: The column with the ids; left out, the primary key.
        text: The column with the text.
        title: The column with the title.
        metric: Left out, that of the column's index; without one, cosine.
        where: A condition in SQL that every row must meet.
        timeout: Seconds that an answer may take.
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
        metric: str = "",
        where: str = "",
        timeout: float = 30.0,
    ) -> None:
        self.name, self.text, self.title = f"Postgres ({table})", text, title
        self._database = Database(address, self.name, timeout)
        self._table, self._where = table, where
        with self._database.connected() as connection:
            columns = connection.execute(_COLUMNS, (table,)).fetchall()
            self._types = {name: (kind, category) for name, kind, _, category, _ in columns}
            lengths = {name: length for name, kind, length, *_ in columns if kind in _TYPES}
            self._vector = self._only("vector", vector, list(lengths))
            self._id = self._only("id", id, [name for name, *_, is_key in columns if is_key])
            found = connection.execute(_INDEXES, (table, self._vector)).fetchall()
            self.dimension = lengths.get(self._vector, -1)
            if self.dimension < 1:
                self.dimension = self._length(connection)
        names = [c.removeprefix("vector_").removeprefix("halfvec_") for (c,) in found]
        indexed = [_CLASSES[name] for name in names if name in _CLASSES]
        self.metric = check_metric(self.name, metric or (indexed[0] if indexed else COSINE))

    def nearest(
        self, queries: Array, n: int, conditions: Sequence[Condition] = ()
    ) -> list[Neighbours]:
        """Search the table, all queries in one round trip."""
        from pgvector import HalfVector, Vector

        kind = HalfVector if self._types[self._vector][0] == "halfvec" else Vector
        where, values = self._condition(conditions)
        column = quoted(self._vector)
        statement = (
            f"SELECT {quoted(self._id)}, {column} FROM {self._source} WHERE {where} "  # nosec B608
            f"ORDER BY {column} {_OPERATORS[self.metric]} %s LIMIT {int(n)}"
        )
        found = self._database.search(statement, [(*values, kind(query)) for query in queries], n)
        return [
            Neighbours([row[0] for row in rows], self._array([row[1] for row in rows]))
            for rows in found
        ]

    def vectors(self, ids: Sequence[Any]) -> dict[Any, Array]:
        """Return vectors by id; those of rows without one are absent."""
        statement = (
            f"SELECT {quoted(self._id)}, {quoted(self._vector)} FROM {self._source} "  # nosec B608
            f"WHERE {self._is_known} AND {quoted(self._vector)} IS NOT NULL"
        )
        with self._database.connected() as connection:
            found = connection.cursor(binary=True).execute(statement, (list(ids),)).fetchall()
        return dict(zip([row[0] for row in found], self._array([r[1] for r in found]), strict=True))

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        """Return all other columns by id."""
        from psycopg.rows import dict_row

        names = [quoted(name) for name in self._types if name != self._vector]
        statement = f"SELECT {', '.join(names)} FROM {self._source} WHERE {self._is_known}"  # nosec B608
        with self._database.connected() as connection:
            cursor = connection.cursor(row_factory=dict_row).execute(statement, (list(ids),))
            return {row[self._id]: row for row in cursor.fetchall()}

    def key(self, text: str) -> str:
        """Return the text: Postgres makes an id of it."""
        return text

    @property
    def _is_known(self) -> str:
        return f"{quoted(self._id)} = ANY(%s::{quoted(self._types[self._id][0])}[])"

    @property
    def _source(self) -> str:
        return ".".join(map(quoted, self._table.split(".")))

    def _array(self, vectors: Sequence[Any]) -> Array:
        return as_array([vector.to_numpy() for vector in vectors], self.dimension)

    def _length(self, connection: Connection) -> int:
        column = quoted(self._vector)
        statement = f"SELECT vector_dims({column}) FROM {self._source} WHERE {column} IS NOT NULL"  # nosec B608
        row = connection.execute(f"{statement} LIMIT 1").fetchone()
        if row is None:
            raise ConfigError(f"{self.name}: no row has a vector in {self._vector!r}")
        return int(row[0])

    def _only(self, what: str, given: str, found: list[str]) -> str:
        names = list(self._types) if what == "id" else found
        if given and given in names:
            return given
        if given or len(found) != 1:
            shown = ", ".join(names) or "none"
            wanted = f"no column {given!r} of this kind" if given else "not one column of this kind"
            raise ConfigError(f"{self.name}: {what}={given!r}: {wanted}; there are: {shown}")
        return found[0]

    def _condition(self, conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
        parts, values = [f"{quoted(self._vector)} IS NOT NULL"], list[Any]()
        if self._where:
            parts.append(f"({self._where.replace('%', '%%')})")
        for condition in conditions:
            part, own = compare(condition, self._types, self.name)
            parts.append(f"({part}) IS NOT TRUE" if condition.is_negated else part)
            values += own
        return " AND ".join(parts), values


class Database:
    """One connection to a Postgres, made again where it broke; errors become one line.

    ``name`` says in them what is asked for. An owner installs pgvector where it is not.
    """

    def __init__(
        self, address: str, name: str, timeout: float = 30.0, *, is_owner: bool = False
    ) -> None:
        self._address, self._name, self._timeout = address, name, timeout
        self._is_owner, self._lock = is_owner, Lock()
        self._connection: Connection = None

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Yield the connection; others wait."""
        try:
            import psycopg
            from pgvector.psycopg import register_vector
        except ImportError as error:
            raise MissingDataError("Postgres needs: pip install 'boolattn[pgvector]'") from error
        try:
            with self._lock:
                if self._connection is None or self._connection.closed:
                    self._connection = psycopg.connect(
                        self._address,
                        autocommit=True,
                        connect_timeout=max(1, round(self._timeout)),
                        options=f"-c statement_timeout={round(1000 * self._timeout)}",
                    )
                    # Else a connection that is not closed warns of it.
                    weakref.finalize(self, self._connection.close)
                    if self._is_owner:
                        self._connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                    register_vector(self._connection)
                yield self._connection
        except psycopg.Error as error:
            text = " ".join(str(error).split())[:300]
            hint = "; CREATE EXTENSION vector" if "type not found" in text else ""
            raise ServerError(f"{self._name}: {text}{hint}") from error

    def search(
        self, statement: str, asked: Sequence[Any], effort: int, *, uses_index: bool = True
    ) -> list[list[Any]]:
        """Run a statement with several lists of values in one round trip.

        The effort is the number of rows that a graph visits.
        """
        effort = min(_MOST_CANDIDATES, max(effort, _LEAST_CANDIDATES))
        with self.connected() as connection, connection.pipeline(), connection.transaction():
            connection.execute(
                f"SELECT set_config('hnsw.ef_search', '{effort}', true), "
                "set_config('hnsw.iterative_scan', 'relaxed_order', true), "
                "set_config('ivfflat.iterative_scan', 'relaxed_order', true), "
                f"set_config('ivfflat.probes', '{_CELLS}', true)"
            )
            if not uses_index:
                connection.execute("SET LOCAL enable_indexscan = off")
            cursors = [connection.execute(statement, values, binary=True) for values in asked]
            return [cursor.fetchall() for cursor in cursors]


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def compare(condition: Condition, types: Types, where: str) -> tuple[str, list[Any]]:
    """Write a condition on a column, or on a value inside a column of JSON."""
    name, kind = condition.name, condition.kind
    column, _, path = name.partition(".")
    is_json = name not in types and types.get(column, ("",))[0] in ("json", "jsonb")
    if name not in types and not is_json:
        raise QueryError(f"{where} has no column {name!r}; there are: {', '.join(types)}")
    given = of_type(condition.values, is_text=types.get(name, ("", "S"))[1] != "N")
    own, before = quoted(name), list[Any]()
    if is_json:
        own, before = f"({quoted(column)} #>> %s)", [path.split(".")]
    if kind in RANGES:
        cast = "::numeric" if is_json and not isinstance(given[0], str) else ""
        return f"{own}{cast} {SIGNS[kind]} %s", [*before, given[0]]
    if kind == "exists":
        return f"{own} IS {'NOT ' if given[0] else ''}NULL", before
    if kind == "contains":
        part = "".join(f"\\{c}" if c in "\\%_" else c for c in str(given[0]))
        return f"{own}::text ILIKE %s", [*before, f"%{part}%"]
    if is_json:
        given = [str(v).lower() if isinstance(v, bool) else str(v) for v in given]
    is_list = not is_json and types[name][1] == "A"
    test = f"{own} && %s" if is_list else f"{own} = ANY(%s)"
    return (f"({test}) IS NOT TRUE" if kind == "not" else test), [*before, given]
