"""Segments: documents and their vectors on disk, immutable once they are written.

A segment is a file of arrays in the format safetensors: vectors, documents as JSON, the spans of
passages, hashes of ids, and the values of each field of the metadata as hashes, numbers and dates.
Its name has a hash of the model and the documents, so that a build that is resumed finds the
segments it finished, and a rebuild encodes only what changed; and a hash of its content.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from boolattn.checksums import file_sum
from boolattn.data.records import Document
from boolattn.errors import IndexFolderError
from boolattn.stores.local.manifest import PART, SEGMENTS, Manifest, sync
from boolattn.stores.values import Value, filter_hash, is_number, items, moment_of, value_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.stores.base import Array, Keys
    from boolattn.stores.writer import Batch

    Columns = dict[str, NDArray[Any]]

ENDING = ".safetensors"
NUMBER, DATE = COMPARED = ("number", "date")


def _columns(batch: Batch) -> Columns:
    """Return the arrays of a segment, but for its vectors."""
    documents, lines = [entry.document for entry in batch], [entry.line for entry in batch]
    columns: Columns = {
        "text": np.frombuffer(b"".join(lines), np.uint8),
        "offset": np.cumsum([0, *map(len, lines)]),
        "n_rows": np.array([len(entry.spans) for entry in batch]),
        "span": np.array([span for entry in batch for span in entry.spans]),
        "id": np.array([value_hash(document.id) for document in documents], np.uint64),
    }
    for name in sorted({name for document in documents for name in document.metadata}):
        # Each value of a document once.
        listed = (items(document.metadata.get(name)) for document in documents)
        cells = [{filter_hash(value): value for value in values} for values in listed]
        values = [value for cell in cells for value in cell.values()]
        columns[f"row:{name}"] = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
        columns[f"hash:{name}"] = np.array([key for cell in cells for key in cell], np.uint64)
        moments = [moment.timestamp() if (moment := moment_of(v)) else np.nan for v in values]
        numbers = [float(value) if is_number(value) else np.nan for value in values]
        for kind, column in ((NUMBER, numbers), (DATE, moments)):
            if not np.isnan(column).all():
                columns[f"{kind}:{name}"] = np.array(column)
    return columns


def write_segment(folder: Path, digest: str, batch: Batch, vectors: Array, precision: str) -> str:
    """Write a segment; it gets its name, which is returned, when everything is on the disk."""
    columns = _columns(batch)
    if precision == "int8":
        scales = np.maximum(np.abs(vectors).max(1), 1e-12).astype(np.float32) / np.float32(127)
        columns["scale"], vectors = scales, np.rint(vectors / scales[:, None])
    columns["vector"] = np.ascontiguousarray(vectors, precision)
    part = folder / SEGMENTS / f"{digest}{PART}"
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(save(columns))
    sync(part)
    name = f"{digest}-{file_sum(part)}{ENDING}"
    part.replace(part.with_name(name))
    sync(part.parent)
    return name


class Segment:
    """A segment opened for reading: mapped into memory, or copied if the index is small."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        try:
            # "c": a private view that torch takes without a copy. A memmap is slow to cut.
            raw = np.asarray(
                np.fromfile(path, np.uint8) if manifest.is_small else np.memmap(path, np.uint8, "c")
            )
            start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
            self.columns: Columns = {}
            for name, about in json.loads(raw[8:start].tobytes()).items():
                first, last = about["data_offsets"]
                kind = np.dtype(f"{about['dtype'][0].lower()}{int(about['dtype'][1:]) // 8}")
                column = raw[start + first : start + last].view(kind)
                self.columns[name] = column.reshape(about["shape"])
            self.vectors = self.columns["vector"]
            self.n_rows, self.n_documents = len(self.columns["span"]), len(self.columns["id"])
        except (OSError, ValueError, TypeError, LookupError, OverflowError) as error:
            raise IndexFolderError(f"cannot open {path}: {error}") from error
        settings, shape = manifest.settings, (self.n_rows, manifest.settings.dimension)
        if self.vectors.shape != shape or str(self.vectors.dtype) != settings.precision:
            raise IndexFolderError(f"{path} does not fit its manifest; build the index again")

    def block(self, rows: slice | Keys) -> Array:
        """Return the vectors of some rows, as they are compared."""
        values = self.vectors[rows].astype(np.float32, copy=False)
        scales = self.columns.get("scale")
        return values if scales is None else values * scales[rows][:, None]


