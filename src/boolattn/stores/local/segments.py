"""Segments: documents and their vectors on disk, immutable once they are written.

A segment's folder is named by a hash of the model and the documents, so a build that is resumed
finds the segments it finished, and a rebuild encodes only what changed. It holds ``vectors.npy``,
``documents.jsonl`` and ``rows.safetensors``: for each row, which is a passage of a document, its
span; for each document its first row, its offset and its hashed id; and for each field of the
metadata the hash of its first value, further values of a list with their rows, and the largest
and smallest number and the latest and earliest date, where it has any.
"""

from __future__ import annotations

import json
import mmap
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from safetensors.numpy import load_file, save

from boolattn.data.records import Document
from boolattn.errors import IndexFolderError
from boolattn.stores.batches import document_numbers
from boolattn.stores.filters import COMPARED
from boolattn.stores.local.manifest import PART, SEGMENTS, FileEntry, SegmentEntry, describe, sync
from boolattn.stores.values import filter_hash, items, value_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.stores.base import Array, Keys
    from boolattn.stores.batches import Batch
    from boolattn.stores.local.manifest import Manifest

VECTORS, DOCUMENTS, ROWS, ABOUT = "vectors.npy", "documents.jsonl", "rows.safetensors", "about.json"


def columns(batch: Batch) -> dict[str, NDArray[Any]]:
    """Return the columns of ``rows.safetensors``."""
    ends = np.cumsum([len(line) for line in batch.lines], dtype=np.uint64)
    counts = np.cumsum([len(spans) for spans in batch.spans], dtype=np.uint64)
    arrays: dict[str, NDArray[Any]] = {
        "span": np.array([span for spans in batch.spans for span in spans], np.uint64),
        "first_row": np.concatenate([np.zeros(1, np.uint64), counts]),
        "offset": np.concatenate([np.zeros(1, np.uint64), ends]),
        "key": np.array([value_hash(d.id) for d in batch.documents], np.uint64),
    }
    for name in sorted({name for d in batch.documents for name in d.metadata}):
        cells = [items(d.metadata.get(name)) for d in batch.documents]
        hashes = [[filter_hash(value) for value in cell] for cell in cells]
        first = [cell[0] if cell else 0 for cell in hashes]
        arrays[f"hash:{name}"] = np.array(first, np.uint64)
        if more := [(row, extra) for row, cell in enumerate(hashes) for extra in cell[1:]]:
            arrays[f"more_row:{name}"], arrays[f"more:{name}"] = np.array(more, np.uint64).T.copy()
    numbers = [document_numbers(d.metadata) for d in batch.documents]
    for name in sorted({name for row in numbers for name in row}):
        arrays[name] = np.array([row.get(name, np.nan) for row in numbers], np.float64)
    return arrays


