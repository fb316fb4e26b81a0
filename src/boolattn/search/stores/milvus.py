"""A Milvus collection: a server or cluster by its address, or a file (Milvus Lite).

A cluster's token is read from ``MILVUS_TOKEN`` and never stored.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError, MissingDataError, ServerError
from boolattn.search.filters import RANGES, SIGNS, of_type
from boolattn.search.stores.base import COSINE, DOT, L2, Neighbours, Store, as_array, check_metric
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from boolattn.search.filters import Condition
    from boolattn.search.stores.base import Array, Row

    Client = Any

#: Most results of one search; Milvus's own limit.
LIMIT = 16_384
TIMEOUT = 30.0
_METRICS = {"COSINE": COSINE, "IP": DOT, "L2": L2}
_CANDIDATES = 128


class MilvusStore(Store):
    """A collection as it is.

    Args:
        client: A ``MilvusClient``, an address, or the path of a file.
        collection: Its name.
        vector: The field with the vectors; left out, the only one.
        text: The field with the text.
        title: The field with the title.
        timeout: Seconds that an answer may take.
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
        timeout: float = TIMEOUT,
    ) -> None:
        self.name, self.text, self.title = f"Milvus ({collection})", text, title
        self._client = connect(client) if isinstance(client, str) else client
        self._collection, self._timeout = collection, timeout
        with one_line(collection):
            fields = self._client.describe_collection(collection)["fields"]
            self._types = {f["name"]: getattr(f["type"], "name", "") for f in fields}
            lengths = {f["name"]: int(f["params"].get("dim", 0)) for f in fields}
            lengths = {name: length for name, length in lengths.items() if length}
            if vector not in lengths and (vector or len(lengths) != 1):
                raise ConfigError(
                    f"{self.name}: vector={vector!r} must be one of {', '.join(lengths) or 'none'}"
                )
            self._vector = vector or next(iter(lengths))
            key = next(f for f in fields if f.get("is_primary"))
            self._key, self._is_text = key["name"], "VARCHAR" in str(key["type"])
            index = self._client.describe_index(collection, self._vector) or {}
            self._client.load_collection(collection)
        self.dimension, metric = lengths[self._vector], str(index.get("metric_type", "COSINE"))
        self.metric = check_metric(self.name, _METRICS.get(metric, metric))

    def nearest(
        self, queries: Array, n: int, conditions: Sequence[Condition] = ()
    ) -> list[Neighbours]:
        """Search the collection, all queries in one request."""
        with one_line(self._collection):
            answers = self._client.search(
                self._collection,
                data=list(queries),
                limit=n,
                anns_field=self._vector,
                search_params={"params": {"ef": max(n, _CANDIDATES)}},
                filter=_expression(conditions, self._types),
                output_fields=[self._key, self._vector],
                timeout=self._timeout,
            )
        return [self._neighbours(answer) for answer in answers]

    def key(self, text: str) -> Any:  # noqa: ANN401 - an int, or a text
        """Return the id that a text is."""
        return text if self._is_text else super().key(text)

    def vectors(self, ids: Sequence[Any]) -> dict[Any, Array]:
        """Return vectors by id."""
        found = self._get(ids, [self._key, self._vector])
        return dict(zip(*self._neighbours(found), strict=True))

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        """Return all other fields by id."""
        return {
            row[self._key]: {name: value for name, value in row.items() if name != self._vector}
            for row in self._get(ids, ["*"])
        }

    def _get(self, ids: Sequence[Any], fields: list[str]) -> list[Any]:
        with one_line(self._collection):
            return list(
                self._client.get(
                    self._collection, list(ids), output_fields=fields, timeout=self._timeout
                )
            )

    def _neighbours(self, rows: Sequence[Any]) -> Neighbours:
        vectors = as_array([row[self._vector] for row in rows], self.dimension)
        return Neighbours([row[self._key] for row in rows], vectors)


def _expression(conditions: Sequence[Condition], types: Mapping[str, str]) -> str:
    """Write conditions on fields of some types as an expression of Milvus."""
    parts = []
    for condition in conditions:
        name, kind = condition.name, condition.kind
        values = of_type(condition.values, is_text=types.get(name, "VARCHAR") == "VARCHAR")
        if kind in RANGES:
            parts.append(f"{name} {SIGNS[kind]} {json.dumps(values[0])}")
        elif kind == "exists":
            parts.append(f"{name} is {'not ' if values[0] else ''}null")
        elif kind == "contains":
            part = "".join(f"\\{c}" if c in "\\%_" else c for c in str(values[0]))
            parts.append(f"{name} like {json.dumps(f'%{part}%', ensure_ascii=False)}")
        else:
            own = f"{name} in {json.dumps(list(values), ensure_ascii=False)}"
            parts.append(f"not ({own})" if kind == "not" else own)
        if condition.is_negated:
            parts[-1] = f"({name} is null or not ({parts[-1]}))"
    return " and ".join(parts)


@cache
def connect(address: str) -> Client:
    """Connect once: a file of Milvus Lite allows one connection."""
    try:
        from pymilvus import MilvusClient
    except ImportError as error:
        raise MissingDataError("Milvus needs pymilvus; pip install 'boolattn[milvus]'") from error
    # They log a traceback of every error that they raise.
    for name in ("pymilvus", "milvus_lite"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    hint = "" if "://" in address else "; a file allows one process; is it open in another?"
    with one_line(address, hint):
        return MilvusClient(address, token=os.environ.get("MILVUS_TOKEN", ""), timeout=TIMEOUT)


@contextmanager
def one_line(what: str, hint: str = "") -> Iterator[None]:
    """Turn errors of the client into one line."""
    import grpc
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except (MilvusException, grpc.RpcError) as error:
        text = getattr(error, "message", None) or getattr(error, "details", error.__str__)()
        raise ServerError(f"Milvus ({what}): {' '.join(str(text).split())}{hint}") from error
