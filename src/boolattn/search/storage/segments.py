"""Segments: documents and their vectors on disk, immutable once they are written.

A segment's folder is named by a hash of the model and the documents, so a build that is resumed
finds the segments it finished, and a rebuild encodes only what changed. It holds ``vectors.npy``,
``documents.jsonl`` and ``rows.safetensors``: for each row, which is a passage of a document, its
span; for each document its first row, its offset and its hashed id; and for each field of the
metadata the hash of its first value, further values of a list with their rows, and the largest
and smallest number and the latest and earliest date, where it has any.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from safetensors.numpy import load_file, save

from boolattn.data.records import Document, checked_documents
from boolattn.errors import DataError, IndexFolderError
from boolattn.search.storage.manifest import FORMAT, FileEntry, SegmentEntry, describe
from boolattn.search.storage.passages import cut
from boolattn.search.storage.transaction import PART, SEGMENTS, sync
from boolattn.search.storage.values import (
    filter_hash,
    flatten,
    is_number,
    items,
    moment_of,
    value_hash,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.search.storage.manifest import Manifest
    from boolattn.search.storage.values import Value

    Spans = list[tuple[int, int]]
    Array = NDArray[np.float32]
    Mask = NDArray[np.bool_]
    RowNumbers = NDArray[np.int64]

VECTORS, DOCUMENTS, ROWS, ABOUT = "vectors.npy", "documents.jsonl", "rows.safetensors", "about.json"
#: Columns to compare with the limits of a range.
LARGEST, SMALLEST, LATEST, EARLIEST = "largest", "smallest", "latest", "earliest"
COMPARED = (LARGEST, SMALLEST, LATEST, EARLIEST)
#: Most text of one segment, which is kept in memory while it is encoded.
MAX_BYTES = 1 << 26


@dataclass
class Draft:
    """The documents of a segment, before they are encoded."""

    documents: list[Document] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    spans: list[Spans] = field(default_factory=list)  # of each document's passages
    n_bytes: int = 0

    def add(self, document: Document, spans: Spans) -> None:
        """Add one, with the spans of its passages."""
        try:
            document = replace(document, metadata=flatten(document.metadata))
        except DataError as error:
            raise DataError(f"document {document.id!r}: {error}") from error
        self.documents.append(document)
        self.lines.append(_line(document))
        self.spans.append(spans)
        self.n_bytes += len(self.lines[-1])

    def name(self, fingerprint: str) -> str:
        """Return a hash of the model and the documents."""
        digest = hashlib.sha256(f"{fingerprint} {FORMAT}\n".encode())
        for line, spans in zip(self.lines, self.spans, strict=True):
            digest.update(line + f"{spans}\n".encode())
        return digest.hexdigest()[:32]

    def rows(self) -> dict[str, NDArray[Any]]:
        """Return the columns of ``rows.safetensors``."""
        ends = np.cumsum([len(line) for line in self.lines], dtype=np.uint64)
        counts = np.cumsum([len(spans) for spans in self.spans], dtype=np.uint64)
        found: dict[str, NDArray[Any]] = {
            "span": np.array([span for spans in self.spans for span in spans], np.uint64),
            "first_row": np.concatenate([np.zeros(1, np.uint64), counts]),
            "offset": np.concatenate([np.zeros(1, np.uint64), ends]),
            "key": np.array([value_hash(d.id) for d in self.documents], np.uint64),
        }
        for name in sorted({name for d in self.documents for name in d.metadata}):
            found |= _field(name, [items(d.metadata.get(name)) for d in self.documents])
        return found


def _field(name: str, values: Sequence[list[Value]]) -> dict[str, NDArray[Any]]:
    """Return the columns of one field."""
    hashes = [[filter_hash(value) for value in own] for own in values]
    found: dict[str, NDArray[Any]] = {
        f"hash:{name}": np.array([own[0] if own else 0 for own in hashes], np.uint64)
    }
    if more := [(row, one) for row, own in enumerate(hashes) for one in own[1:]]:
        found[f"more_row:{name}"], found[f"more:{name}"] = np.array(more, np.uint64).T.copy()
    numbers = [[float(v) for v in own if is_number(v)] for own in values]
    dates = [[moment.timestamp() for v in own if (moment := moment_of(v))] for own in values]
    for (most, least), own in (((LARGEST, SMALLEST), numbers), ((LATEST, EARLIEST), dates)):
        if any(own):
            for kind, choose in ((most, max), (least, min)):
                chosen = [choose(row) if row else np.nan for row in own]
                found[f"{kind}:{name}"] = np.array(chosen, np.float64)
    return found


def drafts(documents: Iterable[Document], size: int, n_tokens: int) -> Iterator[Draft]:
    """Split a corpus into segments, and its documents into passages of so many tokens."""
    draft = Draft()
    for document in checked_documents(documents):
        draft.add(document, cut(document.text, n_tokens))
        if len(draft.lines) >= size or draft.n_bytes >= MAX_BYTES:
            yield draft
            draft = Draft()
    if draft.lines:
        yield draft


def write_segment(folder: Path, name: str, draft: Draft, vectors: Array) -> SegmentEntry:
    """Write a segment; its folder gets its name when everything is on the disk."""
    target = folder / SEGMENTS / name
    part = target.with_name(name + PART)
    part.mkdir(parents=True, exist_ok=True)
    # By plain file writes: np.save and save_file hide why a write failed.
    vectors = np.ascontiguousarray(vectors, np.float32)
    with (part / VECTORS).open("wb") as handle:
        npy.write_array_header_1_0(handle, npy.header_data_from_array_1_0(vectors))
        handle.write(vectors.data)
    (part / DOCUMENTS).write_bytes(b"".join(draft.lines))
    (part / ROWS).write_bytes(save(draft.rows()))
    entries = {file: describe(part / file) for file in (VECTORS, DOCUMENTS, ROWS)}
    counts = {"count": len(vectors), "n_documents": len(draft.lines)}
    about = counts | {"files": {k: asdict(v) for k, v in entries.items()}}
    (part / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    for path in (*part.iterdir(), part):
        sync(path)
    # A segment with this name was found damaged.
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    sync(target.parent)
    return SegmentEntry(name, **counts)


def find_segment(folder: Path, name: str) -> SegmentEntry | None:
    """Return a segment that an earlier build finished, if its files are not damaged."""
    try:
        if any(describe(folder / p) != own for p, own in segment_files(folder, name).items()):
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
            self.vectors: Array = np.load(path / VECTORS, mmap_mode=mode, allow_pickle=False)
            self.columns: Mapping[str, NDArray[Any]] = load_file(path / ROWS)
            with (path / DOCUMENTS).open("rb") as handle:
                text = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
            self._text = text[:] if is_small else text
            sizes = self.vectors.shape, len(self.columns["span"]), len(self.columns["key"])
        except Exception as error:  # numpy compiles a header, and raises what that raises
            raise IndexFolderError(f"cannot open {path}: {str(error).split(chr(10))[0]}") from error
        if sizes != ((self.count, manifest.dimension), self.count, self.n_documents):
            raise IndexFolderError(f"{path} does not fit its manifest; build the index again")

    def document(self, number: int) -> Document:
        """Read one document."""
        start, end = (int(value) for value in self.columns["offset"][number : number + 2])
        return Document(**json.loads(self._text[start:end]))


class Rows:
    """All segments as one sequence of documents, and one of rows: the passages of all documents.

    Filters, deletion and rankings are about documents, by their numbers; vectors are of rows.
    ``live`` tells which documents are not deleted, if any is.
    """

    def __init__(self, segments: Sequence[Segment], live: Mask | None = None) -> None:
        self.segments, self.live = segments, live
        self.starts = np.cumsum([0, *(segment.count for segment in segments)])
        self._starts = np.cumsum([0, *(segment.n_documents for segment in segments)])
        parts = [
            segment.columns["first_row"][:-1].astype(np.int64) + start
            for segment, start in zip(segments, self.starts, strict=False)
        ]
        #: Of each document, and the number of rows.
        self.first_rows: RowNumbers = np.concatenate([*parts, self.starts[-1:]])
        self._columns: dict[str, NDArray[Any]] = {}
        self._texts: dict[str, dict[int, str]] = {}

    @classmethod
    def open(cls, folder: Path, manifest: Manifest) -> Rows:
        """Open all segments of an index."""
        segments = [
            Segment(folder / SEGMENTS / segment.name, segment, manifest)
            for segment in manifest.segments
        ]
        if not manifest.deleted:
            return cls(segments)
        live = np.ones(sum(segment.n_documents for segment in segments), bool)
        try:
            live[np.load(folder / manifest.deleted, allow_pickle=False)] = False
        except (OSError, EOFError, ValueError, LookupError) as error:
            raise IndexFolderError(f"{folder} cannot be read: {error}") from error
        return cls(segments, live)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.starts[-1])

    @property
    def n_documents(self) -> int:
        """Number of documents, with the deleted ones."""
        return len(self.first_rows) - 1

    @property
    def n_live(self) -> int:
        """Number of rows of documents that are not deleted."""
        counts = np.diff(self.first_rows)
        return int((counts if self.live is None else counts[self.live]).sum())

    @property
    def has_passages(self) -> bool:
        """Whether any document has more than one row."""
        return len(self) > self.n_documents

    def of_documents(self, numbers: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
        """Return the rows of some documents, and at which place those of each begin."""
        starts, counts = self.first_rows[numbers], np.diff(self.first_rows)[numbers]
        firsts = np.cumsum(counts) - counts
        return np.arange(int(counts.sum())) + np.repeat(starts - firsts, counts), firsts

    def spans(self, number: int) -> list[tuple[int, int]]:
        """Return the passages of a document."""
        place, own = self._place(number)
        first, last = self.segments[place].columns["first_row"][own : own + 2].tolist()
        return [(a, b) for a, b in self.segments[place].columns["span"][first:last].tolist()]

    def vectors(self, rows: RowNumbers) -> Array:
        """Return the vectors of some rows. Shape ``(rows, dim)``."""
        dimension = self.segments[0].vectors.shape[1] if self.segments else 0
        found = np.empty((len(rows), dimension), np.float32)
        places = np.searchsorted(self.starts, rows, side="right") - 1
        for place in np.unique(places):
            own = places == place
            found[own] = self.segments[place].vectors[rows[own] - self.starts[place]]
        return found

    def document(self, number: int) -> Document:
        """Read one document."""
        place, own = self._place(number)
        return self.segments[place].document(own)

    def _place(self, number: int) -> tuple[int, int]:
        """Return the segment of a document, and its number there."""
        place = int(np.searchsorted(self._starts, number, side="right")) - 1
        return place, int(number - self._starts[place])

    def column(self, name: str) -> NDArray[Any]:
        """Return a column over all documents; 0 or NaN where a segment has no such column."""
        if name not in self._columns:
            is_compared = name.partition(":")[0] in COMPARED
            kind, empty = (np.float64, np.nan) if is_compared else (np.uint64, 0)
            default = {s: np.full(s.n_documents, empty, kind) for s in self.segments}
            parts = [s.columns.get(name, default[s]) for s in self.segments]
            self._columns[name] = np.concatenate([np.zeros(0, kind), *parts])
        return self._columns[name]

    def has_column(self, name: str) -> bool:
        """Return whether any segment has a column."""
        return any(name in segment.columns for segment in self.segments)

    def hashes(self, name: str) -> tuple[NDArray[np.uint64], RowNumbers]:
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
            found = (items(self.document(row).metadata.get(name)) for row in rows[first].tolist())
            values = [value for own in found for value in own]
            self._texts[name] = {filter_hash(v): v for v in values if isinstance(v, str)}
        return self._texts[name]

    def names(self) -> list[str]:
        """Return the names of the metadata."""
        found = {name.partition(":") for segment in self.segments for name in segment.columns}
        return sorted(name for kind, _, name in found if kind == "hash")

    def find(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the numbers of some ids; those of unknown and deleted documents are absent."""
        names = set(ids)
        hashes = np.array([value_hash(name) for name in names], np.uint64)
        is_found = np.isin(self.column("key"), hashes)
        if self.live is not None:
            is_found &= self.live
        # Two ids may share a hash.
        found = {self.document(row).id: row for row in np.flatnonzero(is_found).tolist()}
        return {name: row for name, row in found.items() if name in names}


def _line(document: Document) -> bytes:
    row = {name: getattr(document, name) for name in ("id", "title", "text", "metadata")}
    try:
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode() + b"\n"
    except UnicodeEncodeError as error:
        raise DataError(f"document {document.id!a} holds half a character; correct it") from error
    except ValueError as error:
        raise DataError(f"document {document.id!r}: {error}; leave the value out") from error
