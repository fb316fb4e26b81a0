"""A store in Qdrant: a server or cluster by its address, or a folder (local mode)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.stores.address import parse_server
from boolattn.stores.analysis import term_weights
from boolattn.stores.filters import RANGES, Filter, tag_condition
from boolattn.stores.points.database import VECTOR, WORDS, Match, number_key
from boolattn.stores.points.qdrant_collection import QdrantConnection, models
from boolattn.stores.points.store import PointStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from boolattn.stores.filters import Condition
    from boolattn.stores.points.database import Row

    #: A model of the client's.
    Model = Any

_INDEXES = {"document": "integer", "part": "integer"}
_INDEXES |= dict.fromkeys(("version", "tags", "asserted", "denied"), "keyword")


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

    def search(
        self, field: str, vectors: Sequence[Any], n: int, where: Filter
    ) -> list[list[Match]]:
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

    def remove(self, keys: Collection[int]) -> None:
        self.call("delete", [*keys])

    def remove_rest(self, documents: Collection[int], versions: Collection[str]) -> None:
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
        name = f"numbers.{number_key(condition.number)}"
        limits = models.Range(**{condition.kind: condition.values[0]})
        test, is_wanted = models.FieldCondition(key=name, range=limits), not condition.is_negated
    else:
        tags, is_wanted = tag_condition(condition)
        test = _any_of("tags", tags)
    return test if is_wanted else models.Filter(must_not=[test])


def _any_of(name: str, values: Iterable[Any]) -> Model:
    return models.FieldCondition(key=name, match=models.MatchAny(any=[*values]))


def _sparse(weights: dict[int, float]) -> Model:
    return models.SparseVector(indices=[*weights], values=[*weights.values()])
