"""Milvus: stores, and collections that someone else filled.

An address is that of a server or cluster, or a file (Milvus Lite). The token of a cluster is read
from ``MILVUS_TOKEN`` and never stored. A text of Milvus's has a limit, so the JSON of a document is
a list of texts. Of a document with more than 4,096 different terms the rarest are unknown to
claims, exclusions and rarities.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from boolattn.errors import ConfigError, ServerError
from boolattn.files import installed_by
from boolattn.stores.address import parse_server
from boolattn.stores.analysis import term_weights
from boolattn.stores.base import one_line
from boolattn.stores.filters import MAX_TAGS, RANGES, SIGNS, Condition, Filter, of_type
from boolattn.stores.foreign import COSINE, DOT, Client, Described, Found, Row
from boolattn.stores.points.database import (
    CANDIDATES,
    IS_HEAD,
    IS_PASSAGE,
    LACKS,
    VECTOR,
    WORDS,
    Database,
    expression,
)

with installed_by("milvus", "Milvus"):
    import grpc
    from pymilvus import DataType, MilvusClient
    from pymilvus.exceptions import MilvusException

#: Seconds that an answer may take, and seconds for a graph to be built or read.
TIMEOUT, _LOAD_TIMEOUT = 30.0, 3600.0
_ERRORS = (MilvusException, grpc.RpcError)
_METRICS = {"COSINE": COSINE, "IP": DOT}
_BM25 = 1  # as the client numbers functions
#: Rows that are asked for at once: this bounds the size of a message.
_KEYS = 5000
#: Milvus's limits: bytes of a text, characters that fit into them, items of an array.
_BYTES, _CHARACTERS, _MAX_ITEMS = 65_535, 16_000, 4096
#: A sparse vector may not be empty: this number is no term's.
_NO_TERM = {0: 1e-6}
#: Lists of texts, with the most items and bytes.
_LISTS = {"tags": (MAX_TAGS, 512), "body": (_MAX_ITEMS, _BYTES)}
_LISTS |= dict.fromkeys(("asserted", "denied"), (_MAX_ITEMS, 512))
#: Writes a value in Milvus's language.
_literal = partial(json.dumps, ensure_ascii=False)


class MilvusCollection(Database):
    """A collection of Milvus: a server's, which is connected to again, or a file's."""

    limit = 16_384  # Milvus's own
    parse = partial(parse_server, kind="milvus", secret="MILVUS_TOKEN")  # nosec B106
    types = dict.fromkeys(_LISTS, "ARRAY") | {"numbers": "JSON", "version": "VARCHAR"}

    def connect(self, client: Client | str) -> None:
        self._client, is_file = client, isinstance(client, str) and "://" not in client
        self.path = Path(client) if is_file else None
        if self.path and self.path.suffix != ".db":
            raise ConfigError(f"{client!r}: a file of Milvus Lite ends in .db")

    def call(self, method: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client; read a collection that a new server process has not read."""
        options, client = {"timeout": TIMEOUT} | options, self._client
        with one_line(self.name, _ERRORS):
            client = open_client(client) if isinstance(client, str) else client
            try:
                return getattr(client, method)(*values, **options)
            except MilvusException as error:
                if not re.search("not loaded|not been loaded|released", str(error)):
                    raise
            self._load()
            return getattr(client, method)(*values, **options)

    def _load(self) -> None:
        """Make the collection ready to be searched."""
        try:
            self.call("load_collection", self.collection, timeout=_LOAD_TIMEOUT)
        except ServerError:
            # A killed writer may have cut a graph of Milvus Lite, which makes missing ones anew.
            name = self.call("describe_collection", self.collection)["collection_name"]
            folder = Path(str(self._client), "collections", name)
            if not (graphs := [*folder.glob("partitions/*/indexes/*.idx")]):
                raise
            for path in graphs:
                path.unlink()
            self.call("load_collection", self.collection, timeout=_LOAD_TIMEOUT)

    def describe(self) -> Described:
        about = self.call("describe_collection", self.collection)
        fields = {field["name"]: field for field in about["fields"]}
        types = {name: getattr(f["type"], "name", "") for name, f in fields.items()}
        [key] = (name for name, field in fields.items() if field.get("is_primary"))
        vectors = {}
        for name, field in fields.items():
            if length := int(field["params"].get("dim", 0)):
                index = self.call("describe_index", self.collection, name) or {}
                metric = str(index.get("metric_type", "COSINE"))
                vectors[name] = (length, _METRICS.get(metric, metric))
        functions = [f for f in about.get("functions") or () if int(f["type"]) == _BM25]
        words = [name for function in functions for name in function["output_field_names"]]
        self.has_text_ids = types[key] == "VARCHAR"
        self.has_schema = not about.get("enable_dynamic_field")
        return types, [key], vectors, words

    def get(self, keys: Iterable[Any], *names: str) -> dict[Any, Row]:
        wanted, rows = list(dict.fromkeys(keys)), dict[Any, Any]()
        for start in range(0, len(wanted), _KEYS):
            chosen = Filter((Condition(self.id_field, "in", (*wanted[start : start + _KEYS],)),))
            for row in self.query(chosen, *([self.id_field, *names] if names else ["*"])):
                rows[row[self.id_field]] = self._row(row, names or (*row,))
        return rows

    def search(
        self, field: str, queries: Sequence[Any], n: int, where: Filter, *names: str
    ) -> list[list[Found]]:
        options: dict[str, Any] = {"data": [*queries], "anns_field": field, "limit": n}
        is_graph = field == self.vector_field
        if self.alias:  # every point has some words, and the state a vector
            where = where.also(IS_PASSAGE if is_graph else IS_HEAD)
        options["search_params"] = {"params": {"ef": max(n, CANDIDATES)} if is_graph else {}}
        options["filter"] = expression(where, self._test)
        options["output_fields"] = [self.id_field, *names]
        score = float if is_graph else abs  # Milvus Lite gives those of texts below zero
        answers = self.call("search", self.collection, **options)
        pairs = [[(hit["entity"], score(hit["distance"])) for hit in hits] for hits in answers]
        return [[(row[self.id_field], s, self._row(row, names)) for row, s in p] for p in pairs]

    def query(self, where: Filter, *names: str) -> list[Row]:
        """Return values of the rows that pass a filter."""
        test = expression(where, self._test)
        return list(self.call("query", self.collection, filter=test, output_fields=[*names]))

    def _row(self, values: Row, names: Sequence[str]) -> Row:
        row = {name: values[name] for name in names}
        if self.vector_field in row:
            row[self.vector_field] = np.asarray(row[self.vector_field], np.float32)
        if self.alias and "body" in row:
            row["body"] = json.loads("".join(row["body"]))
        return row

    def _test(self, condition: Condition) -> str:
        column, *path = condition.name.split(".")
        kind, type_name = condition.kind, self.types.get(column, "")
        is_json = bool(path) and type_name == "JSON"
        name = column + "".join(f"[{_literal(key)}]" for key in path) if is_json else condition.name
        values = of_type(condition.values, is_text=type_name == "VARCHAR")
        if kind in RANGES:
            test = f"{name} {SIGNS[kind]} {_literal(values[0])}"
        elif kind == "exists":
            test = f"exists {name}" if is_json else f"{name} is not null"
            test = test if values[0] else f"(not {test})"
        elif type_name == "ARRAY":
            test = f"array_contains_{'all' if kind == LACKS else 'any'}({name}, {_literal(values)})"
        elif is_json and values:  # Milvus Lite has no "in" for these
            test = " or ".join(f"{name} == {_literal(value)}" for value in condition.values)
        else:
            test = f"{name if values else self.id_field} in {_literal(values)}"
        # A comparison with a missing value is false in Milvus and nothing in Milvus Lite.
        test = f"(exists {name} and ({test}))" if is_json and kind != "exists" else test
        if kind in ("not", LACKS):
            test = f"(not ({test}))"
        if not condition.is_negated:
            return test
        return f"(not {test})" if is_json else f"({name} is null or not ({test}))"

    def target(self) -> str:
        self.names()  # a server that does not answer is an error
        try:
            return str(self.call("describe_alias", self.alias)["collection_name"])
        except ServerError:
            return ""

    def names(self) -> list[str]:
        return list(self.call("list_collections"))

    def create_collection(self) -> None:
        is_lite = "lite" in str(self.call("get_server_version")).lower()
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        for name in ("key", "document", "part", "n_passages"):
            schema.add_field(name, DataType.INT64, is_primary=name == "key")
        schema.add_field("id", DataType.VARCHAR, max_length=_BYTES)
        schema.add_field("version", DataType.VARCHAR, max_length=64)
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
        for name in ("document", "part", *(() if is_lite else ("tags", "asserted", "denied"))):
            index.add_index(name, index_type="INVERTED")
        self.call("create_collection", self.collection, schema=schema, consistency_level="Strong")
        # Not loaded before its rows are there: Milvus Lite would read a graph while it writes it.
        self.call("create_index", self.collection, index, sync=False)

    def finish(self) -> None:
        """Write what is in memory, and build the graph."""
        self.call("flush", self.collection)
        self._load()

    def switch(self, old: str) -> None:
        method = "alter_alias" if old else "create_alias"
        self.call(method, collection_name=self.collection, alias=self.alias)

    def drop(self, collection: str) -> None:
        self.call("drop_collection", collection)

    def insert(self, points: list[Row]) -> None:
        nothing, rows = np.zeros(self.settings.dimension, np.float32), []
        for point in points:
            body, starts = point["body"], range(0, len(point["body"]), _CHARACTERS)
            row = point | {"body": [body[start : start + _CHARACTERS] for start in starts]}
            row |= {name: row[name][:_MAX_ITEMS] for name in ("asserted", "denied")}
            if row[VECTOR] is None:
                row[VECTOR] = nothing
            words = row.pop(WORDS)
            if self.settings.words:
                row[WORDS] = term_weights(words, self.mean_length) or _NO_TERM
            rows.append(row)
        self.call("upsert", self.collection, rows)

    def remove(self, *conditions: Condition) -> None:
        self.call("delete", self.collection, filter=expression(Filter(conditions), self._test))

    def count(self, where: Filter) -> int:
        return int(self.query(where, "count(*)")[0]["count(*)"])

    def select(self, where: Filter, n: int) -> list[int]:
        """Query a range of keys, which are spread evenly; rows have no order."""
        if (total := self.count(where)) > n:
            largest = int(min((2 * n + 50) / total, 1.0) * (1 << 63)) - 1
            where = where.also(Condition("key", "lte", (largest,)))
        return sorted(row["key"] for row in self.query(where, "key"))[:n]


@cache
def open_client(address: str) -> MilvusClient:
    """Connect once: a file of Milvus Lite allows one connection."""
    # They log a traceback of every error that they raise.
    for name in ("pymilvus", "milvus_lite", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    token = os.environ.get("MILVUS_TOKEN", "")
    try:
        return MilvusClient(address, token=token, timeout=TIMEOUT)
    except MilvusException as error:
        if "://" in address:
            raise
        hint = "a file allows one process; is it open in another?"
        raise ServerError(f"{address}: {error.message}; {hint}") from error
