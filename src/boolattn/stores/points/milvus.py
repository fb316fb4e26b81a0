"""A store in Milvus: a server or cluster by its address, or a file (Milvus Lite).

A text of Milvus's has a limit, so the JSON of a document is a list of texts. Of a document with
more than 4,096 different terms the rarest are unknown to claims, exclusions and rarities.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, ServerError
from boolattn.stores.address import parse_server
from boolattn.stores.analysis import term_weights
from boolattn.stores.filters import MAX_TAGS, RANGES, SIGNS, Filter, tag_condition
from boolattn.stores.points.database import CANDIDATES, VECTOR, WORDS, Match
from boolattn.stores.points.milvus_collection import LIMIT, DataType, MilvusClient, MilvusConnection
from boolattn.stores.points.store import PointStore
from boolattn.stores.values import number_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from boolattn.stores.filters import Condition
    from boolattn.stores.points.database import Matches, Row

#: Rows that are asked for at once: this bounds the size of a message.
_KEYS = 5000
#: Milvus's limits: bytes of a text, characters that fit into them, items of an array.
_BYTES, _CHARACTERS, _MAX_ITEMS = 65_535, 16_000, 4096
#: A sparse vector may not be empty: this number is no term's.
_NO_TERM = {0: 1e-6}
_HEADS, _PASSAGES = "part == 0", "part >= 0"
#: Lists of texts, with the most items and bytes.
_LISTS = {"tags": (MAX_TAGS, 512), "body": (_MAX_ITEMS, _BYTES)}
_LISTS |= dict.fromkeys(("asserted", "denied"), (_MAX_ITEMS, 512))
#: Writes a value in Milvus's language.
_literal = partial(json.dumps, ensure_ascii=False)


class MilvusStore(PointStore):
    """A store in Milvus."""

    limit = LIMIT

    def connect(self) -> str:
        target, name = parse_server(self.address, "milvus", "MILVUS_TOKEN")
        self._file = None if "://" in target else Path(target)
        if self._file and self._file.suffix != ".db":
            raise ConfigError(f"{self.address!r}: a file of Milvus Lite ends in .db")
        self.connection = MilvusConnection(target, self.address)
        self.call = self.connection.call
        return name

    def query(self, test: str, names: list[str]) -> list[Row]:
        """Return the rows that pass a test."""
        return list(self.call("query", self.collection, filter=test, output_fields=names))

    def target(self) -> str:
        if self._file and not self._file.exists():
            return ""
        self.names()  # a server that does not answer is an error
        try:
            return str(self.call("describe_alias", self.name)["collection_name"])
        except ServerError:
            return ""

    def names(self) -> list[str]:
        return list(self.call("list_collections"))

    def create_collection(self) -> None:
        is_lite = "lite" in str(self.call("get_server_version")).lower()
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        for name in ("document", "part", "n_passages"):
            schema.add_field(name, DataType.INT64)
        for name, n_bytes in (("id", _BYTES), ("version", 64)):
            schema.add_field(name, DataType.VARCHAR, max_length=n_bytes)
        schema.add_field("numbers", DataType.JSON)
        for name, (n_items, n_bytes) in _LISTS.items():
            limits = {"max_capacity": n_items, "max_length": n_bytes}
            schema.add_field(name, DataType.ARRAY, element_type=DataType.VARCHAR, **limits)
        schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=self.settings.dimension)
        index = MilvusClient.prepare_index_params()
        graph = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 80}}
        kind = {"index_type": "FLAT"} if self.settings.vectors == "exact" else graph
        index.add_index(VECTOR, metric_type="IP", **kind)
        if self.settings.words:
            schema.add_field(WORDS, DataType.SPARSE_FLOAT_VECTOR)
            index.add_index(WORDS, index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
        lists = () if is_lite else ("tags", "asserted", "denied")
        for name in ("document", "part", *lists):
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

    def insert(self, points: list[Row]) -> None:
        self.call("upsert", self.collection, [*map(self._row, points)])

    def _row(self, point: Row) -> Row:
        body, starts = point["body"], range(0, len(point["body"]), _CHARACTERS)
        row = point | {"body": [body[start : start + _CHARACTERS] for start in starts]}
        row |= {name: row[name][:_MAX_ITEMS] for name in ("asserted", "denied")}
        if point[VECTOR] is None:
            row[VECTOR] = np.zeros(self.settings.dimension, np.float32)
        row[WORDS] = term_weights(point[WORDS], self.mean_length) or _NO_TERM
        if not self.settings.words:
            del row[WORDS]
        return row

    def get(self, keys: Iterable[int], *names: str) -> dict[int, Row]:
        wanted, rows = list(dict.fromkeys(keys)), dict[int, Any]()
        for start in range(0, len(wanted), _KEYS):
            chosen = f"key in {wanted[start : start + _KEYS]}"
            rows |= {row.pop("key"): row for row in self.query(chosen, ["key", *names])}
        for row in rows.values():
            if "body" in row:
                row["body"] = json.loads("".join(row["body"]))
            if VECTOR in row:
                row[VECTOR] = np.asarray(row[VECTOR], np.float32)
        return rows

    def search(self, field: str, vectors: Sequence[Any], n: int, where: Filter) -> Matches:
        params = {"ef": max(n, CANDIDATES)} if field == VECTOR else {}
        options = {"data": [*vectors], "anns_field": field, "limit": n}
        options["search_params"] = {"metric_type": "IP", "params": params}
        options["filter"] = _expression(where, _HEADS if field == WORDS else _PASSAGES)
        options["output_fields"] = ["document", "part", "version"]
        answers = self.call("search", self.collection, **options)
        return [[Match(**hit["entity"], score=hit["distance"]) for hit in hits] for hits in answers]

    def n_passages(self) -> int:
        return int(self.query(_PASSAGES, ["count(*)"])[0]["count(*)"])

    def count(self, where: Filter, term: str = "") -> int:
        test = _expression(where, _HEADS)
        if term:
            text = _literal(term)
            test += f" and (array_contains(asserted, {text}) or array_contains(denied, {text}))"
        return int(self.query(test, ["count(*)"])[0]["count(*)"])

    def select(self, where: Filter, n: int, keys: Sequence[int] | None = None) -> list[int]:
        """Query a range of keys, which are spread evenly; rows have no order."""
        chosen = f"key in {[*(keys or ())]}"
        if keys is None:
            share = (2 * n + 50) / max(self.count(where), 1)
            chosen = f"key <= {int(min(share, 1.0) * (1 << 63)) - 1}"
        rows = self.query(f"{_expression(where, _HEADS)} and {chosen}", ["key"])
        return sorted(row["key"] for row in rows)[:n]

    def remove(self, keys: Collection[int]) -> None:
        self.call("delete", self.collection, ids=[*keys])

    def remove_rest(self, documents: Collection[int], versions: Collection[str]) -> None:
        test = f"document in {[*documents]} and part != 0"
        test += f" and version not in {_literal([*versions])}" if versions else ""
        self.call("delete", self.collection, filter=test)


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
    """Write a condition on tags or numbers."""
    if condition.kind in RANGES:
        number, is_wanted = f'numbers["{number_key(condition.number)}"]', not condition.is_negated
        # A comparison with a missing value is false in Milvus and nothing in Milvus Lite.
        test = f"(exists {number} and {number} {SIGNS[condition.kind]} {condition.values[0]})"
    else:
        tags, is_wanted = tag_condition(condition)
        test = f"array_contains_any(tags, {_literal(tags)})"
    return test if is_wanted else f"(not {test})"
