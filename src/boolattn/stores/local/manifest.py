"""The manifest of an index, the checks of its files against it, and transactions.

``manifest.json`` is replaced in one rename, so a reader sees the old index or the new one. Every
other file is written once, under a new name, and never changed. Files that the manifest no longer
names are removed by the next write, so that a reader of the old manifest still finds them.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from boolattn import checksums
from boolattn.checksums import file_sum
from boolattn.errors import BoolattnError, ConfigError, DataError, IndexFolderError
from boolattn.settings import build, check_types
from boolattn.stores.settings import StoreSettings, busy, no_index, saved_settings

FORMAT = 4
MANIFEST, LOCK, SEGMENTS, PART = "manifest.json", "lock", "segments", ".part"
GRAPH, WORDS = _PREFIXES = ("graph-", "words-")
logger = logging.getLogger(__name__)
#: Opening an index compares hashes up to so many bytes, small files first (about half a second);
#: of larger files only the size. ``verify`` compares all.
MAX_HASHED = 1 << 30
#: An index of so many bytes is copied into memory; a larger one is mapped.
MAX_COPIED = 1 << 27


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything a local store consists of."""

    settings: StoreSettings
    segments: tuple[str, ...] = ()  # files, in the order of the rows; one may occur twice
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 by path in the folder
    size: int = 0  # of all files, in bytes
    graph: dict[str, Any] = field(default_factory=dict)  # of the vectors: file, recall
    words: str = ""  # folder of the words
    deleted: tuple[int, ...] = ()  # numbers of documents
    generation: int = 0  # number of changes
    format: int = FORMAT

    @property
    def is_small(self) -> bool:
        """Whether the files are copied into memory, where nobody can change them."""
        return self.size <= MAX_COPIED

    def measured(self, folder: Path) -> Manifest:
        """Return the manifest with the size of its files."""
        return replace(self, size=sum((folder / name).stat().st_size for name in self.files))

    def with_files(self, folder: Path, prefix: str, paths: Iterable[Path]) -> Manifest:
        """Return a manifest with files in place of those whose names begin with a prefix."""
        files = {name: sha256 for name, sha256 in self.files.items() if not name.startswith(prefix)}
        files |= {path.relative_to(folder).as_posix(): file_sum(path) for path in paths}
        return replace(self, files=files)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest; refuse a folder that is no index, or a damaged one."""
    path = folder / MANIFEST
    if folder.is_file():
        command = f"boolattn index {shlex.quote(str(folder))}"
        raise IndexFolderError(f"{folder} is a file, not an index; make one of it: {command}")
    try:
        if not path.exists() and (folder / SEGMENTS).is_dir():
            remedy = "go on with the same command and --resume"
            raise IndexFolderError(f"the index at {folder} was never finished; {remedy}")
        if not path.exists():
            raise no_index(folder)
        values = checksums.read_manifest(path)
        settings = saved_settings(values, str(folder), FORMAT)
        manifest = build(Manifest, values | {"settings": settings})
        check_types(manifest)
    except (ConfigError, DataError, OSError) as error:
        reason = f"{path} is damaged, or of an older version"
        raise IndexFolderError(f"{reason}; build the index again") from error
    return manifest


def check_files(
    folder: Path, manifest: Manifest, *, verify: bool = False, names: Collection[str] | None = None
) -> None:
    """Compare files, all of them if none is named, with the manifest: sizes, and contents.

    Without ``verify`` contents are compared up to :data:`MAX_HASHED` bytes.
    """
    left, chosen = MAX_HASHED, manifest.files if names is None else names
    if outside := [name for name in chosen if not checksums.is_inside(folder, name)]:
        raise IndexFolderError(f"{outside[0]!r} in {folder / MANIFEST} leads out of the index")
    try:
        sizes = {name: (folder / name).stat().st_size for name in chosen}
        for name, size in sorted(sizes.items(), key=lambda item: item[1]):
            left -= size
            if (verify or left >= 0) and file_sum(folder / name) != manifest.files[name]:
                reason = f"{folder / name} was altered: its hash differs"
                raise IndexFolderError(f"{reason}; build the index again")
    except OSError as error:
        raise IndexFolderError(f"{error.filename} is missing; build the index again") from error
    except DataError as error:
        raise IndexFolderError(str(error)) from error
    if names is None and sum(sizes.values()) != manifest.size:
        raise IndexFolderError(f"{folder} has files that were cut; build the index again")


def read_stamps(folder: Path, manifest: Manifest) -> dict[str, tuple[int, int, int]]:
    """Return the inode, size and time of every file of a mapped index that is still there.

    One that was deleted or replaced stays as it was in its map.
    """
    stamps = {}
    for name in () if manifest.is_small else manifest.files:
        with suppress(OSError):
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116 - before and after each search
            stamps[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return stamps


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock the index for writing."""
    from filelock import FileLock, Timeout  # takes long; searching needs no lock

    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir() if not path.name.endswith(PART)}
        others = [n for n in names - {LOCK, SEGMENTS} if not n.startswith(_PREFIXES)]
        if others and MANIFEST not in others:
            reason = f"holds other files ({min(others)}); name a new or empty folder"
            raise IndexFolderError(f"{folder} {reason}")
        with FileLock(folder / LOCK, blocking=False):
            try:
                yield
            finally:
                if is_new and [path.name for path in folder.iterdir()] == [LOCK]:
                    (folder / LOCK).unlink()  # nothing was written
                    folder.rmdir()
    except Timeout as error:
        raise busy(folder) from error
    except OSError as error:
        reason = f"{error.strerror or error}; what was there is unchanged"
        raise IndexFolderError(f"cannot write the index {folder}: {reason}") from error


def commit(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, in one rename, when every file that it names is on the disk."""
    paths = [folder / name for name in manifest.files if not name.startswith(SEGMENTS)]
    for path in dict.fromkeys([*paths, *(path.parent for path in paths)]):
        sync(path)
    values = asdict(manifest.measured(folder))
    draft = folder / (MANIFEST + PART)
    draft.write_text(json.dumps(values | {"checksum": checksums.checksum(values)}), "utf-8")
    sync(draft)
    draft.replace(folder / MANIFEST)
    sync(folder)


def clean(folder: Path, *, keep_segments: bool = False) -> None:
    """Remove files that were never finished, and those that the manifest does not name.

    Finished segments can stay, to resume a build. An error here does not fail the change.
    """
    used: set[Path] = set()
    with suppress(BoolattnError):
        for name in read_manifest(folder).files:
            used |= {folder / name, *(folder / name).parents}
    for path in (*folder.iterdir(), *folder.glob(f"{SEGMENTS}/*")):
        is_ours = path.name.startswith(_PREFIXES) or (path.parent != folder and not keep_segments)
        if path.name.endswith(PART) or (is_ours and path not in used):
            try:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            except OSError as error:
                logger.warning("cannot remove %s (%s); the next change tries it", path, error)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
