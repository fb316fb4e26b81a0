"""A Postgres table with a pgvector column, exact or with an HNSW or IVFFlat index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgvector import HalfVector, Vector
from psycopg.rows import dict_row

from boolattn.errors import ConfigError, QueryError
from boolattn.settings import checked
from boolattn.stores.filters import RANGES, SIGNS, of_type
from boolattn.stores.foreign import COSINE, DOT, Collection
from boolattn.stores.postgres.database import Database, quoted, quoted_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.stores.filters import Condition
    from boolattn.stores.foreign import Array, Row, Scored, Vectors

    #: Type and category of each column.
    Types = Mapping[str, tuple[str, str]]

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

    def nearest(
        self, queries: Array, n: int, conditions: Sequence[Condition] = ()
    ) -> list[Vectors]:
        kind = HalfVector if self._types[self._vector][0] == "halfvec" else Vector
        where, values = self._condition(conditions)
        column = quoted(self._vector)
        statement = (
            f"SELECT {quoted(self._id)}, {column} FROM {self._source} WHERE {where} "  # nosec B608
            f"ORDER BY {column} {_OPERATORS[self.metric]} %s LIMIT {int(n)}"
        )
        answers = self._database.search(statement, [(*values, kind(query)) for query in queries], n)
        return [_vectors(rows) for rows in answers]

    def words(
        self, texts: Sequence[str], n: int, conditions: Sequence[Condition] = ()
    ) -> list[Scored]:
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

    def _condition(self, conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
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
