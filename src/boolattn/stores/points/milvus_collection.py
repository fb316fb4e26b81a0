"""Connections to Milvus, and external collections of it.

An address is that of a server or cluster, or a file (Milvus Lite). The token of a cluster is read
from ``MILVUS_TOKEN`` and never stored.
"""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import MissingDataError, ServerError
from boolattn.settings import checked
from boolattn.stores.base import one_line
from boolattn.stores.filters import RANGES, SIGNS, of_type
from boolattn.stores.foreign import COSINE, DOT, Collection
from boolattn.stores.points.database import CANDIDATES

try:
    import grpc
    from pymilvus import DataType, MilvusClient
    from pymilvus.exceptions import MilvusException
except ImportError as error:
    raise MissingDataError("Milvus needs: pip install 'boolattn[milvus]'") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.stores.filters import Condition
    from boolattn.stores.foreign import Array, Conditions, Row, Scored, Vectors

    Client = Any

__all__ = ["LIMIT", "TIMEOUT", "DataType", "MilvusClient", "MilvusCollection", "MilvusConnection"]

#: Maximum number of results of one search; Milvus's own limit.
LIMIT = 16_384
#: Seconds that an answer may take, and seconds for a graph to be built or read.
TIMEOUT, _LOAD_TIMEOUT = 30.0, 3600.0
_ERRORS = (MilvusException, grpc.RpcError)
_METRICS = {"COSINE": COSINE, "IP": DOT}
_BM25 = 1  # as the client numbers functions


@dataclass
class MilvusConnection:
    """A server, which is connected to again where a connection broke, or a file."""

    _client: MilvusClient | str  # or an address with ://, or a file
    _label: str  # names it in errors

    def call(self, method: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client; read a collection that a new server process has not read."""
        options, client = {"timeout": TIMEOUT} | options, self._client
        with one_line(self._label, _ERRORS):
            client = connect(client) if isinstance(client, str) else client
            try:
                return getattr(client, method)(*values, **options)
            except MilvusException as error:
                if not re.search("not loaded|not been loaded|released", str(error)):
                    raise
            self.load(values[0])
            return getattr(client, method)(*values, **options)

    def load(self, collection: str) -> None:
        """Make a collection ready to be searched."""
        try:
            self.call("load_collection", collection, timeout=_LOAD_TIMEOUT)
        except ServerError:
            # A killed writer may have cut a graph of Milvus Lite, which makes missing ones anew.
            name = self.call("describe_collection", collection)["collection_name"]
            folder = Path(str(self._client), "collections", name)
            if not (graphs := [*folder.glob("partitions/*/indexes/*.idx")]):
                raise
            for path in graphs:
                path.unlink()
            self.call("load_collection", collection, timeout=_LOAD_TIMEOUT)


@cache
def connect(address: str) -> MilvusClient:
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
        raise ServerError(
            f"{address}: {error.message}; a file allows one process; is it open in another?"
        ) from error


class MilvusCollection(Collection):
    """A collection as it is.

    Args:
        client: A ``MilvusClient``, an address, or the path of a file.
        collection: Its name.
        vector: The field with the vectors; left out, the only one.
        words: The field that a BM25 function fills; left out, the only one.
    """

    limit = LIMIT

    @checked
    def __init__(
        self,
        client: Client | str,
        collection: str,
        *,
        vector: str = "",
        text: str = "",
        title: str = "title",
        words: str = "",
    ) -> None:
        self.name, self.text, self.title = f"Milvus ({collection})", text, title
        self._collection = collection
        self._call = MilvusConnection(client, self.name).call
        about = self._call("describe_collection", collection)
        self._types = {f["name"]: getattr(f["type"], "name", "") for f in about["fields"]}
        lengths = {f["name"]: int(f["params"].get("dim", 0)) for f in about["fields"]}
        self._vector = self.choose("vector", vector, [name for name in lengths if lengths[name]])
        self.dimension = lengths[self._vector]
        [self._key] = (f["name"] for f in about["fields"] if f.get("is_primary"))
        functions = [f for f in about.get("functions") or () if int(f["type"]) == _BM25]
        filled = [name for function in functions for name in function["output_field_names"]]
        self._words = self.choose("words", words, filled) if words or len(filled) == 1 else ""
        self.has_words = bool(self._words)
        index = self._call("describe_index", collection, self._vector) or {}
        metric = str(index.get("metric_type", "COSINE"))
        self.metric = _METRICS.get(metric, metric)

    def nearest(self, queries: Array, n: int, conditions: Conditions = ()) -> list[Vectors]:
        effort = {"ef": max(n, CANDIDATES)}
        answers = self._search(self._vector, [*queries], n, conditions, params=effort)
        return [self._vectors(answer) for answer in answers]

    def words(self, texts: Sequence[str], n: int, conditions: Conditions = ()) -> list[Scored]:
        answers = self._search(self._words, [*texts], n, conditions, metric_type="BM25")
        # Milvus Lite gives the scores below zero.
        return [
            ([hit[self._key] for hit in answer], [abs(hit["distance"]) for hit in answer])
            for answer in answers
        ]

    def key(self, text: str) -> Any:  # noqa: ANN401 - an int, or a text
        return text if self._types[self._key] == "VARCHAR" else super().key(text)

    def vectors(self, ids: Sequence[Any]) -> Vectors:
        names = [self._key, self._vector]
        rows = self._call("get", self._collection, [*ids], output_fields=names)
        return self._vectors(rows)

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        hidden = (self._vector, self._words)
        return {
            row[self._key]: {name: value for name, value in row.items() if name not in hidden}
            for row in self._call("get", self._collection, [*ids], output_fields=["*"])
        }

    def _search(
        self, field: str, data: list[Any], n: int, conditions: Conditions, **params: Any
    ) -> list[Any]:
        tests = [_test(c, self._types.get(c.name, "VARCHAR")) for c in conditions]
        names = [self._key, *([self._vector] if field == self._vector else ())]
        options: dict[str, Any] = {"anns_field": field, "data": data, "limit": min(n, LIMIT)}
        options |= {"search_params": params, "output_fields": names}
        options["filter"] = " and ".join(tests)
        return list(self._call("search", self._collection, **options))

    def _vectors(self, rows: Sequence[Any]) -> Vectors:
        return {row[self._key]: np.array(row[self._vector], np.float32) for row in rows}


def _test(condition: Condition, type_name: str) -> str:
    """Write a condition on a field of some type as an expression of Milvus."""
    name, kind = condition.name, condition.kind
    values = of_type(condition.values, is_text=type_name == "VARCHAR")
    if kind in RANGES:
        test = f"{name} {SIGNS[kind]} {json.dumps(values[0])}"
    elif kind == "exists":
        test = f"{name} is {'not ' if values[0] else ''}null"
    else:
        test = f"{name} in {json.dumps(list(values), ensure_ascii=False)}"
        test = f"not ({test})" if kind == "not" else test
    return f"({name} is null or not ({test}))" if condition.is_negated else test
