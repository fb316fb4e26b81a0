"""Milvus as an engine: a file (Milvus Lite), or a server or cluster by its address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.errors import ServerError
from boolattn.search.engines.database import (
    Collection,
    DatabaseEngine,
    number_name,
    stored_condition,
)
from boolattn.search.filters import RANGES, SIGNS
from boolattn.search.storage.transaction import MILVUS
from boolattn.search.stores.milvus import LIMIT, TIMEOUT, connect, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.search.engines.base import Selection
    from boolattn.search.engines.database import Answers, Entry
    from boolattn.search.filters import Condition
    from boolattn.search.storage.segments import Array


class _Collection(Collection):
    default, limit = MILVUS, LIMIT

    def __init__(self, address: str, name: str) -> None:
        self._name, self._client = name, connect(address)
        self.label, self._what = f"Milvus ({name})", name or address
        self._folder = Path(address, "collections", name)  # of Milvus Lite

    def _call(self, method: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
        with one_line(self._what):
            return getattr(self._client, method)(*values, **options)

    def names(self) -> list[str]:
        return list(self._call("list_collections", timeout=TIMEOUT))

    def drop(self, name: str) -> None:
        self._call("drop_collection", name)

    def create(self, dimension: int, max_tags: int) -> None:
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
        texts = {"element_type": DataType.VARCHAR, "max_capacity": max_tags, "max_length": 256}
        schema.add_field("tags", DataType.ARRAY, **texts)
        schema.add_field("numbers", DataType.JSON)
        index, graph = self._client.prepare_index_params(), {"M": 32, "efConstruction": 80}
        index.add_index("vector", index_type="HNSW", metric_type="IP", params=graph)
        own = {"schema": schema, "index_params": index, "consistency_level": "Strong"}
        self._call("create_collection", self._name, **own)
        # Loaded when its rows are there: Milvus Lite would read a graph while it writes it.
        self._call("release_collection", self._name)

    def insert(self, entries: Sequence[Entry]) -> None:
        self._call("insert", self._name, [entry._asdict() for entry in entries])

    def finish(self, *, is_new: bool) -> None:
        self._call("flush", self._name)

    def delete(self, rows: Sequence[int]) -> None:
        self._call("delete", self._name, ids=list(rows))

    def delete_from(self, row: int) -> None:
        self._call("delete", self._name, filter=f"row >= {row}")

    def count(self) -> int:
        try:
            self._call("load_collection", self._name)
        except ServerError:
            # A killed writer may have cut a graph of Milvus Lite, which makes missing ones anew.
            if not (graphs := [*self._folder.glob("partitions/*/indexes/*.idx")]):
                raise
            for path in graphs:
                path.unlink()
            self._call("load_collection", self._name)
        return int(self._call("get_collection_stats", self._name)["row_count"])

    def search(self, queries: Array, n: int, effort: int, selection: Selection) -> Answers:
        answers = self._call(
            "search",
            self._name,
            data=list(queries),
            limit=n,
            search_params={"params": {"ef": effort}},
            filter=expression(selection.conditions),
            output_fields=["row"],
            timeout=TIMEOUT,
        )
        return [([hit["row"] for hit in a], [hit["distance"] for hit in a]) for a in answers]


class Milvus(DatabaseEngine):
    """Milvus as an engine."""

    collection = _Collection


def expression(conditions: tuple[Condition, ...]) -> str:
    """Write conditions as an expression of Milvus."""
    parts = []
    for condition in conditions:
        if condition.kind in RANGES:
            name = number_name(condition.column, condition.name)
            column = json.dumps(name, ensure_ascii=False)
            parts.append(f"numbers[{column}] {SIGNS[condition.kind]} {condition.values[0]}")
            continue
        own = stored_condition(condition)
        test = f"array_contains_any(tags, {json.dumps(own.values, ensure_ascii=False)})"
        parts.append(f"(not {test})" if own.kind == "not" else test)
    return " and ".join(parts)
