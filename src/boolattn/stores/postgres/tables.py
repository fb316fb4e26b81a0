"""The tables of a store in Postgres, and filters on them.

A document is in the tables of passages and terms by its number, which is never given twice, not
even by the next build. Statistics are changed in the transaction that changes the documents.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.errors import UndefinedColumn, UndefinedTable

from boolattn.stores.batches import tag_condition
from boolattn.stores.filters import RANGES, SIGNS
from boolattn.stores.postgres.database import escaped, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.stores.filters import Condition, Filter
    from boolattn.stores.postgres.database import Connection
    from boolattn.stores.settings import StoreSettings

FORMAT = 1
#: Largest vectors, in bytes, that fit on a page beside the rest of a row.
_MAX_INLINE = 7500


class Tables(NamedTuple):
    """The names of a store's tables, quoted."""

    documents: str
    passages: str
    terms: str
    fields: str
    settings: str


class State(NamedTuple):
    """What a store says of itself."""

    format: int
    settings: Any  # JSON
    documents: int
    passages: int
    next: int  # number of the next document


def tables_of(table: str, stage: str = "") -> Tables:
    """Return the names of all tables of a store.

    >>> tables_of("shop.docs").terms
    '"shop"."docs_terms"'
    """
    schema, dot, name = table.rpartition(".")
    before = f"{quoted(schema)}." if dot else ""
    suffixes = ("", "_passages", "_terms", "_fields", "_settings")
    return Tables(*(before + quoted(f"{name}{stage}{suffix}") for suffix in suffixes))


def read_state(connection: Connection, tables: Tables) -> State | None:
    """Read the state of a store; ``None`` where there is none."""
    try:
        statement = f"SELECT {', '.join(State._fields)} FROM {tables.settings}"  # nosec B608
        row = connection.execute(statement, ()).fetchone()
    except (UndefinedTable, UndefinedColumn):
        return None
    return row and State(*row)


def delete_documents(connection: Connection, tables: Tables, ids: Sequence[str]) -> None:
    """Delete documents, and subtract them from the statistics; unknown ids are no error."""
    connection.execute(
        f"WITH gone AS (DELETE FROM {tables.documents} WHERE id = ANY(%s) "  # nosec B608
        "RETURNING number, length, metadata), "
        f"vectors AS (DELETE FROM {tables.passages} USING gone WHERE document = number "
        f"RETURNING 1), words AS (DELETE FROM {tables.terms} USING gone WHERE document = number), "
        f"shrunk AS (UPDATE {tables.fields} AS f SET documents = f.documents - lost.n FROM "
        "(SELECT name, count(*) AS n FROM gone, json_object_keys(metadata) AS name GROUP BY name) "
        f"AS lost WHERE f.name = lost.name) UPDATE {tables.settings} SET "
        "documents = documents - (SELECT count(*) FROM gone), "
        "passages = passages - (SELECT count(*) FROM vectors), "
        "length = length - (SELECT coalesce(sum(length), 0) FROM gone)",
        ([plain(name) for name in ids],),
    )


def plain(text: str) -> str:
    """Return a text as Postgres takes it, without NUL, in the same length."""
    return text.replace("\0", "\ufffd")


def vector_type(settings: StoreSettings) -> str:
    """Return pgvector's type of stored vectors."""
    return "halfvec" if settings.precision == "float16" else "vector"


def vector_size(settings: StoreSettings) -> int:
    """Return the bytes of a stored vector."""
    return settings.dimension * (2 if settings.precision == "float16" else 4)


