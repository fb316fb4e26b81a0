"""A Qdrant collection: a server or cluster by its address, or a folder (local mode)."""

from __future__ import annotations

import atexit
import io
import os
import pickle  # nosec B403
import sqlite3
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError, MissingDataError, ServerError
from boolattn.search.filters import RANGES
from boolattn.search.stores.base import COSINE, DOT, L2, Neighbours, Store, as_array, check_metric
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.search.filters import Condition
    from boolattn.search.storage.values import Value
    from boolattn.search.stores.base import Array, Row

    Client = Any

TIMEOUT = 30
_METRICS = {"Cosine": COSINE, "Dot": DOT, "Euclid": L2}
#: Least candidates of its graph; never fewer than the neighbours.
_CANDIDATES = 128
#: What a damaged folder raises besides.
_BROKEN = (sqlite3.Error, pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError)
#: Open folders of local mode.
_folders: dict[Path, Any] = {}


class QdrantStore(Store):
    """A collection as it is.

    Args:
        client: A ``QdrantClient``, an address, or a folder of local mode. The key of an address is
            read from ``QDRANT_API_KEY``.
        collection: Its name.
        vector: The name of the vector, where points have several.
        text: The field of the payload with the text.
        title: The field with the title.
        timeout: Seconds that an answer may take.
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
        timeout: float = TIMEOUT,
    ) -> None:
        self.name, self.text, self.title = f"Qdrant ({collection})", text, title
        self._collection, self._timeout = collection, max(1, round(timeout))
        with one_line(self.name):
            self._client = connect(client, timeout) if isinstance(client, str) else client
            params = self._client.get_collection(collection).config.params.vectors
        self._is_local = is_local(self._client)
        if not isinstance(params, dict):
            params = {"": params}
        if vector not in params:
            names = ", ".join(map(repr, params)) or "none"
            raise ConfigError(f"{self.name} has no vector {vector!r}; there are: {names}")
        self._using, self.dimension = vector or None, int(params[vector].size)
        if getattr(params[vector], "multivector_config", None) is not None:
            raise ConfigError(f"{self.name}: a point has several vectors, which is not supported")
        distance = str(getattr(params[vector].distance, "value", params[vector].distance))
        self.metric = check_metric(self.name, _METRICS.get(distance, distance.lower()))

    def nearest(
        self, queries: Array, n: int, conditions: Sequence[Condition] = ()
    ) -> list[Neighbours]:
        """Search the collection, all queries in one request."""
        from qdrant_client import models

        # Local mode is exact, and warns of what is for a graph.
        effort = None if self._is_local else models.SearchParams(hnsw_ef=max(n, _CANDIDATES))
        requests = [
            models.QueryRequest(
                query=query.tolist(),
                using=self._using,
                filter=payload_filter(conditions),
                params=effort,
                limit=n,
                with_vector=[self._using] if self._using else True,
            )
            for query in queries
        ]
        with one_line(self.name):
            answers = self._client.query_batch_points(
                self._collection, requests, timeout=self._timeout
            )
        return [self._neighbours(answer.points) for answer in answers]

    def vectors(self, ids: Sequence[Any]) -> dict[Any, Array]:
        """Return vectors by point id."""
        with one_line(self.name):
            points = self._client.retrieve(
                self._collection, list(ids), with_payload=False, with_vectors=True
            )
        return dict(zip(*self._neighbours(points), strict=True))

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        """Return payloads by point id."""
        with one_line(self.name):
            points = self._client.retrieve(self._collection, list(ids), timeout=self._timeout)
        return {point.id: point.payload or {} for point in points}

    def _neighbours(self, points: Sequence[Any]) -> Neighbours:
        own = [(point.id, self._vector(point.vector)) for point in points]
        own = [(name, vector) for name, vector in own if vector is not None]
        vectors = as_array([vector for _, vector in own], self.dimension)
        return Neighbours([name for name, _ in own], vectors)

    def _vector(self, vector: Any) -> Any:  # noqa: ANN401 - a list, or lists by name
        return vector.get(self._using or "") if isinstance(vector, dict) else vector


def connect(address: str, timeout: float) -> Client:
    """Connect to a server, or open a folder, once: it allows one client."""
    try:
        from qdrant_client import QdrantClient
    except ImportError as error:
        raise MissingDataError("Qdrant needs: pip install 'boolattn[qdrant]'") from error
    if "://" not in address:
        return _open_folder(Path(address).resolve())
    return QdrantClient(
        url=address,
        api_key=os.environ.get("QDRANT_API_KEY"),
        timeout=max(1, round(timeout)),
        check_compatibility=False,
    )


def is_local(client: Client) -> bool:
    """Return whether a client is its own database, in a folder or in memory."""
    own = client.init_options
    return bool(own.get("path")) or own.get("location") == ":memory:"


def _open_folder(folder: Path) -> Client:
    from qdrant_client import QdrantClient
    from qdrant_client.local import persistence

    meta, known = folder / "meta.json", _folders.get(folder)
    if known is not None and meta.exists():
        return known
    if meta.exists() and not meta.stat().st_size:
        meta.unlink()  # its process was killed before it wrote anything
    reader = SimpleNamespace(dumps=pickle.dumps, loads=lambda raw: _Points(io.BytesIO(raw)).load())
    persistence.pickle = reader
    _folders[folder] = QdrantClient(path=str(folder), force_disable_check_same_thread=True)
    atexit.register(_folders[folder].close)
    return _folders[folder]


class _Points(pickle.Unpickler):
    """Reads points, and refuses any other class: a pickle could run code."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class
        from qdrant_client.http.models import models

        found = getattr(models, name, None) if module == models.__name__ else None
        if isinstance(found, type) and issubclass(found, models.BaseModel | Enum):
            return found
        raise ValueError(f"a folder of Qdrant holds {module}.{name}, which is no point")


def payload_filter(conditions: Sequence[Condition]) -> Any:  # noqa: ANN401 - a model of Qdrant's
    """Write conditions as a filter of Qdrant."""
    from qdrant_client import models

    if not conditions:
        return None
    every = list[Any](), list[Any]()
    for condition in conditions:
        must, must_not = every[::-1] if condition.is_negated else every
        key, kind, values = condition.name, condition.kind, condition.values
        if kind in RANGES:
            model = models.DatetimeRange if isinstance(values[0], str) else models.Range
            must.append(models.FieldCondition(key=key, range=model(**{kind: values[0]})))
        elif kind == "contains":
            match = models.MatchText(text=str(values[0]))
            must.append(models.FieldCondition(key=key, match=match))
        elif kind == "exists":
            is_empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=key))
            (must_not if values[0] else must).append(is_empty)
        else:
            any_of = models.Filter(should=[_equal(key, value) for value in values])
            (must_not if kind == "not" else must).append(any_of)
    return models.Filter(must=every[0], must_not=every[1])


def _equal(key: str, value: Value) -> Any:  # noqa: ANN401 - a model of Qdrant's
    from qdrant_client import models

    if isinstance(value, float):
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


@contextmanager
def one_line(name: str) -> Iterator[None]:
    """Turn errors of the client into one line."""
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException

    try:
        yield
    except (ApiException, QdrantException, ValueError, RuntimeError, OSError, *_BROKEN) as error:
        text = " ".join(str(error).split())[:300] or type(error).__name__
        raise ServerError(f"{name}: {text}") from error
