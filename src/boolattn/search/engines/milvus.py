"""Milvus as an engine: a file (Milvus Lite), or a server or cluster by its address.

Milvus finds neighbours, filters and deletes; documents, and the vectors of composed scores, stay in
the index's folder. Milvus stores metadata as tags (a field's name with the hash of its value) and
numbers, so that filters mean the same as in other engines. A cluster's token is read from
``MILVUS_TOKEN`` and never stored.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.exact import Ranked
from boolattn.errors import BoolattnError, IndexFolderError
from boolattn.search.engines.tuning import TunedEngine
from boolattn.search.filters import RANGES
from boolattn.search.storage.manifest import read_manifest
from boolattn.search.storage.segments import COMPARED
from boolattn.search.storage.transaction import MILVUS
from boolattn.search.storage.values import filter_hash, items
from boolattn.search.stores.milvus import LIMIT, SIGNS, TIMEOUT, connect, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from boolattn.search.engines.base import Engine, Job, Selection
    from boolattn.search.filters import Condition
    from boolattn.search.storage.manifest import FileEntry, Manifest
    from boolattn.search.storage.segments import Array, RowNumbers, Rows
    from boolattn.search.storage.values import Metadata

    Client = Any

N_SAMPLE = 50
_BATCH = 1000
_QUERIES = 16
_FIRST_EFFORT, _MOST_EFFORT = 32, 4096
_MAX_TAGS = 1024
#: In place of a hash: the field has a value.
_EXISTS = 0


class Milvus(TunedEngine):
    """A collection opened for searching."""

    limit = LIMIT

    def __init__(self, client: Client, rows: Rows, settings: Mapping[str, Any]) -> None:
        super().__init__(rows, settings)
        self._client, self._collection = client, settings["collection"]
        with one_line(self._collection):
            client.load_collection(self._collection)
            found = int(client.get_collection_stats(self._collection)["row_count"])
        if found < rows.n_live:
            raise IndexFolderError(
                f"Milvus holds {found} of the index's {rows.n_live} vectors; index again"
            )
        # A killed writer may have left rows, or not have deleted some yet.
        self._n_extra = found - rows.n_live

    def search(self, queries: Array, n: int, selection: Selection) -> Ranked:
        """Search the collection, with the filters as an expression of Milvus."""
        n = min(n, len(self._rows), LIMIT)
        limit = min(n + self._n_extra, LIMIT)
        # Candidates of its graph; never fewer than the results.
        effort = round(max(self.effort_for(n), limit))
        data = list(np.ascontiguousarray(queries, np.float32))
        answers: list[Any] = []
        with one_line(self._collection):
            # Few at a time, so that many queries do not exceed the time of one call.
            for start in range(0, len(data), _QUERIES):
                answers += self._client.search(
                    self._collection,
                    data=data[start : start + _QUERIES],
                    limit=limit,
                    search_params={"params": {"ef": effort}},
                    filter=expression(selection.conditions),
                    output_fields=["row"],
                    timeout=TIMEOUT,
                )
        rows = np.full((len(queries), n), -1, np.int64)
        scores = np.full((len(queries), n), -np.inf, np.float32)
        for place, answer in enumerate(answers):
            own = np.array([hit["row"] for hit in answer], np.int64)
            values = np.array([hit["distance"] for hit in answer], np.float32)
            inside = own < len(self._rows)
            allowed = inside & selection.allows(np.where(inside, own, -1))
            count = min(n, int(allowed.sum()))
            rows[place, :count], scores[place, :count] = own[allowed][:n], values[allowed][:n]
        return Ranked(rows, scores)

    @classmethod
    def write(cls, job: Job) -> tuple[dict[str, Any], dict[str, FileEntry]]:
        """Create a collection, or add rows to an existing one."""
        rows, manifest = job.rows, job.manifest
        settings, new = manifest.engine_settings, f"{_prefix(job.folder)}_{manifest.generation}"
        uri, name = settings.get("uri", job.uri), settings.get("collection", new)
        client = connect(_address(job.folder, uri))
        with one_line(name):
            if job.first_row:
                # Rows of a killed writer.
                client.delete(name, filter=f"row >= {job.first_row}")
            else:
                _drop_stale(client, job.folder)
                _create(client, name, manifest.dimension)
            for start in range(job.first_row, len(rows), _BATCH):
                client.insert(name, _entries(rows, start, min(start + _BATCH, len(rows))))
            client.flush(name)
            if not job.first_row:
                # New rows are compared one by one until the collection is loaded again, which
                # would overstate the recall. A collection in use is not released.
                client.release_collection(name)
        own = {"uri": uri, "collection": name}
        engine = cls(client, rows, own)
        return own | engine.tune(job.sample()[:N_SAMPLE], _FIRST_EFFORT, _MOST_EFFORT), {}

    @classmethod
    def open(cls, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        """Open a collection."""
        settings = manifest.engine_settings
        client = connect(_address(folder, settings["uri"]))
        return cls(client, rows, settings)

    @classmethod
    def delete_rows(cls, folder: Path, manifest: Manifest, rows: RowNumbers) -> None:
        """Delete rows of the collection."""
        settings = manifest.engine_settings
        client, own = connect(_address(folder, settings["uri"])), rows.tolist()
        with one_line(settings["collection"]):
            for start in range(0, len(own), _BATCH):
                client.delete(settings["collection"], ids=own[start : start + _BATCH])
            client.flush(settings["collection"])


def expression(conditions: tuple[Condition, ...]) -> str:
    """Write conditions as an expression of Milvus."""
    parts = []
    for condition in conditions:
        name, kind = condition.name, condition.kind
        if kind in RANGES:
            column = json.dumps(f"{condition.column}:{name}")
            parts.append(f"numbers[{column}] {SIGNS[kind]} {condition.values[0]}")
            continue
        is_negated = kind == "not" or (kind == "exists" and not condition.values[0])
        hashes = (_EXISTS,) if kind == "exists" else condition.hashes
        tags = json.dumps([_tag(name, one) for one in hashes])
        own = f"array_contains_any(tags, {tags})" if hashes else "row < 0"
        parts.append(f"(not {own})" if is_negated else own)
    return " and ".join(parts)


def _create(client: Client, name: str, dimension: int) -> None:
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
    schema.add_field(
        "tags",
        DataType.ARRAY,
        element_type=DataType.VARCHAR,
        max_capacity=_MAX_TAGS,
        max_length=256,
    )
    schema.add_field("numbers", DataType.JSON)
    index = client.prepare_index_params()
    # Vectors of cosine models have length 1, so the inner product is the cosine.
    graph = {"M": 32, "efConstruction": 80}
    index.add_index("vector", index_type="HNSW", metric_type="IP", params=graph)
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")


def _entries(rows: Rows, start: int, end: int) -> list[dict[str, Any]]:
    chosen = np.arange(start, end)
    vectors, columns = rows.vectors(chosen), {}
    for name in (f"{kind}:{name}" for kind in COMPARED for name in rows.names()):
        if rows.has_column(name):
            columns[name] = rows.column(name)
    numbers = np.searchsorted(rows.first_rows, chosen, side="right") - 1
    return [
        {
            "row": row,
            "vector": vectors[place],
            "tags": _tags(rows.document(number).metadata),
            # NaN, which is not equal to itself, is no value.
            "numbers": {n: v[number] for n, v in columns.items() if v[number] == v[number]},
        }
        for place, (row, number) in enumerate(zip(chosen.tolist(), numbers.tolist(), strict=True))
    ]


def _tags(metadata: Metadata) -> list[str]:
    """Return a tag for each field, and one for each of its values; Milvus has a limit."""
    found = [_tag(name, _EXISTS) for name in metadata]
    for name, value in metadata.items():
        found += [_tag(name, filter_hash(one)) for one in items(value)]
    return list(dict.fromkeys(found))[:_MAX_TAGS]


def _drop_stale(client: Client, folder: Path) -> None:
    """Drop the collections of earlier builds, but for the one in use."""
    in_use = ""
    with suppress(BoolattnError):
        in_use = read_manifest(folder).engine_settings.get("collection", "")
    for name in client.list_collections():
        if name.startswith(_prefix(folder) + "_") and name != in_use:
            client.drop_collection(name)


def _tag(name: str, value: int) -> str:
    short = name if len(name) < 64 else hashlib.sha256(name.encode()).hexdigest()
    return f"{short}={value:016x}"


def _prefix(folder: Path) -> str:
    return "boolattn_" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]


def _address(folder: Path, uri: str) -> str:
    """Return the address, or the path of a file; left out, one in the index."""
    return uri if "://" in uri else str(folder.resolve() / (uri or MILVUS))