def write_segment(
    folder: Path, name: str, batch: Batch, vectors: Array, precision: str
) -> SegmentEntry:
    """Write a segment; its folder gets its name when everything is on the disk."""
    target = folder / SEGMENTS / name
    part = target.with_name(name + PART)
    part.mkdir(parents=True, exist_ok=True)
    # By plain file writes: np.save and save_file hide why a write failed.
    stored, scales = rounded(vectors, precision)
    with (part / VECTORS).open("wb") as handle:
        npy.write_array_header_1_0(handle, npy.header_data_from_array_1_0(stored))
        handle.write(stored.data)
    (part / DOCUMENTS).write_bytes(b"".join(batch.lines))
    (part / ROWS).write_bytes(save(columns(batch) | scales))
    entries = {file: describe(part / file) for file in (VECTORS, DOCUMENTS, ROWS)}
    counts = {"count": len(vectors), "n_documents": len(batch.lines)}
    about = counts | {"files": {k: asdict(v) for k, v in entries.items()}}
    (part / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    for path in (*part.iterdir(), part):
        sync(path)
    # A segment with this name was found damaged.
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    sync(target.parent)
    return SegmentEntry(name, **counts)


def rounded(vectors: Array, precision: str) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Return vectors as they are stored, and with int8 the column of their scales."""
    if precision != "int8":
        return np.ascontiguousarray(vectors, precision), {}
    scales = np.maximum(np.abs(vectors).max(1), 1e-12).astype(np.float32) / np.float32(127)
    return np.rint(vectors / scales[:, None]).astype(np.int8), {"scale": scales}


def find_segment(folder: Path, name: str) -> SegmentEntry | None:
    """Return a segment that an earlier build finished, if its files are not damaged."""
    try:
        if any(describe(folder / p) != entry for p, entry in segment_files(folder, name).items()):
            return None
        about = _about(folder, name)
        return SegmentEntry(name, int(about["count"]), int(about["n_documents"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def segment_files(folder: Path, name: str) -> dict[str, FileEntry]:
    """Return a finished segment's files, by path in the index."""
    files = _about(folder, name)["files"]
    return {f"{SEGMENTS}/{name}/{file}": FileEntry(**entry) for file, entry in files.items()}


def _about(folder: Path, name: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads((folder / SEGMENTS / name / ABOUT).read_text(encoding="utf-8"))


class Segment:
    """A segment opened for reading: mapped into memory, or copied if the index is small."""

    def __init__(self, path: Path, entry: SegmentEntry, manifest: Manifest) -> None:
        self.path, self.count, self.n_documents = path, entry.count, entry.n_documents
        try:
            # "c": a private view that torch takes without a copy.
            mode: Any = None if (is_small := manifest.is_small) else "c"
            stored = np.load(path / VECTORS, mmap_mode=mode, allow_pickle=False)
            self.vectors: NDArray[Any] = np.asarray(stored)  # a map is slow to cut
            self.columns: Mapping[str, NDArray[Any]] = load_file(path / ROWS)
            with (path / DOCUMENTS).open("rb") as handle:
                text = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
            self._text = text[:] if is_small else text
            sizes = self.vectors.shape, len(self.columns["span"]), len(self.columns["key"])
        except Exception as error:  # numpy compiles a header, and raises what that raises
            raise IndexFolderError(f"cannot open {path}: {str(error).split(chr(10))[0]}") from error
        dimension, precision = manifest.settings.dimension, manifest.settings.precision
        fits = sizes == ((self.count, dimension), self.count, self.n_documents)
        if not fits or self.vectors.dtype != precision:
            raise IndexFolderError(f"{path} does not fit its manifest; build the index again")

    def block(self, rows: slice | Keys) -> Array:
        """Return the vectors of some rows, as they are compared."""
        vectors = self.vectors[rows]
        if vectors.dtype == np.float32:
            return vectors
        scales = self.columns.get("scale")
        values = vectors.astype(np.float32)
        return values if scales is None else values * scales[rows][:, None]

    def document(self, number: int) -> Document:
        """Read one document."""
        start, end = (int(value) for value in self.columns["offset"][number : number + 2])
        return Document(**json.loads(self._text[start:end]))


class Rows:
    """All segments as one sequence of documents, and one of rows: the passages of all documents.

    Filters, deletion and rankings are about documents, by their numbers; vectors are of rows.
    ``live`` tells which documents are not deleted; the numbers count deleted ones too.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        segments = self.segments = [
            Segment(folder / SEGMENTS / segment.name, segment, manifest)
            for segment in manifest.segments
        ]
        self.starts = np.cumsum([0, *(segment.count for segment in segments)])
        self._starts = np.cumsum([0, *(segment.n_documents for segment in segments)])
        first_rows = [
            segment.columns["first_row"][:-1].astype(np.int64) + start
            for segment, start in zip(segments, self.starts, strict=False)
        ]
        #: Of each document, and the number of rows.
        self.first_rows: Keys = np.concatenate([*first_rows, self.starts[-1:]])
        self.n_rows, self.n_documents = int(self.starts[-1]), len(self.first_rows) - 1
        self.has_passages = self.n_rows > self.n_documents
        self.live = np.ones(self.n_documents, bool)
        if manifest.deleted:
            try:
                self.live[np.load(folder / manifest.deleted, allow_pickle=False)] = False
            except (OSError, EOFError, ValueError, LookupError) as error:
                raise IndexFolderError(f"{folder} cannot be read: {error}") from error
        self._dimension = manifest.settings.dimension
        self._columns: dict[str, NDArray[Any]] = {}
        self._texts: dict[str, dict[int, str]] = {}

    def of_documents(self, numbers: Keys) -> tuple[Keys, Keys]:
        """Return the rows of some documents, and at which place those of each begin."""
        starts, counts = self.first_rows[numbers], np.diff(self.first_rows)[numbers]
        firsts = np.cumsum(counts) - counts
        return np.arange(int(counts.sum())) + np.repeat(starts - firsts, counts), firsts

    def spans(self, number: int) -> list[tuple[int, int]]:
        """Return the passages of a document."""
        index, local = self._locate(number)
        first, last = self.segments[index].columns["first_row"][local : local + 2].tolist()
        return [(a, b) for a, b in self.segments[index].columns["span"][first:last].tolist()]

    def row_vectors(self, rows: Keys) -> Array:
        """Return the vectors of some rows. Shape ``(rows, dim)``."""
        vectors = np.empty((len(rows), self._dimension), np.float32)
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.flatnonzero(np.bincount(numbers)):
            is_here = numbers == number
            vectors[is_here] = self.segments[number].block(rows[is_here] - self.starts[number])
        return vectors

    def document(self, number: int) -> Document:
        """Read one document."""
        index, local = self._locate(number)
        return self.segments[index].document(local)

    def _locate(self, number: int) -> tuple[int, int]:
        """Return the segment of a document, and its number there."""
        index = int(np.searchsorted(self._starts, number, side="right")) - 1
        return index, int(number - self._starts[index])

    def column(self, name: str) -> NDArray[Any]:
        """Return a column over all documents; 0 or NaN where a segment has no such column."""
        if name not in self._columns:
            is_compared = name.partition(":")[0] in COMPARED
            kind, empty = (np.float64, np.nan) if is_compared else (np.uint64, 0)
            default = {s: np.full(s.n_documents, empty, kind) for s in self.segments}
            arrays = [s.columns.get(name, default[s]) for s in self.segments]
            self._columns[name] = np.concatenate([np.zeros(0, kind), *arrays])
        return self._columns[name]

    def extremes(self, *names: str) -> tuple[float, float] | None:
        """Return the least and the largest number of some columns, if a segment has one."""
        columns = [s.columns[name] for s in self.segments for name in names if name in s.columns]
        if not columns:
            return None
        return float(min(map(np.nanmin, columns))), float(max(map(np.nanmax, columns)))

    def hashes(self, name: str) -> tuple[NDArray[np.uint64], Keys]:
        """Return the hashes of all values of a field, and the document of each; 0 is no value."""
        hashes, rows = [self.column(f"hash:{name}")], [np.arange(self.n_documents)]
        for start, segment in zip(self._starts, self.segments, strict=False):
            if (more := segment.columns.get(f"more:{name}")) is not None:
                hashes.append(more)
                rows.append(segment.columns[f"more_row:{name}"].astype(np.int64) + start)
        return np.concatenate(hashes), np.concatenate(rows)

    def texts(self, name: str) -> dict[int, str]:
        """Return the different texts of a field, by their hashes."""
        if name not in self._texts:
            hashes, rows = self.hashes(name)
            _, first = np.unique(hashes, return_index=True)
            cells = (items(self.document(row).metadata.get(name)) for row in rows[first].tolist())
            values = [value for cell in cells for value in cell]
            self._texts[name] = {filter_hash(v): v for v in values if isinstance(v, str)}
        return self._texts[name]

    def names(self) -> list[str]:
        """Return the names of the metadata."""
        split_names = {name.partition(":") for segment in self.segments for name in segment.columns}
        return sorted(name for kind, _, name in split_names if kind == "hash")

    def find(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the numbers of some ids; those of unknown and deleted documents are absent."""
        names = set(ids)
        hashes = np.array([value_hash(name) for name in names], np.uint64)
        is_there = np.isin(self.column("key"), hashes) & self.live
        # Two ids may share a hash.
        rows = {self.document(row).id: row for row in np.flatnonzero(is_there).tolist()}
        return {name: row for name, row in rows.items() if name in names}
