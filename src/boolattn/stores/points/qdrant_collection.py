"""A collection of Qdrant's that someone else filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError
from boolattn.settings import checked
from boolattn.stores.filters import RANGES
from boolattn.stores.foreign import COSINE, DOT, L2, Collection, Neighbours, check_metric
from boolattn.stores.points.qdrant_connection import TIMEOUT, Connection, models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.stores.filters import Condition
    from boolattn.stores.foreign import Array, Row
    from boolattn.stores.values import Value

    Client = Any

_METRICS = {"Cosine": COSINE, "Dot": DOT, "Euclid": L2}


class QdrantCollection(Collection):
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
        self._collection, self._connection = collection, Connection(client, self.name, timeout)
        params = self._connection.call("get_collection", collection).config.params.vectors
        if not isinstance(params, dict):
            params = {"": params}
        if not vector and len(params) == 1:
            [vector] = params
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
        options: dict[str, Any] = {"using": self._using, "filter": _payload_filter(conditions)}
        options |= {"limit": n, "with_vector": [self._using] if self._using else True}
        answers = self._connection.search(self._collection, queries.tolist(), **options)
        return [self._neighbours(points) for points in answers]

    def vectors(self, ids: Sequence[Any]) -> dict[Any, Array]:
        """Return vectors by point id."""
        points = self._connection.call(
            "retrieve", self._collection, list(ids), with_payload=False, with_vectors=True
        )
        return dict(zip(*self._neighbours(points), strict=True))

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        """Return payloads by point id."""
        points = self._connection.call("retrieve", self._collection, list(ids))
        return {point.id: point.payload or {} for point in points}

    def _neighbours(self, points: Sequence[Any]) -> Neighbours:
        """Return points with their vectors, which are lists, or lists by name."""
        vectors = [p.vector if isinstance(p.vector, dict) else {"": p.vector} for p in points]
        pairs = zip(points, vectors, strict=True)
        return self.neighbours((point.id, named.get(self._using or "")) for point, named in pairs)


def _payload_filter(conditions: Sequence[Condition]) -> Any:  # noqa: ANN401 - a model of Qdrant's
    """Write conditions on the fields of payloads as a filter of Qdrant."""
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
    if isinstance(value, float):
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))
