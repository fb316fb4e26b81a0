"""Postgres with pgvector as a store: everything is in tables of the server.

Filters, neighbours and words are the server's; BM25+ is added up over a table of postings.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from pgvector import Vector

from boolattn.data.records import Document
from boolattn.errors import BoolattnError, ConfigError
from boolattn.stores.analysis import DELTA, K1, B
from boolattn.stores.base import Claim, Passages, ServerStore, best_documents
from boolattn.stores.filters import COMPARED, Field, Filter
from boolattn.stores.postgres import tables as sql
from boolattn.stores.postgres.database import Database, MissingExtensionError, parse_address
from boolattn.stores.postgres.draft import PostgresBuild, PostgresDraft
from boolattn.stores.postgres.tables import delete_documents, filter_test, plain
from boolattn.stores.settings import HNSW, check_format, check_ids, no_index, saved_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from boolattn.scoring.exact import Ranked
    from boolattn.stores.base import Array, Claims, Keys, Mask
    from boolattn.stores.filters import Condition
    from boolattn.stores.postgres.tables import State
    from boolattn.stores.settings import StoreSettings

#: Up to so many selected passages are compared one by one, which is exact and as fast.
_FEW = 16_384
#: Neighbours that a graph is asked for, at most; beyond it every passage is compared.
_MAX_ASKED = 65_536
#: Largest vectors, in bytes, of a graph.
_MAX_GRAPH = 8000
_COLUMNS = "number, id, title, text, metadata"


class PostgresStore(ServerStore):
    """A store at ``postgresql://[user@]host[:port]/database?table=NAME``."""

    def __init__(self, address: str) -> None:
        connection, self._table = parse_address(address)
        self.address, self.label = address, f"Postgres ({self._table})"
        self._database = Database(connection, self.label)
        self._tables = sql.tables_of(self._table)
        self._state = sql.State(0, None, 0, 0, 0)
        self.refresh()

    @classmethod
    def open(cls, address: str, *, verify: bool = False) -> PostgresStore:
        """Open a store that :meth:`create` made."""
        return cls(address)

    @classmethod
    @contextmanager
    def create(
        cls, address: str, settings: StoreSettings, *, replace: bool = False, resume: bool = False
    ) -> Iterator[PostgresBuild]:
        """Build a store, which appears when it is complete."""
        server, table = parse_address(address)
        settings = settings.completed(HNSW, ("float32", "float16"))
        if settings.vectors == HNSW and sql.vector_size(settings) > _MAX_GRAPH:
            raise ConfigError(
                f"pgvector's graph takes vectors of 2000 dimensions, of 4000 in float16, not "
                f"{settings.dimension}: index with --vectors exact"
            )
        label, options = f"Postgres ({table})", {"replace": replace, "resume": resume}
        with Database(server, label, _is_owner=True).writing(table) as connection:
            build = PostgresBuild.begin(connection, table, settings, label, **options)
            yield build
            build.finish()

    @contextmanager
    def adding(self, *, replace_old: bool = False) -> Iterator[PostgresDraft]:
        """Add documents in one transaction; searches go on meanwhile."""
        with self._database.writing(self._table) as connection:
            self.refresh()
            with connection.transaction():
                yield PostgresDraft(connection, self._tables, self.settings, replace_old)
        with suppress(BoolattnError):  # the documents are added
            self.refresh()

    def delete(self, ids: Iterable[str]) -> None:
        """Delete documents in one transaction."""
        names = check_ids(ids)
        with self._database.writing(self._table) as connection, connection.transaction():
            draft = PostgresDraft(connection, self._tables, self.settings)
            self.check_known(names, draft.known(names))
            delete_documents(connection, self._tables, names)

    def info(self) -> dict[str, Any]:
        """Return sizes and settings."""
        state = self._read_state()
        return {"documents": state.documents, "passages": state.passages, **super().info()}

    def refresh(self) -> bool:
        """Read the state again; return whether documents or settings changed."""
        before, self._state = self._state, self._read_state()
        self.settings = saved_settings(self._state.settings, self.label)
        return before != self._state

    def _read_state(self) -> State:
        state = None
        with suppress(MissingExtensionError), self._database.connected() as connection:
            state = sql.read_state(connection, self._tables)
        if state is None:
            raise no_index(self.address)
        check_format(self.address, state.format, sql.FORMAT)
        return state

    def count(self, where: Filter) -> int:
        """Count documents; all of them are counted already."""
        if not where:
            return self._read_state().documents
        test, values = filter_test(where, self._tables.documents)
        return self._number(f"{self._tables.documents} d WHERE {test}", values)

    def _number(self, source: str, values: Mapping[str, Any]) -> int:
        return int(self._database.rows(f"SELECT count(*) FROM {source}", values)[0][0])  # nosec B608

    def nearest(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        """Ask the graph, or compare all passages where a filter leaves few of them."""
        self.check_length(vectors)
        source = f"{self._tables.passages} p"
        test, values = filter_test(where, self._tables.documents)
        if where:
            source += f" JOIN {self._tables.documents} d ON d.number = p.document WHERE {test}"
        asked = [{**values, "vector": Vector(vector)} for vector in vectors]
        if self.settings.vectors == HNSW:
            limited = f"(SELECT 1 FROM {source} LIMIT {_FEW + 1}) AS few"  # nosec B608
            total = self._number(limited, values) if where else self._state.passages
            n_asked = 2 * n if self.settings.passages else n
            while n_asked <= _MAX_ASKED and (total > _FEW or not where):
                statement = (
                    f"SELECT p.document, -(p.vector <#> {self._query}) FROM {source} "  # nosec B608
                    f"ORDER BY p.vector <#> {self._query} LIMIT {int(n_asked)}"
                )
                answers = self._database.search(statement, asked, n_asked)
                ranked = [best_documents(rows, n) for rows in answers]
                if all(len(answer.rows) >= min(n, total) for answer in ranked):
                    return ranked
                n_asked *= 4
        statement = (
            f"SELECT p.document, max(-(p.vector <#> {self._query})) AS score FROM {source} "  # nosec B608
            f"GROUP BY p.document ORDER BY score DESC, p.document LIMIT {int(n)}"
        )
        return [best_documents(rows, n) for rows in self._database.search(statement, asked, n)]

    @property
    def _query(self) -> str:
        return f"%(vector)s::{sql.vector_type(self.settings)}"

    def similarities(self, vectors: Array, keys: Keys) -> Array:
        """Compare documents in one round trip; one that is gone is like nothing."""
        scores = np.zeros((len(vectors), len(keys)), np.float32)
        if not scores.size:
            return scores
        numbers, products = self._compare(
            vectors, "p.document = ANY(%(keys)s)", {"keys": keys.tolist()}
        )
        order = np.argsort(numbers)
        rows = np.searchsorted(numbers, keys, sorter=order).clip(max=len(numbers) - 1)
        is_known = np.isin(keys, numbers)
        scores[:, is_known] = products[:, order[rows[is_known]]]
        return scores

    def scan(self, vectors: Array, where: Filter) -> tuple[Keys, Array]:
        """Compare every document."""
        test, values = filter_test(where, self._tables.documents)
        selected = f"SELECT d.number FROM {self._tables.documents} d WHERE {test}"  # nosec B608
        return self._compare(vectors, f"p.document IN ({selected})" if where else "true", values)

    def _compare(self, vectors: Array, test: str, values: Mapping[str, Any]) -> tuple[Keys, Array]:
        self.check_length(vectors)
        names = [f"vector{number}" for number in range(len(vectors))]
        columns = [
            f"max(-(p.vector <#> {self._query.replace('vector)', f'{name})')}))" for name in names
        ]
        rows = self._database.rows(
            f"SELECT p.document, {', '.join(columns)} FROM {self._tables.passages} p "  # nosec B608
            f"WHERE {test} GROUP BY p.document",
            {**values, **dict(zip(names, map(Vector, vectors), strict=True))},
        )
        # Numbers of documents are exact in float64 up to 2**53.
        table = np.array(rows, np.float64).reshape(len(rows), len(vectors) + 1)
        return table[:, 0].astype(np.int64), table[:, 1:].T.astype(np.float32)

    def words(self, queries: Sequence[Sequence[str]], n: int, where: Filter) -> list[Ranked]:
        """Add up BM25+ over the postings of the terms."""
        if not self.has_words:
            raise self.no_words()
        tables = self._tables
        test, values = filter_test(where, tables.documents)
        passing, source = "", f"asked JOIN {tables.terms} USING (term)"
        if where:
            # Selected once: few terms have the number of documents that the server expects.
            passing = (
                f", passing AS MATERIALIZED (SELECT number FROM {tables.documents} d "  # nosec B608
                f"WHERE {test})"
            )
            source += " JOIN passing ON number = document"
        statement = (
            "WITH asked AS MATERIALIZED (SELECT q.term, mean, "  # nosec B608
            "ln(1 + (n - df + 0.5::float8) / (df + 0.5::float8)) AS idf FROM "
            "(SELECT documents AS n, greatest(length::float8 / greatest(documents, 1), 1) AS mean "
            f"FROM {tables.settings}) AS sizes, unnest(%(terms)s::text[]) AS q (term), "
            f"LATERAL (SELECT count(*) AS df FROM {tables.terms} t WHERE t.term = q.term) AS f)"
            f"{passing} SELECT document, sum(idf * ({K1 + 1}::float8 * count / "
            f"(count + {K1}::float8 * ({1 - B} + {B}::float8 * length / mean)) + {DELTA})) "
            f"AS score FROM {source} "
            f"GROUP BY document ORDER BY score DESC, document LIMIT {int(n)}"
        )
        asked = [{**values, "terms": list(dict.fromkeys(terms))} for terms in queries]
        return [best_documents(rows, n) for rows in self._database.search(statement, asked)]

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """Count postings."""
        statement = (
            f"SELECT (SELECT count(*) FROM {self._tables.terms} t WHERE t.term = q.term) "  # nosec B608
            "FROM unnest(%s::text[]) WITH ORDINALITY AS q (term, rank) ORDER BY rank"
        )
        return [count for (count,) in self._database.rows(statement, (list(terms),))]

    def matching(self, condition: Condition, keys: Keys) -> Mask:
        """Test documents by key."""
        test, values = filter_test(Filter((condition,)), self._tables.documents)
        rows = self._documents("d.number", keys, test, values)
        return np.isin(keys, [number for (number,) in rows])

    def claims(self, terms: Sequence[str], keys: Keys) -> Claims:
        """Look the terms up among those that documents assert and deny."""
        claims = np.zeros(len(keys), np.int8)
        if not terms:
            return claims
        columns, test = "d.number, d.asserted @> %(terms)s", "d.asserted || d.denied @> %(terms)s"
        rows = self._documents(columns, keys, test, {"terms": list(terms)})
        claims[np.isin(keys, [number for number, _ in rows])] = Claim.DENIED
        claims[np.isin(keys, [n for n, is_asserted in rows if is_asserted])] = Claim.ASSERTED
        return claims

    def _documents(
        self, columns: str, keys: Keys, test: str = "true", values: Mapping[str, Any] | None = None
    ) -> list[Any]:
        return self._database.rows(
            f"SELECT {columns} FROM {self._tables.documents} d "  # nosec B608
            f"WHERE d.number = ANY(%(keys)s) AND {test}",
            {"keys": keys.tolist(), **(values or {})},
        )

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Look up ids."""
        statement = f"SELECT id, number FROM {self._tables.documents} WHERE id = ANY(%s)"  # nosec B608
        numbers = dict(self._database.rows(statement, ([plain(name) for name in ids],)))
        return {name: numbers[plain(name)] for name in ids if plain(name) in numbers}

    def passages(self, keys: Keys) -> dict[int, Passages]:
        """Read the passages of documents."""
        rows = self._database.rows(
            f"SELECT document, array_agg(first ORDER BY part), array_agg(last ORDER BY part), "  # nosec B608
            f"array_agg(vector::vector ORDER BY part) FROM {self._tables.passages} "
            "WHERE document = ANY(%s) GROUP BY document",
            (keys.tolist(),),
        )
        return {
            key: Passages(
                [*zip(starts, ends, strict=True)], np.stack([v.to_numpy() for v in vectors])
            )
            for key, starts, ends, vectors in rows
        }

    def documents(self, keys: Keys) -> list[Document | None]:
        """Read documents."""
        rows = self._documents(_COLUMNS, keys)
        documents = {row[0]: _document(row) for row in rows}
        return [documents.get(key) for key in keys.tolist()]

    def fields(self) -> Mapping[str, Field]:
        """Read what was written of each field; a deleted document may still count in a range."""
        columns = f"name, {', '.join(COMPARED)}"
        rows = self._database.rows(
            f"SELECT {columns} FROM {self._tables.fields} WHERE documents > 0 ORDER BY name"  # nosec B608
        )
        return {
            name: Field(*(None if None in span else span for span in ((a, b), (c, d))))
            for name, a, b, c, d in rows
        }

    def sample(self, n: int) -> list[Document]:
        """Read documents at equal distances."""
        documents = self._tables.documents
        rows = self._database.rows(
            f"SELECT DISTINCT ON (d.number) d.* FROM (SELECT min(number) AS first, "  # nosec B608
            f"max(number) - min(number) + 1 AS size FROM {documents}) AS ends, "
            "generate_series(0, %(n)s - 1) AS i, LATERAL "
            f"(SELECT {_COLUMNS} FROM {documents} WHERE number >= first + i * size / %(n)s "
            "ORDER BY number LIMIT 1) AS d ORDER BY d.number",
            {"n": n},
        )
        return [_document(row) for row in rows]


def _document(row: Sequence[Any]) -> Document:
    _, name, title, text, metadata = row
    return Document(id=name, title=title, text=text, metadata=metadata)
