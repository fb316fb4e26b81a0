"""Transactions on an index: lock, commit, clean.

Files that the manifest no longer names are removed by the next write, so that a reader of the
old manifest still finds them.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from boolattn.errors import BoolattnError, IndexFolderError
from boolattn.search.storage.manifest import MANIFEST, read_manifest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from boolattn.search.storage.manifest import Manifest

LOCK = "lock"
SEGMENTS = "segments"
PART = ".part"
#: The files of Milvus Lite, which changes and checks them itself.
MILVUS = "milvus.db"
_OWN = (LOCK, SEGMENTS, MANIFEST, MANIFEST + PART, MILVUS)
_OWN_PREFIXES = ("engine-", "lexical-", "deleted-")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock the index for writing."""
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        foreign = [p.name for p in folder.iterdir() if not _is_own(p.name)]
        if foreign and not (folder / MANIFEST).exists():
            raise IndexFolderError(
                f"{folder} holds other files ({min(foreign)}); name a new or empty folder"
            )
        with FileLock(folder / LOCK, blocking=False):
            try:
                yield
            finally:
                if is_new:
                    _remove_if_empty(folder)
    except Timeout as error:
        raise IndexFolderError(
            f"{folder} is being written by another process; wait until it is done"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise IndexFolderError(
            f"cannot write the index {folder}: {reason}; what was there is unchanged"
        ) from error


def commit(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, in one rename, when every file that it names is on the disk."""
    for name in manifest.files:
        sync(folder / name)
    for parent in {(folder / name).parent for name in manifest.files} | {folder / SEGMENTS}:
        sync_folder(parent)
    draft = folder / (MANIFEST + PART)
    with draft.open("w", encoding="utf-8") as handle:
        handle.write(manifest.to_json())
        handle.flush()
        os.fsync(handle.fileno())
    draft.replace(folder / MANIFEST)
    sync_folder(folder)


def clean(folder: Path, *, keep_segments: bool = False) -> None:
    """Remove files that earlier writers left and the manifest does not name.

    Args:
        folder: The index, locked for writing.
        keep_segments: Whether finished segments stay, for a build that is resumed.
    """
    used: set[str] = set()
    with suppress(BoolattnError):
        manifest = read_manifest(folder)
        used = {name.split("/")[0] for name in manifest.files}
        used |= {f"{SEGMENTS}/{segment.name}" for segment in manifest.segments}
    for path in folder.iterdir():
        is_part = path.name.endswith(PART)
        if is_part or (path.name.startswith(_OWN_PREFIXES) and path.name not in used):
            _remove(path)
    clean_segments(folder, used, only_parts=keep_segments)


def clean_segments(folder: Path, used: Collection[str], *, only_parts: bool = False) -> None:
    """Remove segments that are not used, or only those that were never finished."""
    if not (folder / SEGMENTS).is_dir():
        return
    for path in (folder / SEGMENTS).iterdir():
        is_stale = f"{SEGMENTS}/{path.name}" not in used and not only_parts
        if path.name.endswith(PART) or is_stale:
            _remove(path)


def sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if not folder.is_dir():
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_if_empty(folder: Path) -> None:
    """Remove a new folder to which nothing was written, while it is still locked."""
    if [path.name for path in folder.iterdir()] == [LOCK]:
        (folder / LOCK).unlink()
        folder.rmdir()


def _is_own(name: str) -> bool:
    return name in _OWN or name.startswith(_OWN_PREFIXES) or name.endswith(PART)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
