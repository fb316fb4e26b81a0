"""Qdrant: stores, and collections that someone else filled.

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
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from boolattn.files import installed_by
from boolattn.stores.address import parse_server
from boolattn.stores.analysis import term_weights
from boolattn.stores.base import one_line
from boolattn.stores.filters import RANGES, Condition, Filter, date_range
from boolattn.stores.foreign import COSINE, DOT, Client, Described, Found, Row
from boolattn.stores.points.database import CANDIDATES, LACKS, VECTOR, WORDS, Database

with installed_by("qdrant", "Qdrant"):
    from qdrant_client import QdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException

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


class QdrantCollection(Database):
    """A collection of Qdrant: a server's, by a client or an address with ``://``, or a folder's."""

    has_idf = True
    parse = partial(parse_server, kind="qdrant", secret="QDRANT_API_KEY")  # nosec B106

    def connect(self, client: Client | str) -> None:
        self._folder, self._client = None, client
        if isinstance(client, str) and "://" not in client:
            self._folder = Path(client).resolve()
            self.path = self._folder / "meta.json"
        elif isinstance(client, str):
            options = {"timeout": TIMEOUT, "check_compatibility": False}
            key = os.environ.get("QDRANT_API_KEY")
            with one_line(self.name, _ERRORS):
                self._client = QdrantClient(url=client, api_key=key, **options)
        options = getattr(self._client, "init_options", {"path": client})
        # Local mode has no graphs.
        self.is_exact = bool(options.get("path")) or options.get("location") == ":memory:"

    def call(self, method: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client; its errors become one line."""
        with one_line(self.name, _ERRORS + _DAMAGE), _LOCK if self.is_exact else nullcontext():
            client = self._client if self._folder is None else _open_folder(self._folder)
            return getattr(client, method)(*values, **options)

    def describe(self) -> Described:
        params = self.call("get_collection", self.collection).config.params.vectors or {}
        vectors = {}
        for name, about in (params if isinstance(params, dict) else {"": params}).items():
            distance = str(getattr(about.distance, "value", about.distance))
            metric = "several vectors" if about.multivector_config else distance.lower()
            vectors[name] = (int(about.size), _METRICS.get(distance, metric))
        return {}, [""], vectors, []

    def get(self, keys: Iterable[Any], *names: str) -> dict[Any, Row]:
        if not (wanted := [*keys]):
            return {}
        payload, vectors = self._wanted(names)
        options = {"with_payload": payload or not names, "with_vectors": vectors}
        points = self.call("retrieve", self.collection, wanted, **options)
        return {point.id: self._row(point) for point in points}

    def search(
        self, field: str, queries: Sequence[Any], n: int, where: Filter, *names: str
    ) -> list[list[Found]]:
        payload, vectors = self._wanted(names)
        options: dict[str, Any] = {"using": field or None, "filter": self._filter(where)}
        options |= {"limit": n, "with_vector": vectors, "with_payload": payload or False}
        if not self.is_exact:  # local mode warns of what is for a graph
            options["params"] = models.SearchParams(hnsw_ef=max(n, CANDIDATES))
        asked = [_sparse(q) if isinstance(q, dict) else q.tolist() for q in queries]
        requests = [models.QueryRequest(query=query, **options) for query in asked]
        answers = self.call("query_batch_points", self.collection, requests) if requests else ()
        return [[(p.id, p.score, self._row(p)) for p in answer.points] for answer in answers]

    def _wanted(self, names: Sequence[str]) -> tuple[list[str], bool | list[str]]:
        """Return which values of the payload are asked for, and which vectors."""
        field = self.vector_field  # without a name it is a point's only vector
        payload = [name for name in names if name != field]
        return payload, field in names and ([field] if field else True)

    def _row(self, point: Model) -> Row:
        """Return the values of a point, whose vector is a list, or one by name, or missing."""
        row, vector = point.payload or {}, point.vector
        if isinstance(vector, dict):
            vector = vector.get(self.vector_field)
        return row if vector is None else row | {self.vector_field: np.asarray(vector, np.float32)}

    def _filter(self, where: Filter) -> Model:
        every = self._every(where.conditions)
        if where.alternatives:
            every.must.append(models.Filter(should=[*map(self._every, where.alternatives)]))
        return every if where else None

    def _every(self, conditions: Sequence[Condition]) -> Model:
        every = models.Filter(must=[], must_not=[])
        for c in conditions:
            is_wanted = (c.kind in ("not", LACKS)) == c.is_negated
            (every.must if is_wanted else every.must_not).append(self._test(c))
        return every

    def _test(self, condition: Condition) -> Model:
        """Write a condition on a field of payloads; of ``not`` and ``LACKS`` what must not hold."""
        key, kind, values = condition.name, condition.kind, condition.values
        if key == self.id_field:
            return models.HasIdCondition(has_id=[*values])
        if kind in RANGES:
            if not isinstance(values[0], str):
                return models.FieldCondition(key=key, range=models.Range(**{kind: values[0]}))
            dates = date_range(condition)  # in a collection of others
            moment = datetime.fromtimestamp(float(dates.values[0]), UTC)
            limits = models.DatetimeRange(**{dates.kind: moment})
            return models.FieldCondition(key=key, range=limits)
        if kind == "exists":
            empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=key))
            return models.Filter(**{"must_not" if values[0] else "must": [empty]})
        if kind == LACKS:
            return models.Filter(must=[_any_of(key, [term]) for term in values])
        # Texts and whole numbers are compared at once; a test without values is never met.
        lists = [[v for v in values if type(v) is of_type] for of_type in (str, int)]
        tests = [_any_of(key, listed) for listed in lists if listed]
        for value in values:
            if isinstance(value, float):
                limits = models.Range(gte=value, lte=value)
                tests.append(models.FieldCondition(key=key, range=limits))
            elif isinstance(value, bool):
                tests.append(models.FieldCondition(key=key, match=models.MatchValue(value=value)))
        return models.Filter(should=tests or [_any_of(key, ())])

    def target(self) -> str:
        aliases = self.call("get_aliases").aliases
        return next((a.collection_name for a in aliases if a.alias_name == self.alias), "")

    def names(self) -> list[str]:
        return [listed.name for listed in self.call("get_collections").collections]

    def create_collection(self) -> None:
        settings = self.settings
        vector = models.VectorParams(size=settings.dimension, distance=models.Distance.DOT)
        if settings.vectors == "exact":
            vector.hnsw_config = models.HnswConfigDiff(m=0)  # no graph
        rarity = models.SparseVectorParams(modifier=models.Modifier.IDF)
        words = {WORDS: rarity} if settings.words else None
        self.call("create_collection", self.collection, {VECTOR: vector}, words)
        for name, kind in _INDEXES.items():
            self.create_index(name, kind)

    def create_index(self, name: str, kind: str = "float") -> None:
        """Index a field of the payload; local mode has no such indexes, and warns."""
        if not self.is_exact:
            self.call("create_payload_index", self.collection, name, kind)

    def finish(self) -> None:
        """Wait for the graph: until it is built, a server compares all points."""
        while self.call("get_collection", self.collection).status == "yellow":
            time.sleep(1)

    def switch(self, old: str) -> None:
        alias = models.CreateAlias(collection_name=self.collection, alias_name=self.alias)
        changes: list[Model] = [models.CreateAliasOperation(create_alias=alias)]
        if old:
            former = models.DeleteAlias(alias_name=self.alias)
            changes.insert(0, models.DeleteAliasOperation(delete_alias=former))
        self.call("update_collection_aliases", changes)

    def drop(self, collection: str) -> None:
        self.call("delete_collection", collection)

    def insert(self, points: list[Row]) -> None:
        structs = []
        for point in points:
            payload = {**point, "body": json.loads(point["body"])}
            key, vector, words = (payload.pop(name) for name in ("key", VECTOR, WORDS))
            named: dict[str, Any] = {} if vector is None else {VECTOR: vector.tolist()}
            if words:
                named[WORDS] = _sparse(term_weights(words, self.mean_length))
            structs.append(models.PointStruct(id=key, vector=named, payload=payload))
        self.call("upsert", self.collection, structs)

    def remove(self, *conditions: Condition) -> None:
        self.call("delete", self.collection, self._every(conditions))

    def count(self, where: Filter) -> int:
        return int(self.call("count", self.collection, self._filter(where), exact=True).count)

    def select(self, where: Filter, n: int) -> list[int]:
        """Scroll, which is in the order of ids."""
        options = {"limit": n or 1, "with_payload": False}
        points, _ = self.call("scroll", self.collection, self._filter(where), **options)
        return [point.id for point in points]


def _any_of(name: str, values: Iterable[Any]) -> Model:
    return models.FieldCondition(key=name, match=models.MatchAny(any=[*values]))


def _sparse(weights: dict[int, float]) -> Model:
    return models.SparseVector(indices=[*weights], values=[*weights.values()])


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
