"""Postgres with pgvector as a store: everything is in tables of the server.

Filters, neighbours and words are the server's; BM25+ is added up over a table of postings.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.data.records import Document
from boolattn.errors import BoolattnError, IndexMismatchError
from boolattn.scoring.exact import Ranked
from boolattn.stores.analysis import DELTA, K1, B
from boolattn.stores.base import Claim, ServerStore, mean_vector
from boolattn.stores.filters import Field, Filter
from boolattn.stores.postgres.database import Database, MissingExtensionError, parse_address
from boolattn.stores.postgres.draft import PostgresBuild, PostgresDraft
from boolattn.stores.postgres.tables import (
    FORMAT,
    Values,
    check_settings,
    delete_documents,
    filter_test,
    plain,
    read_state,
    tables_of,
)
from boolattn.stores.settings import check_ids, no_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from boolattn.stores.base import Array, Claims, Keys, Mask
    from boolattn.stores.filters import Condition
    from boolattn.stores.postgres.tables import State
    from boolattn.stores.settings import StoreSettings

#: Up to so many selected passages are compared one by one, which is exact and as fast.
_FEW = 16_384
#: Neighbours that a graph is asked for, at most; beyond it every passage is compared.
_MAX_ASKED = 65_536
_COLUMNS = "number, id, title, text, metadata"


class PostgresStore(ServerStore):
    """A store at ``postgresql://[user@]host[:port]/database?table=NAME``."""

    def __init__(self, address: str) -> None:
        connection, self._table = parse_address(address)
        self.address, self.label = address, f"Postgres ({self._table})"
        self._database = Database(connection, self.label)
        self._tables = tables_of(self._table)
        self._state = self._read_state()

    @property
    def settings(self) -> StoreSettings:  # type: ignore[override]
        """How the store was made."""
        return self._state.settings

    @classmethod
    def open(cls, address: str) -> PostgresStore:
        """Open a store that :meth:`create` made."""
        return cls(address)

    @classmethod
    @contextmanager
    def create(
        cls, address: str, settings: StoreSettings, *, replace: bool = False, resume: bool = False
    ) -> Iterator[PostgresBuild]:
        """Build a store, which appears when it is complete."""
        connection_address, table = parse_address(address)
        settings = check_settings(settings)
        label = f"Postgres ({table})"
        with Database(connection_address, label, _is_owner=True).writing(table) as connection:
            build = PostgresBuild.begin(
                connection, table, settings, label, replace=replace, resume=resume
            )
            yield build
            build.finish()

    @contextmanager
    def adding(self, *, replace_old: bool = False) -> Iterator[PostgresDraft]:
        """Add documents in one transaction; searches go on meanwhile."""
        with self._database.writing(self._table) as connection:
            settings = self._read_state().settings
            with connection.transaction():
                yield PostgresDraft(connection, self._tables, settings, replace_old)
        with suppress(BoolattnError):  # the documents are added
            self.refresh()

    def delete(self, ids: Sequence[str]) -> None:
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
        return before != self._state

    def _read_state(self) -> State:
        try:
            with self._database.connected() as connection:
                state = read_state(connection, self._tables)
        except MissingExtensionError:
            state = None
        if state is None:
            raise no_index(self.address)
        if state.format != FORMAT:
            raise IndexMismatchError(
                f"{self.label} is in format {state.format}, not {FORMAT}; index again"
            )
        return state

    def count(self, where: Filter) -> int:
        """Count documents; all of them are counted already."""
        if not where:
            return self._read_state().documents
        values = Values()
        test = filter_test(where, self._tables.documents, values)
        return self._number(f"{self._tables.documents} d WHERE {test}", values)

    def _number(self, source: str, values: Values) -> int:
        return int(self._database.rows(f"SELECT count(*) FROM {source}", values)[0][0])  # nosec B608

    def nearest(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        """Ask the graph, or compare all passages where a filter leaves few of them."""
        self.check_length(vectors)
        values = Values()
        source = f"{self._tables.passages} p"
        if where:
            test = filter_test(where, self._tables.documents, values)
            source += f" JOIN {self._tables.documents} d ON d.number = p.document WHERE {test}"
        asked = [{**values, "vector": self._vector(vector)} for vector in vectors]
        if self.settings.vectors == "hnsw":
            limited = f"(SELECT 1 FROM {source} LIMIT {_FEW + 1}) AS few"  # nosec B608
            total = self._number(limited, values) if where else self._state.passages
            n_asked = 2 * n if self.settings.passages else n
            while n_asked <= _MAX_ASKED and (total > _FEW or not where):
                statement = (
                    f"SELECT p.document, -(p.vector <#> {self._query}) FROM {source} "  # nosec B608
                    f"ORDER BY p.vector <#> {self._query} LIMIT {int(n_asked)}"
                )
                answers = self._database.search(statement, asked, n_asked)
                ranked = [_ranked(rows, n) for rows in answers]
                if all(len(answer.rows) >= min(n, total) for answer in ranked):
                    return ranked
                n_asked *= 4
        statement = (
            f"SELECT p.document, max(-(p.vector <#> {self._query})) AS score FROM {source} "  # nosec B608
            f"GROUP BY p.document ORDER BY score DESC, p.document LIMIT {int(n)}"
        )
        return [_ranked(rows, n) for rows in self._database.search(statement, asked, n)]

    @property
    def _query(self) -> str:
        kind = "halfvec" if self.settings.precision == "float16" else "vector"
        return f"%(vector)s::{kind}"

    def _vector(self, vector: Array) -> Any:  # noqa: ANN401 - of pgvector
        from pgvector import Vector

        return Vector(vector)

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
        values = Values()
        test = filter_test(where, self._tables.documents, values)
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
            {**values, **dict(zip(names, map(self._vector, vectors), strict=True))},
        )
        # Numbers of documents are exact in float64 up to 2**53.
        table = np.array(rows, np.float64).reshape(len(rows), len(vectors) + 1)
        return table[:, 0].astype(np.int64), table[:, 1:].T.astype(np.float32)

    def words(self, queries: Sequence[Sequence[str]], n: int, where: Filter) -> list[Ranked]:
        """Add up BM25+ over the postings of the terms."""
        if not self.has_words:
            raise self.no_words()
        values, tables = Values(), self._tables
        passing, source = "", f"asked JOIN {tables.terms} USING (term)"
        if where:
            # Selected once: few terms have the number of documents that the server expects.
            test = filter_test(where, tables.documents, values)
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
        return [_ranked(rows, n) for rows in self._database.search(statement, asked)]

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """Count postings."""
        statement = (
            f"SELECT (SELECT count(*) FROM {self._tables.terms} t WHERE t.term = q.term) "  # nosec B608
            "FROM unnest(%s::text[]) WITH ORDINALITY AS q (term, rank) ORDER BY rank"
        )
        return [count for (count,) in self._database.rows(statement, (list(terms),))]

    def matching(self, condition: Condition, keys: Keys) -> Mask:
        """Test documents by key."""
        values = Values(keys=keys.tolist())
        test = filter_test(Filter((condition,)), self._tables.documents, values)
        return np.isin(keys, [number for (number,) in self._documents("d.number", test, values)])

    def claims(self, terms: Sequence[str], keys: Keys) -> Claims:
        """Look the terms up among those that documents assert and deny."""
        claims = np.zeros(len(keys), np.int8)
        if not terms:
            return claims
        columns, test = "d.number, d.asserted @> %(terms)s", "d.asserted || d.denied @> %(terms)s"
        rows = self._documents(columns, test, {"keys": keys.tolist(), "terms": list(terms)})
        claims[np.isin(keys, [number for number, _ in rows])] = Claim.DENIED
        claims[np.isin(keys, [n for n, is_asserted in rows if is_asserted])] = Claim.ASSERTED
        return claims

    def _documents(self, columns: str, test: str, values: Mapping[str, Any]) -> list[Any]:
        return self._database.rows(
            f"SELECT {columns} FROM {self._tables.documents} d "  # nosec B608
            f"WHERE d.number = ANY(%(keys)s) AND {test}",
            values,
        )

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Look up ids."""
        statement = f"SELECT id, number FROM {self._tables.documents} WHERE id = ANY(%s)"  # nosec B608
        numbers = dict(self._database.rows(statement, ([plain(name) for name in ids],)))
        return {name: numbers[plain(name)] for name in ids if plain(name) in numbers}

    def vectors(self, ids: Sequence[str]) -> dict[str, Array]:
        """Read the passages of documents."""
        keys = self.find(ids)
        rows = self._database.rows(
            f"SELECT document, vector::vector FROM {self._tables.passages} "  # nosec B608
            "WHERE document = ANY(%s) ORDER BY document, part",
            (list(keys.values()),),
        )
        passages: dict[int, list[Array]] = {}
        for number, vector in rows:
            passages.setdefault(number, []).append(np.asarray(vector.to_numpy(), np.float32))
        return {
            name: mean_vector(np.stack(passages[key]))
            for name, key in keys.items()
            if key in passages
        }

    def documents(self, keys: Keys) -> list[Document | None]:
        """Read documents."""
        rows = self._documents(_COLUMNS, "true", {"keys": keys.tolist()})
        documents = {row[0]: _document(row) for row in rows}
        return [documents.get(key) for key in keys.tolist()]

    def best_passages(self, vector: Array, keys: Keys) -> list[tuple[int, int] | None]:
        """Compare the passages of each document that has several."""
        statement = (
            "SELECT DISTINCT ON (document) document, first, last FROM "  # nosec B608
            f"(SELECT *, count(*) OVER (PARTITION BY document) AS n FROM {self._tables.passages} "
            "WHERE document = ANY(%(keys)s)) AS p WHERE n > 1 "
            f"ORDER BY document, p.vector <#> {self._query}"
        )
        values = {"keys": keys.tolist(), "vector": self._vector(vector)}
        spans = {key: (first, last) for key, first, last in self._database.rows(statement, values)}
        return [spans.get(key) for key in keys.tolist()]

    def fields(self) -> Mapping[str, Field]:
        """Read what was written of each field; a deleted document may still count in a range."""
        columns = "name, smallest, largest, earliest, latest"
        rows = self._database.rows(
            f"SELECT {columns} FROM {self._tables.fields} WHERE documents > 0 ORDER BY name"  # nosec B608
        )
        spans = {name: ((least, most), (first, last)) for name, least, most, first, last in rows}
        return {name: Field(*(None if None in s else s for s in spans[name])) for name in spans}

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


def _ranked(rows: Sequence[Any], n: int) -> Ranked:
    """Return the best documents, each once; a graph may give them only nearly in order."""
    best: dict[int, float] = {}
    for number, score in sorted(rows, key=lambda row: (-row[1], row[0])):
        best.setdefault(number, score)
    numbers, scores = np.array([*best], np.int64), np.array([*best.values()], np.float32)
    return Ranked(numbers[:n], scores[:n])


def _document(row: Sequence[Any]) -> Document:
    _, name, title, text, metadata = row
    return Document(id=name, title=title, text=text, metadata=metadata)