class FieldValues(NamedTuple):
    """All values of a field: the document of each, its hash, and its number or date, else NaN."""

    documents: Keys
    hashes: NDArray[np.uint64]
    numbers: NDArray[np.float64]
    dates: NDArray[np.float64]


class Rows:
    """All segments as one sequence of documents, and one of rows: the passages of all documents.

    Filters, deletion and rankings are about documents, by their numbers; vectors are of rows.
    ``live`` tells which documents are not deleted; the numbers count deleted ones too.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        segments = self.segments = [Segment(folder / name, manifest) for name in manifest.segments]
        self.row_starts = np.cumsum([0, *(segment.n_rows for segment in segments)])
        self._number_starts = np.cumsum([0, *(segment.n_documents for segment in segments)])
        self.n_rows, self.n_documents = int(self.row_starts[-1]), int(self._number_starts[-1])
        counts = [segment.columns["n_rows"] for segment in segments]
        self.first_rows: Keys = np.cumsum(np.concatenate([[0], *counts]))  # and one behind the last
        self.has_passages = self.n_rows > self.n_documents
        self.live = np.isin(np.arange(self.n_documents), manifest.deleted, invert=True)
        self._dimension = manifest.settings.dimension
        self._ids = np.concatenate([np.zeros(0, np.uint64), *(s.columns["id"] for s in segments)])
        self.values: Callable[[str], FieldValues] = lru_cache(None)(self._read_values)

    def of_documents(self, numbers: Keys) -> tuple[Keys, Keys]:
        """Return the rows of some documents, and at which place those of each begin."""
        starts, counts = self.first_rows[numbers], np.diff(self.first_rows)[numbers]
        firsts = np.cumsum(counts) - counts
        return np.arange(int(counts.sum())) + np.repeat(starts - firsts, counts), firsts

    def spans(self, number: int) -> list[tuple[int, int]]:
        """Return the passages of a document."""
        index = self._segment_of(number)
        first, last = self.first_rows[number : number + 2] - self.row_starts[index]
        return [(a, b) for a, b in self.segments[index].columns["span"][first:last].tolist()]

    def row_vectors(self, rows: Keys) -> Array:
        """Return the vectors of some rows. Shape ``(rows, dim)``."""
        vectors = np.empty((len(rows), self._dimension), np.float32)
        numbers = np.searchsorted(self.row_starts, rows, side="right") - 1
        for number in np.flatnonzero(np.bincount(numbers)):
            is_here = numbers == number
            vectors[is_here] = self.segments[number].block(rows[is_here] - self.row_starts[number])
        return vectors

    def document(self, number: int) -> Document:
        """Read one document."""
        index = self._segment_of(number)
        columns, row = self.segments[index].columns, number - self._number_starts[index]
        start, end = columns["offset"][row : row + 2]
        return Document(**json.loads(columns["text"][start:end].tobytes()))

    def _segment_of(self, number: int) -> int:
        return int(np.searchsorted(self._number_starts, number, side="right")) - 1

    def find(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the numbers of some ids; those of unknown and deleted documents are absent."""
        names = set(ids)
        hashes = np.array([value_hash(name) for name in names], np.uint64)
        is_there = np.isin(self._ids, hashes) & self.live
        # Two ids may share a hash.
        rows = {self.document(row).id: row for row in np.flatnonzero(is_there).tolist()}
        return {name: row for name, row in rows.items() if name in names}

    def extremes(self, column: str) -> tuple[float, float] | None:
        """Return the least and the largest number of a column, if a segment has it."""
        columns = [s.columns[column] for s in self.segments if column in s.columns]
        if not columns:
            return None
        return float(min(map(np.nanmin, columns))), float(max(map(np.nanmax, columns)))

    def _read_values(self, name: str) -> FieldValues:
        """Return the values of a field, those of deleted documents too."""
        pieces = []
        for start, segment in zip(self._number_starts, self.segments, strict=False):
            if (hashes := segment.columns.get(f"hash:{name}")) is not None:
                nothing = np.full(len(hashes), np.nan)
                columns = [segment.columns.get(f"{k}:{name}", nothing) for k in COMPARED]
                pieces.append((segment.columns[f"row:{name}"] + start, hashes, *columns))
        return FieldValues(*map(np.concatenate, zip(*pieces, strict=True)))

    def value(self, name: str, number: int, wanted: int) -> Value:
        """Return the value of a document's field that has a hash."""
        values = items(self.document(number).metadata[name])
        return next(value for value in values if filter_hash(value) == wanted)
