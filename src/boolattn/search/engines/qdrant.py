"""Qdrant as an engine: a folder (local mode, exact), or a server or cluster by its address."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from boolattn.search.engines.database import Collection, DatabaseEngine, stored_condition
from boolattn.search.storage.transaction import QDRANT
from boolattn.search.stores.qdrant import TIMEOUT, connect, is_local, one_line, payload_filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.search.engines.base import Selection
    from boolattn.search.engines.database import Answers, Entry
    from boolattn.search.storage.segments import Array


class _Collection(Collection):
    default, batch = QDRANT, 256  # a request of a server has at most 32 MB

    def __init__(self, address: str, name: str) -> None:
        self.label, self._name = f"Qdrant ({name or address})", name
        with one_line(self.label):
            self._client = connect(address, TIMEOUT)
        self._is_local = is_local(self._client)

    def _call(self, method: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
        with one_line(self.label):
            return getattr(self._client, method)(*values, **options)

    def names(self) -> list[str]:
        return [own.name for own in self._call("get_collections").collections]

    def drop(self, name: str) -> None:
        self._call("delete_collection", name)

    def create(self, dimension: int, _max_tags: int) -> None:
        from qdrant_client import models

        params = models.VectorParams(size=dimension, distance=models.Distance.DOT)
        self._call("create_collection", self._name, params)
        if not self._is_local:
            self._call("create_payload_index", self._name, "tags", "keyword")
            self._call("create_payload_index", self._name, "row", "integer")

    def insert(self, entries: Sequence[Entry]) -> None:
        from qdrant_client import models

        points = []
        for own in entries:
            payload = {"row": own.row, "tags": own.tags, "numbers": own.plain_numbers}
            vector = own.vector.tolist()
            points.append(models.PointStruct(id=own.row, vector=vector, payload=payload))
        self._call("upsert", self._name, points)

    def finish(self, *, is_new: bool) -> None:
        # Until its graph is built, a server compares all rows, which would overstate the recall.
        for _ in range(3600 if is_new else 0):
            if self._call("get_collection", self._name).status != "yellow":
                return
            time.sleep(1)

    def delete(self, rows: Sequence[int]) -> None:
        self._call("delete", self._name, list(rows))

    def delete_from(self, row: int) -> None:
        from qdrant_client import models

        later = models.FieldCondition(key="row", range=models.Range(gte=row))
        self._call("delete", self._name, models.Filter(must=[later]))

    def count(self) -> int:
        return int(self._call("count", self._name, exact=True).count)

    def search(self, queries: Array, n: int, effort: int, selection: Selection) -> Answers:
        from qdrant_client import models

        own = {
            "filter": payload_filter([*map(stored_condition, selection.conditions)]),
            # Local mode is exact, and warns of what is for a graph.
            "params": None if self._is_local else models.SearchParams(hnsw_ef=effort),
            "limit": n,
        }
        requests = [models.QueryRequest(query=query.tolist(), **own) for query in queries]
        answers = self._call("query_batch_points", self._name, requests, timeout=TIMEOUT)
        return [([p.id for p in a.points], [p.score for p in a.points]) for a in answers]


class Qdrant(DatabaseEngine):
    """Qdrant as an engine."""

    collection = _Collection
