"""Connections to Qdrant, and external collections of it.

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
from contextlib import closing, nullcontext
from enum import Enum
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, IndexBusyError, MissingDataError
from boolattn.settings import checked
from boolattn.stores.filters import RANGES
from boolattn.stores.foreign import COSINE, DOT, Collection
from boolattn.stores.points.database import CANDIDATES, one_line

try:
    from qdrant_client import QdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException
except ImportError as error:
    raise MissingDataError("Qdrant needs: pip install 'boolattn[qdrant]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from boolattn.stores.filters import Condition
    from boolattn.stores.foreign import Array, Row, Vectors
    from boolattn.stores.values import Value

    Client = Any

__all__ = ["TIMEOUT", "QdrantCollection", "QdrantConnection", "models"]

TIMEOUT = 30
#: What the client raises, and besides what a damaged folder does.
_ERRORS = (ApiException, QdrantException, ValueError, RuntimeError, OSError, sqlite3.Error)
_DAMAGE = (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError)
#: Open folders of local mode, each of which allows one client.
_folders: dict[Path, QdrantClient] = {}
#: Local mode is no server: two threads may not use it at once.
_LOCK = RLock()
_METRICS = {"Cosine": COSINE, "Dot": DOT}


class QdrantConnection:
    """A server, which is connected to again where a connection broke, or a folder of local mode.

    The client may also be an address with ``://``, or a folder. The label names it in errors.
    """

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
    try:
        client = QdrantClient(path=str(folder), force_disable_check_same_thread=True)
    except RuntimeError as error:
        raise IndexBusyError(
            f"another process holds the folder {folder}; wait until it ends, or use a server"
        ) from error
    _folders[folder] = client
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


class QdrantCollection(Collection):
    """A collection as it is.

    Args:
        client: A ``QdrantClient``, an address, or a folder of local mode. The key of an address is
            read from ``QDRANT_API_KEY``.
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
        self._connection = QdrantConnection(client, self.name)
        self._collection = collection
        params = self._connection.call("get_collection", collection).config.params.vectors
        if not isinstance(params, dict):
            params = {"": params}
        vector = self.choose("vector", vector, params)
        self._using, self.dimension = vector or None, int(params[vector].size)
        if getattr(params[vector], "multivector_config", None) is not None:
            raise ConfigError(f"{self.name}: a point has several vectors, which is not supported")
        distance = str(getattr(params[vector].distance, "value", params[vector].distance))
        self.metric = _METRICS.get(distance, distance.lower())

    def nearest(
        self, queries: Array, n: int, conditions: Sequence[Condition] = ()
    ) -> list[Vectors]:
        tests = models.Filter(must=[*map(_test, conditions)]) if conditions else None
        options: dict[str, Any] = {"using": self._using, "filter": tests}
        options |= {"limit": n, "with_vector": [self._using] if self._using else True}
        answers = self._connection.search(self._collection, queries.tolist(), **options)
        return [self._vectors(points) for points in answers]

    def vectors(self, ids: Sequence[Any]) -> Vectors:
        points = self._connection.call(
            "retrieve", self._collection, list(ids), with_payload=False, with_vectors=True
        )
        return self._vectors(points)

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        points = self._connection.call("retrieve", self._collection, list(ids))
        return {point.id: point.payload or {} for point in points}

    def _vectors(self, points: Sequence[Any]) -> Vectors:
        """Return the vectors of points, which are lists, or lists by name, or missing."""
        named = {p.id: p.vector if isinstance(p.vector, dict) else {"": p.vector} for p in points}
        lists = {key: vectors.get(self._using or "") for key, vectors in named.items()}
        return {key: np.array(v, np.float32) for key, v in lists.items() if v is not None}


def _test(condition: Condition) -> Any:  # noqa: ANN401 - a model of Qdrant's
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


def _equal(key: str, value: Value) -> Any:  # noqa: ANN401 - a model of Qdrant's
    if isinstance(value, float):
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))
