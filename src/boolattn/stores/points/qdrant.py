"""Qdrant: stores, external collections, and connections to it.

An address is that of a server or cluster, or a folder (local mode). The key of a server is read
from ``QDRANT_API_KEY`` and never stored.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import pickle  # nosec B403
import sqlite3
import time
from contextlib import closing, nullcontext
from dataclasses import replace
from enum import Enum
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, MissingDataError
from boolattn.settings import checked
from boolattn.stores.address import parse_server
from boolattn.stores.analysis import term_weights
from boolattn.stores.base import one_line
from boolattn.stores.filters import RANGES, Filter, tag_condition
from boolattn.stores.foreign import COSINE, DOT, Collection
from boolattn.stores.points.database import CANDIDATES, VECTOR, WORDS, Match
from boolattn.stores.points.store import PointStore
from boolattn.stores.values import number_key

try:
    from qdrant_client import QdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException
except ImportError as error:
    raise MissingDataError("Qdrant needs: pip install 'boolattn[qdrant]'") from error

if TYPE_CHECKING:
    from collections.abc import Collection as Keys
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.stores.filters import Condition
    from boolattn.stores.foreign import Array, Conditions, Vectors
    from boolattn.stores.points.database import Matches, Row
    from boolattn.stores.values import Value

    Client = Any
    Model = Any  # of the client's

TIMEOUT = 30
#: What the client raises, and besides what a damaged folder does.
_ERRORS = (ApiException, QdrantException, ValueError, RuntimeError, OSError, sqlite3.Error)
_DAMAGE = (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError)
#: Open folders of local mode, each of which allows one client.
_folders: dict[Path, QdrantClient] = {}
#: Local mode is no server: two threads may not use it at once.
_LOCK = RLock()
_METRICS = {"Cosine": COSINE, "Dot": DOT}
_INDEXES = {"document": "integer", "part": "integer"}
_INDEXES |= dict.fromkeys(("version", "tags", "asserted", "denied"), "keyword")


class QdrantConnection:
    """A server, by a client or an address with ``://``, or a folder of local mode."""

    def __init__(self, client: QdrantClient | str, label: str) -> None:
        self.label, self.folder, self._client = label, None, client
        if isinstance(client, str) and "://" not in client:
            self.folder = Path(client).resolve()
        elif isinstance(client, str):
            options = {"timeout": TIMEOUT, "check_compatibility": False}
            key = os.environ.get("QDRANT_API_KEY")
            with one_line(label, _ERRORS):
                self._client = QdrantClient(url=client, api_key=key, **options)
        options = getattr(self._client, "init_options", {"path": client})
        self.is_local = bool(options.get("path")) or options.get("location") == ":memory:"

    def call(self, method: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client; its errors become one line."""
        with one_line(self.label, _ERRORS + _DAMAGE), _LOCK if self.is_local else nullcontext():
            client = self._client if self.folder is None else _open_folder(self.folder)
            return getattr(client, method)(*values, **options)

    def search(self, collection: str, queries: Iterable[Any], **options: Any) -> list[list[Any]]:
        """Return the points of each list of numbers or sparse vector, all in one request."""
        params = models.SearchParams(hnsw_ef=max(options["limit"], CANDIDATES))
        # Local mode is exact, and warns of what is for a graph.
        options |= {"params": None if self.is_local else params}
        requests = [models.QueryRequest(query=query, **options) for query in queries]
        answers = self.call("query_batch_points", collection, requests) if requests else ()
        return [answer.points for answer in answers]


def _open_folder(folder: Path) -> QdrantClient:
    meta, client = folder / "meta.json", _folders.get(folder)
    if client is not None:
        if meta.exists():
            return client
        _folders.pop(folder).close()  # someone removed the folder
    if meta.exists() and not meta.stat().st_size and not (folder / ".lock").exists():
        meta.unlink()  # its process was killed before it wrote anything
    for name in json.loads(meta.read_text("utf-8"))["collections"] if meta.exists() else ():
        _check_points(folder / "collection" / name / "storage.sqlite")
    client = _folders[folder] = QdrantClient(path=str(folder), force_disable_check_same_thread=True)
    atexit.register(client.close)
    return client


def _check_points(path: Path) -> None:
    """Refuse a collection that holds more than points, before local mode unpickles all it holds."""
    with closing(sqlite3.connect(path if path.exists() else ":memory:")) as storage:
        kinds = dict(storage.execute("SELECT lower(name), type FROM sqlite_master"))
        if "view" in kinds.values():  # what it gives may change
            raise ValueError(f"{path} holds a view, which is no point")
        for (raw,) in storage.execute("SELECT point FROM points") if "points" in kinds else ():
            _Points(io.BytesIO(raw)).load()


class _Points(pickle.Unpickler):
    """Reads points, and refuses any other class: a pickle could run code."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class
        kind = getattr(models, name, None) if module == models.VectorParams.__module__ else None
        if isinstance(kind, type) and issubclass(kind, models.BaseModel | Enum):
            return kind
        raise ValueError(f"a folder of Qdrant holds {module}.{name}, which is no point")


class QdrantStore(PointStore):
    """A store in Qdrant."""

    has_idf = True

    def connect(self) -> str:
        target, name = parse_server(self.address, "qdrant", "QDRANT_API_KEY")
        self.connection = QdrantConnection(target, self.address)
        self.is_exact = self.connection.is_local  # which has no graphs
        return name

    def call(self, method: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client for the collection."""
        return self.connection.call(method, self.collection, *values, **options)

    def target(self) -> str:
        folder = self.connection.folder
        if folder is not None and not (folder / "meta.json").exists():
            return ""
        aliases = self.connection.call("get_aliases").aliases
        return next((a.collection_name for a in aliases if a.alias_name == self.name), "")

    def names(self) -> list[str]:
        return [listed.name for listed in self.connection.call("get_collections").collections]

    def create_collection(self) -> None:
        settings = self.settings
        vector = models.VectorParams(size=settings.dimension, distance=models.Distance.DOT)
        if settings.vectors == "exact":
            vector.hnsw_config = models.HnswConfigDiff(m=0)  # no graph
        words = {WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)}
        sparse = {"sparse_vectors_config": words if settings.words else None}
        self.call("create_collection", vectors_config={VECTOR: vector}, **sparse)
        for name, kind in _INDEXES.items():
            self.create_index(name, kind)

    def create_index(self, name: str, kind: str = "float") -> None:
        """Index a field of the payload; local mode has no such indexes, and warns."""
        if not self.connection.is_local:
            self.call("create_payload_index", name, kind)

    def finish(self) -> None:
        """Wait for the graph: until it is built, a server compares all points."""
        while self.call("get_collection").status == "yellow":
            time.sleep(1)

    def switch(self, old: str) -> None:
        alias = models.CreateAlias(collection_name=self.collection, alias_name=self.name)
        changes: list[Model] = [models.CreateAliasOperation(create_alias=alias)]
        if old:
            former = models.DeleteAlias(alias_name=self.name)
            changes.insert(0, models.DeleteAliasOperation(delete_alias=former))
        self.connection.call("update_collection_aliases", changes)

    def drop(self, collection: str) -> None:
        self.connection.call("delete_collection", collection)

    def insert(self, points: list[Row]) -> None:
        self.call("upsert", [*map(self._point, points)])

    def _point(self, point: Row) -> Model:
        payload = {**point, "body": json.loads(point["body"])}
        key, vector, words = (payload.pop(name) for name in ("key", VECTOR, WORDS))
        named: dict[str, Any] = {} if vector is None else {VECTOR: vector.tolist()}
        if words:
            named[WORDS] = _sparse(term_weights(words, self.mean_length))
        return models.PointStruct(id=key, vector=named, payload=payload)

    def get(self, keys: Iterable[int], *names: str) -> dict[int, Row]:
        if not (wanted := [*keys]):
            return {}
        vectors, rows = [VECTOR] if VECTOR in names else False, {}
        for point in self.call("retrieve", wanted, [*names], with_vectors=vectors):
            rows[point.id] = point.payload or {}
            if vectors and (vector := (point.vector or {}).get(VECTOR)) is not None:
                rows[point.id][VECTOR] = np.asarray(vector, np.float32)
        return rows

    def search(self, field: str, vectors: Sequence[Any], n: int, where: Filter) -> Matches:
        is_dense = field == VECTOR
        queries = [vector.tolist() if is_dense else _sparse(vector) for vector in vectors]
        options: dict[str, Any] = {"using": field, "filter": _filter(where), "limit": n}
        has_parts = is_dense and self.settings.passages
        options["with_payload"] = ["document", "part", "version"] if has_parts else False
        answers = self.connection.search(self.collection, queries, **options)
        return [
            [Match(**{"document": p.id, **(p.payload or {})}, score=p.score) for p in points]
            for points in answers
        ]

    def n_passages(self) -> int:
        return int(self.call("count", exact=True).count) - 1

    def count(self, where: Filter, term: str = "") -> int:
        further = [_any_of("part", [0])]
        if term:
            either = [_any_of("asserted", [term]), _any_of("denied", [term])]
            further.append(models.Filter(should=either))
        return int(self.call("count", _filter(where, *further), exact=True).count)

    def select(self, where: Filter, n: int, keys: Sequence[int] | None = None) -> list[int]:
        """Scroll, which is in the order of ids."""
        heads = _any_of("part", [0]) if keys is None else models.HasIdCondition(has_id=keys)
        points, _ = self.call("scroll", _filter(where, heads), limit=n or 1, with_payload=False)
        return [point.id for point in points]

    def remove(self, keys: Keys[int]) -> None:
        self.call("delete", [*keys])

    def remove_rest(self, documents: Keys[int], versions: Keys[str]) -> None:
        current = [_any_of("part", [0]), *([_any_of("version", versions)] if versions else ())]
        rest = models.Filter(must=[_any_of("document", documents)], must_not=current)
        self.call("delete", rest)


def _filter(where: Filter, *further: Model) -> Model:
    """Write a filter as one of Qdrant's, with further conditions."""
    must, must_not = [*map(_stored, where.conditions), *further], list[Any]()
    if where.alternatives:
        every = [models.Filter(must=[*map(_stored, listed)]) for listed in where.alternatives]
        must.append(models.Filter(should=every))
    if where.without:
        must_not.append(_any_of("document", where.without))
    for terms in filter(None, where.lacking):
        must_not.append(models.Filter(must=[_any_of("asserted", [term]) for term in terms]))
    return models.Filter(must=must, must_not=must_not) if must or must_not else None


def _stored(condition: Condition) -> Model:
    """Write a condition as one on tags or numbers."""
    if condition.kind in RANGES:
        return _test(replace(condition, name=f"numbers.{number_key(condition.number)}"))
    tags, is_wanted = tag_condition(condition)
    return models.Filter(**{"must" if is_wanted else "must_not": [_any_of("tags", tags)]})


def _any_of(name: str, values: Iterable[Any]) -> Model:
    return models.FieldCondition(key=name, match=models.MatchAny(any=[*values]))


def _sparse(weights: dict[int, float]) -> Model:
    return models.SparseVector(indices=[*weights], values=[*weights.values()])


class QdrantCollection(Collection):
    """A collection as it is.

    Args:
        client: A ``QdrantClient``, an address, or a folder of local mode.
        collection: Its name.
        vector: The name of the vector, where points have several.
    """

    @checked
    def __init__(
        self,
        client: Client | str,
        collection: str,
        *,
        vector: str = "",
        text: str = "",
        title: str = "title",
    ) -> None:
        self.name, self.text, self.title = f"Qdrant ({collection})", text, title
        self._connection, self._collection = QdrantConnection(client, self.name), collection
        params = self._connection.call("get_collection", collection).config.params.vectors
        if not isinstance(params, dict):
            params = {"": params}
        vector = self.choose("vector", vector, params)
        self._using, self.dimension = vector or None, int(params[vector].size)
        if getattr(params[vector], "multivector_config", None) is not None:
            raise ConfigError(f"{self.name}: a point has several vectors, which is not supported")
        distance = str(getattr(params[vector].distance, "value", params[vector].distance))
        self.metric = _METRICS.get(distance, distance.lower())

    def nearest(self, queries: Array, n: int, conditions: Conditions = ()) -> list[Vectors]:
        tests = models.Filter(must=[*map(_test, conditions)]) if conditions else None
        options: dict[str, Any] = {"using": self._using, "filter": tests}
        options |= {"limit": n, "with_vector": [self._using] if self._using else True}
        answers = self._connection.search(self._collection, queries.tolist(), **options)
        return [self._vectors(points) for points in answers]

    def vectors(self, ids: Sequence[Any]) -> Vectors:
        options = {"with_payload": False, "with_vectors": True}
        return self._vectors(self._connection.call("retrieve", self._collection, [*ids], **options))

    def rows(self, ids: Sequence[Any]) -> dict[Any, Mapping[str, Any]]:
        points = self._connection.call("retrieve", self._collection, list(ids))
        return {point.id: point.payload or {} for point in points}

    def _vectors(self, points: Sequence[Any]) -> Vectors:
        """Return the vectors of points, which are lists, or lists by name, or missing."""
        named = {p.id: p.vector if isinstance(p.vector, dict) else {"": p.vector} for p in points}
        lists = {key: vectors.get(self._using or "") for key, vectors in named.items()}
        return {key: np.array(v, np.float32) for key, v in lists.items() if v is not None}


def _test(condition: Condition) -> Model:
    """Write a condition on a field of payloads."""
    key, kind, values = condition.name, condition.kind, condition.values
    is_wanted = not condition.is_negated
    if kind in RANGES:
        model = models.DatetimeRange if isinstance(values[0], str) else models.Range
        test = models.FieldCondition(key=key, range=model(**{kind: values[0]}))
    elif kind == "exists":
        test = models.IsEmptyCondition(is_empty=models.PayloadField(key=key))
        is_wanted = is_wanted != values[0]
    else:
        test = models.Filter(should=[_equal(key, value) for value in values])
        is_wanted = is_wanted == (kind == "in")
    return models.Filter(**{"must" if is_wanted else "must_not": [test]})


def _equal(key: str, value: Value) -> Model:
    if isinstance(value, float):
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))
