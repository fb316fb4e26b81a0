"""A store in Milvus: a server or cluster by its address, or a file (Milvus Lite).

A text of Milvus's has a limit, so the JSON of a long document goes on in rows of its own. Of a
document with more than 4,096 different terms the rarest are unknown to claims, exclusions and
rarities.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, ServerError
from boolattn.stores.analysis import term_weights
from boolattn.stores.filters import MAX_TAGS, RANGES, SIGNS, tag_condition
from boolattn.stores.points.database import (
    CANDIDATES,
    NO_PASSAGE,
    VECTOR,
    WORDS,
    Match,
    PointDatabase,
    key_of,
    number_key,
    parse_address,
)
from boolattn.stores.points.milvus_collection import LIMIT, DataType, MilvusClient, MilvusConnection
from boolattn.stores.points.store import PointStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from boolattn.stores.base import Array
    from boolattn.stores.filters import Condition, Filter
    from boolattn.stores.points.database import Point, Row

#: Rows that are asked for by key, and that are written at once: this bounds the size of a message.
_KEYS, _ROWS = 5000, 250
#: Milvus's limits: bytes of a text, characters that fit into them, items of an array.
_BYTES, _CHARACTERS, _MAX_TERMS = 65_535, 16_000, 4096
#: A sparse vector may not be empty: this number is no term's.
_NO_TERM = {0: 1e-6}
_ALL, _HEADS, _PASSAGES = "key >= 0", "part == 0", f"part > {NO_PASSAGE}"
#: Writes a value in Milvus's language.
_literal = partial(json.dumps, ensure_ascii=False)
_OPPOSITE = {"gt": "lte", "gte": "lt", "lt": "gte", "lte": "gt"}


class MilvusDatabase(PointDatabase):
    """A collection of Milvus's."""

    limit = LIMIT

    def __init__(self, address: str) -> None:
        self._target, self.name = parse_address(address, "milvus", "MILVUS_TOKEN")
        self.label, self.collection = address, self.name
        self._is_file = "://" not in self._target
        if self._is_file and not self._target.endswith(".db"):
            raise ConfigError(f"{address!r}: a file of Milvus Lite ends in .db")
        self.connection = MilvusConnection(self._target, address)
        self.call = self.connection.call

    @property
    def precisions(self) -> Sequence[str]:  # type: ignore[override]
        """Milvus Lite has fewer types."""
        return ("float32",) if self._is_lite() else ("float32", "float16")

    def _is_lite(self) -> bool:
        return "lite" in str(self.call("get_server_version")).lower()

    def query(self, test: str, names: list[str]) -> list[Row]:
        """Return the rows that pass a test."""
        return list(self.call("query", self.collection, filter=test, output_fields=names))

    def target(self) -> str:
        if self._is_file and not Path(self._target).exists():
            return ""
        self.names()  # a server that does not answer is an error
        try:
            return str(self.call("describe_alias", self.name)["collection_name"])
        except ServerError:
            return ""

    def names(self) -> list[str]:
        return list(self.call("list_collections"))

    def create(self) -> None:
        settings, is_lite = self.settings, self._is_lite()
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        for name in ("document", "part", "n_passages", "chunks"):
            schema.add_field(name, DataType.INT64)
        for name, n_bytes in (("id", _BYTES), ("body", _BYTES), ("version", 64)):
            schema.add_field(name, DataType.VARCHAR, max_length=n_bytes)
        schema.add_field("numbers", DataType.JSON)
        lists = {"tags": MAX_TAGS, "asserted": _MAX_TERMS, "denied": _MAX_TERMS}
        for name, capacity in lists.items():
            texts = {"element_type": DataType.VARCHAR, "max_capacity": capacity, "max_length": 512}
            schema.add_field(name, DataType.ARRAY, **texts)
        kinds = {"float32": DataType.FLOAT_VECTOR, "float16": DataType.FLOAT16_VECTOR}
        schema.add_field(VECTOR, kinds[settings.precision], dim=settings.dimension)
        index = MilvusClient.prepare_index_params()
        graph = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 80}}
        kind = {"index_type": "FLAT"} if settings.vectors == "exact" else graph
        index.add_index(VECTOR, metric_type="IP", **kind)
        if settings.words:
            schema.add_field(WORDS, DataType.SPARSE_FLOAT_VECTOR)
            index.add_index(WORDS, index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
        for name in ("document", "part", *(() if is_lite else lists)):
            index.add_index(name, index_type="INVERTED")
        options = {"schema": schema, "consistency_level": "Strong"}
        self.call("create_collection", self.collection, **options)
        # Not loaded before its rows are there: Milvus Lite would read a graph while it writes it.
        self.call("create_index", self.collection, index, sync=False)

    def finish(self) -> None:
        """Write what is in memory, and build the graph."""
        self.call("flush", self.collection)
        self.connection.load(self.collection)

    def switch(self, old: str) -> None:
        method = "alter_alias" if old else "create_alias"
        self.call(method, collection_name=self.collection, alias=self.name)

    def drop(self, collection: str) -> None:
        self.call("drop_collection", collection)

    def dimension(self) -> int:
        fields = self.call("describe_collection", self.collection)["fields"]
        lengths = {field["name"]: field["params"].get("dim", 0) for field in fields}
        return int(lengths.get(VECTOR, 0))

    def insert(self, points: list[Point]) -> None:
        rows = [row for point in points for row in self._rows(point)]
        for start in range(0, len(rows), _ROWS):
            self.call("upsert", self.collection, rows[start : start + _ROWS])

    def _rows(self, point: Point) -> list[Row]:
        """Return the rows in which a body goes on, and then the point's."""
        row = {**vars(point), "tags": [*point.tags], "numbers": {**point.numbers}}
        row |= {"asserted": [*point.asserted[:_MAX_TERMS]], "denied": [*point.denied[:_MAX_TERMS]]}
        starts = range(0, len(point.body), _CHARACTERS)
        bodies = [point.body[start : start + _CHARACTERS] for start in starts]
        zeros = np.zeros(self.settings.dimension, self._type)
        vector = zeros if point.vector is None else point.vector.astype(self._type)
        row |= {"body": bodies[0], "chunks": len(bodies), VECTOR: vector}
        row[WORDS] = term_weights(point.words, self.mean_length) or _NO_TERM
        if not self.settings.words:
            del row[WORDS]
        nothing = {"part": NO_PASSAGE, "tags": [], "numbers": {}, "asserted": [], "denied": []}
        nothing |= {"id": "", "n_passages": 0, "chunks": 0, VECTOR: zeros}
        keys = _chunk_keys(point.key, point.version, len(bodies))
        rest = zip(keys, bodies[1:], strict=True)
        return [*(row | nothing | {"key": key, "body": body} for key, body in rest), row]

    @property
    def _type(self) -> type[np.floating[Any]]:
        return np.float16 if self.settings.precision == "float16" else np.float32

    def get(
        self, keys: Iterable[int], names: list[str], *, with_vectors: bool = False
    ) -> dict[int, Row]:
        fields = {"key", *names} | ({VECTOR} if with_vectors else set())
        rows = self._get(keys, [*fields, *(("version", "chunks") if "body" in names else ())])
        if with_vectors:
            for row in rows.values():
                row[VECTOR] = _as_vector(row[VECTOR])
        if "body" in names:
            chunks = {key: _chunk_keys(key, r["version"], r["chunks"]) for key, r in rows.items()}
            rest = self._get([key for listed in chunks.values() for key in listed], ["key", "body"])
            # One that was just replaced has no such rows any more.
            rows = {key: row for key, row in rows.items() if all(c in rest for c in chunks[key])}
            for key, row in rows.items():
                bodies = [row["body"], *(rest[chunk]["body"] for chunk in chunks[key])]
                row["body"] = json.loads("".join(bodies))
        return {key: {name: row[name] for name in fields - {"key"}} for key, row in rows.items()}

    def _get(self, keys: Iterable[int], names: list[str], test: str = _ALL) -> dict[int, Row]:
        wanted, rows = list(dict.fromkeys(keys)), dict[int, Any]()
        for start in range(0, len(wanted), _KEYS):
            chosen = f"key in {wanted[start : start + _KEYS]} and {test}"
            rows |= {row["key"]: row for row in self.query(chosen, names)}
        return rows

    def search(
        self, field: str, vectors: Sequence[Any], n: int, where: Filter
    ) -> list[list[Match]]:
        is_graph = field == VECTOR and self.settings.vectors == "hnsw"
        params = {"ef": max(n, CANDIDATES)} if is_graph else {}
        data = [*vectors] if field == WORDS else [vector.astype(self._type) for vector in vectors]
        options = {"data": data, "anns_field": field, "limit": n}
        options["search_params"] = {"metric_type": "IP", "params": params}
        options["filter"] = _expression(where, _HEADS if field == WORDS else _PASSAGES)
        options["output_fields"] = ["document", "part", "version"]
        answers = self.call("search", self.collection, **options)
        return [[Match(**hit["entity"], score=hit["distance"]) for hit in hits] for hits in answers]

    def count(self, where: Filter | None, term: str = "") -> int:
        test = _PASSAGES if where is None else _expression(where, _HEADS)
        if term:
            text = _literal(term)
            test += f" and (array_contains(asserted, {text}) or array_contains(denied, {text}))"
        return int(self.query(test, ["count(*)"])[0]["count(*)"])

    def passing(self, keys: Sequence[int], where: Filter) -> set[int]:
        return {*self._get(keys, ["key"], _expression(where, _HEADS))}

    def heads(self, start: int, n: int) -> list[int]:
        """Query a range of keys, which are spread evenly, and a longer one if they are too few."""
        last, share = (1 << 63) - 1, 2 * n / max(self.count(None), 1)
        while True:
            stop = min(last, start + int(last * min(share, 1.0)))
            rows = self.query(f"{_HEADS} and key >= {start} and key <= {stop}", ["key"])
            if len(rows) >= n or stop == last:
                return sorted(row["key"] for row in rows)[:n]
            share *= 2

    def delete(self, keys: Collection[int]) -> None:
        self.call("delete", self.collection, ids=[*keys])

    def remove_rest(self, documents: Collection[int], versions: Collection[str]) -> None:
        test = f"document in {[*documents]} and part != 0"
        test += f" and version not in {_literal([*versions])}" if versions else ""
        self.call("delete", self.collection, filter=test)


class MilvusStore(PointStore):
    """A store in Milvus."""

    database_type = MilvusDatabase


def _chunk_keys(key: int, version: str, n_chunks: int) -> list[int]:
    """Return the keys of the rows in which a body goes on."""
    return [key_of("body", key, version, number) for number in range(1, n_chunks)]


def _expression(where: Filter, rows: str) -> str:
    """Write a filter as an expression of Milvus, for rows that pass a test of their own."""
    tests = [rows, *map(_test, where.conditions)]
    if where.alternatives:
        groups = [" and ".join([rows, *map(_test, listed)]) for listed in where.alternatives]
        tests.append(f"({' or '.join(f'({group})' for group in groups)})")
    if where.without:
        tests.append(f"document not in {[int(key) for key in where.without]}")
    for terms in filter(None, where.lacking):
        tests.append(f"not array_contains_all(asserted, {_literal([*terms])})")
    return " and ".join(tests)


def _test(condition: Condition) -> str:
    """Write a condition on tags or numbers.

    A comparison with a missing value is false in Milvus and nothing in Milvus Lite, so a negated
    one is written out.
    """
    kind = condition.kind
    if kind in RANGES:
        number = f'numbers["{number_key(condition.number)}"]'
        if not condition.is_negated:
            return f"{number} {SIGNS[kind]} {condition.values[0]}"
        return f"(not exists {number} or {number} {SIGNS[_OPPOSITE[kind]]} {condition.values[0]})"
    tags, is_wanted = tag_condition(condition)
    test = f"array_contains_any(tags, {_literal(tags)})"
    return test if is_wanted else f"(not {test})"


def _as_vector(value: Any) -> Array:  # noqa: ANN401 - of float16 the client gives bytes
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        [value] = value
    if isinstance(value, bytes):
        value = np.frombuffer(value, np.float16)
    return np.asarray(value, np.float32)
