"""The manifest of an index, and the checks of its files against it.

``manifest.json`` is replaced in one rename, so a reader sees the old index or the new one. Every
other file is written once, under a new name, and never changed.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from boolattn.errors import ConfigError, IndexFolderError, IndexMismatchError
from boolattn.settings import check_types

if TYPE_CHECKING:
    from collections.abc import Collection

FORMAT = 2
MANIFEST = "manifest.json"
#: Opening an index compares hashes up to so many bytes, small files first (about half a second);
#: of larger files only the size. ``verify`` compares all.
MAX_HASHED = 1 << 30
#: An index of so many bytes is copied into memory; a larger one is mapped.
MAX_COPIED = 1 << 27


class Model(Protocol):
    """What an index remembers of a model."""

    @property
    def fingerprint(self) -> str:
        """Of its vectors."""

    @property
    def parts(self) -> dict[str, str]:
        """Hashes of its parts by name."""


@dataclass(frozen=True)
class FileEntry:
    """Size and SHA-256 of a file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class SegmentEntry:
    """A segment; its folder is named by a hash of its contents."""

    name: str
    count: int  # of vectors: one for each passage
    n_documents: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything an index consists of."""

    fingerprint: str  # of the model that encoded the documents
    model: str  # what to load to search it: ``shipped``, ``minilm``, a folder, or empty
    dimension: int
    similarity: str  # cosine or dot
    segments: tuple[SegmentEntry, ...] = ()  # in the order of the rows
    files: dict[str, FileEntry] = field(default_factory=dict)  # by path in the index
    engine: str = "flat"
    engine_settings: dict[str, Any] = field(default_factory=dict)  # and its recall
    lexical: str = ""  # folder of the lexical index
    deleted: str = ""  # file of deleted documents
    n_deleted: int = 0  # documents
    passages: int = 0  # most tokens of a passage; 0: a document is one passage
    generation: int = 0  # number of changes
    parts: dict[str, str] = field(default_factory=dict)  # hashes of tokenizer, parser, …
    format: int = FORMAT

    @property
    def n_rows(self) -> int:
        """Number of vectors, with those of deleted documents."""
        return sum(segment.count for segment in self.segments)

    @property
    def is_small(self) -> bool:
        """Whether the files are copied into memory, where nobody can change them."""
        return sum(entry.size for entry in self.files.values()) <= MAX_COPIED

    @property
    def n_documents(self) -> int:
        """Number of documents, without the deleted ones."""
        return sum(segment.n_documents for segment in self.segments) - self.n_deleted

    def to_json(self) -> str:
        """Return the file's text, with a hash of its content."""
        body = json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False)
        return json.dumps({"index": json.loads(body), "sha256": _text_hash(body)}, indent=1)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest; refuse a folder that is no index, or a damaged one."""
    path = folder / MANIFEST
    try:
        outer = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise IndexFolderError(_missing(folder)) from error
    except OSError as error:
        raise IndexFolderError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise IndexFolderError(f"{path} is damaged; build the index again") from error
    body = outer.get("index") if isinstance(outer, dict) else None
    if not isinstance(body, dict) or "format" not in body:
        raise IndexFolderError(f"{path} is not an index's; name a folder that was indexed")
    if body["format"] != FORMAT:
        raise IndexMismatchError(
            f"{folder} has format {body['format']}, this version reads {FORMAT}: index again"
        )
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False)
    names = {f.name for f in fields(Manifest)}
    # Older indexes do not name the parts of their model.
    changed = f"{path} is damaged or was changed by hand; build the index again"
    if outer.get("sha256") != _text_hash(text) or set(body) | {"parts"} != names:
        raise IndexFolderError(changed)
    try:
        body["segments"] = tuple(SegmentEntry(**entry) for entry in body["segments"])
        body["files"] = {name: FileEntry(**entry) for name, entry in body["files"].items()}
        found = Manifest(**body)
        for own in (found, *found.segments, *found.files.values()):
            check_types(own)
    except (TypeError, AttributeError, ConfigError) as error:
        raise IndexFolderError(changed) from error
    return found


def check_files(
    folder: Path, manifest: Manifest, *, verify: bool = False, names: Collection[str] | None = None
) -> None:
    """Compare files, all of them if none is named, with the manifest: sizes, and contents.

    Without ``verify`` contents are compared up to :data:`MAX_HASHED` bytes.
    """
    left = MAX_HASHED
    chosen = {name: manifest.files[name] for name in (manifest.files if names is None else names)}
    for name, entry in sorted(chosen.items(), key=lambda item: item[1].size):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise IndexFolderError(f"{name!r} in {folder / MANIFEST} leads out of the index")
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise IndexFolderError(f"{path} is missing; build the index again") from error
        if size != entry.size:
            raise IndexFolderError(
                f"{path} has {size} bytes instead of {entry.size}; build the index again"
            )
        left -= size
        if (verify or left >= 0) and describe(path) != entry:
            raise IndexFolderError(f"{path} was altered: its hash differs; build the index again")


def read_stamps(folder: Path, manifest: Manifest) -> dict[str, tuple[int, int, int]]:
    """Return the inode, size and time of every file of a mapped index that is still there.

    One that was deleted or replaced stays as it was in its map.
    """
    found = {}
    for name in () if manifest.is_small else manifest.files:
        with suppress(OSError):
            own = (folder / name).stat()
            found[name] = (own.st_ino, own.st_size, own.st_mtime_ns)
    return found


def check_model(folder: Path, manifest: Manifest, retriever: Model) -> None:
    """Refuse an index of another model: the vectors of two models cannot be compared.

    Another query parser leaves the vectors alone. Parts that either does not know are not compared.
    """
    fingerprint, parts = retriever.fingerprint, retriever.parts
    for name, own in manifest.parts.items():
        is_same = name == "parser" or parts.get(name, own) == own
        if manifest.fingerprint == fingerprint and not is_same:
            raise IndexMismatchError(
                f"{folder} was indexed with another {name} of the model {manifest.model}; copy the "
                "model again, or index again with this one"
            )
    if manifest.fingerprint != fingerprint:
        raise IndexMismatchError(
            f"{folder} was indexed by another model ({manifest.model or 'unnamed'}, fingerprint "
            f"{manifest.fingerprint[:8]}, not {fingerprint[:8]}); index again with this one, or "
            "search with that one"
        )


def describe(path: Path) -> FileEntry:
    """Return a file's size and hash."""
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return FileEntry(path.stat().st_size, digest)


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _missing(folder: Path) -> str:
    if not folder.exists():
        return f"there is no index at {folder}; make one with: boolattn index FILE --out {folder}"
    if (folder / "segments").is_dir():
        return f"the index at {folder} was never finished; go on with: boolattn index --resume"
    return f"{folder} holds no index (no {MANIFEST}); make one with: boolattn index FILE --out DIR"