def create_tables(
    connection: Connection, tables: Tables, settings: StoreSettings, first: int
) -> None:
    """Create the tables of a store whose first document gets a number."""
    word = 'text COLLATE "C"'
    columns = {
        tables.documents: f"number bigint PRIMARY KEY, id {word} NOT NULL UNIQUE, title text NOT "
        "NULL, text text NOT NULL, metadata json NOT NULL, tags text[] NOT NULL, numbers jsonb NOT "
        "NULL, asserted text[] NOT NULL, denied text[] NOT NULL, length int NOT NULL, digest text",
        tables.passages: "document bigint, part int, first int NOT NULL, last int NOT NULL, vector "
        f"{vector_type(settings)}({settings.dimension}) NOT NULL, PRIMARY KEY (document, part)",
        tables.terms: f"term {word} NOT NULL, document bigint NOT NULL, count int NOT NULL, "
        "length int NOT NULL",
        tables.fields: "name text PRIMARY KEY, documents bigint NOT NULL, smallest float8, "
        "largest float8, earliest float8, latest float8",
        tables.settings: "format int, settings jsonb, documents bigint, passages bigint, "
        "length bigint, next bigint",
    }
    for name, definition in columns.items():
        connection.execute(f"CREATE TABLE {name} ({definition})", ())
    if vector_size(settings) <= _MAX_INLINE:
        # Read without a detour by searches that compare every row.
        connection.execute(f"ALTER TABLE {tables.passages} ALTER vector SET STORAGE PLAIN", ())
    connection.execute(f"CREATE INDEX ON {tables.terms} (document)", ())
    connection.execute(
        f"INSERT INTO {tables.settings} VALUES (%s, %s, 0, 0, 0, %s)",  # nosec B608
        (FORMAT, json.dumps(asdict(settings)), first),
    )


def create_indexes(connection: Connection, tables: Tables, settings: StoreSettings) -> None:
    """Index tables that are filled, which is faster than filling indexed ones."""
    connection.execute(
        f"ALTER TABLE {tables.terms} ADD PRIMARY KEY (term, document) INCLUDE (count, length)", ()
    )
    indexes = dict.fromkeys(("gin (tags)", "gin (asserted)"), tables.documents)
    if settings.vectors == "hnsw":
        graph = f"hnsw (vector {vector_type(settings)}_ip_ops) WITH (m = 32, ef_construction = 80)"
        indexes[graph] = tables.passages
    for index, table in indexes.items():
        connection.execute(f"CREATE INDEX ON {table} USING {index}", ())
    connection.execute(f"ANALYZE {', '.join(tables)}", ())


def exists(connection: Connection, name: str) -> bool:
    """Return whether there is a table."""
    return connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()[0] is not None


class Values(dict[str, Any]):
    """Values of a statement by name."""

    def add(self, value: object) -> str:
        """Add a value; return what stands for it."""
        name = f"value{len(self)}"
        self[name] = value
        return f"%({name})s"


def filter_test(where: Filter, documents: str) -> tuple[str, Values]:
    """Write a filter on documents, which are called d; return it with its values."""
    values = Values()
    tests = [_test(condition, values) for condition in where.conditions]
    if where.alternatives:
        either = [[_test(c, values) for c in conditions] for conditions in where.alternatives]
        tests.append(f"({' OR '.join(' AND '.join(both) for both in either)})")
    if where.without:
        tests.append(f"d.number <> ALL({values.add(list(where.without))}::bigint[])")
    for terms in filter(None, where.lacking):
        # A join, for which the index of terms is used; a negated test would read every list.
        asserting = f"x.asserted @> {values.add(list(terms))}::text[]"
        selected = f"SELECT 1 FROM {documents} x WHERE x.number = d.number AND {asserting}"  # nosec B608
        tests.append(f"NOT EXISTS ({selected})")
    return " AND ".join(tests) or "true", values


def _test(condition: Condition, values: Values) -> str:
    kind, name = condition.kind, condition.name
    if kind in RANGES:
        number = values.add(plain(condition.number))
        limit = values.add(float(condition.values[0]))
        test = f"(d.numbers ->> {number}::text)::float8 {SIGNS[kind]} {limit}::float8"
    elif kind == "contains":
        field = f"(d.metadata -> {values.add(name)}::text)"
        pattern = values.add(f"%{escaped(plain(str(condition.values[0])))}%")
        test = (
            f"EXISTS (SELECT 1 FROM json_array_elements(CASE json_typeof{field} WHEN 'array' THEN "  # nosec B608
            f"{field} ELSE json_build_array{field} END) AS v (item) WHERE json_typeof(item) = "
            f"'string' AND item #>> '{{}}' ILIKE {pattern})"
        )
    else:
        tags, is_wanted = tag_condition(condition)
        test = f"d.tags && {values.add(list(tags))}::text[]"
        return test if is_wanted else f"NOT ({test})"
    return f"({test}) IS NOT TRUE" if condition.is_negated else f"({test})"
