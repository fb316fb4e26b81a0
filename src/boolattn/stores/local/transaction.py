"""Transactions on an index: lock, commit, clean.

Files that the manifest no longer names are removed by the next write, so that a reader of the
old manifest still finds them.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from boolattn.errors import BoolattnError, IndexBusyError, IndexFolderError
from boolattn.stores.local.manifest import MANIFEST, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from boolattn.stores.local.manifest import Manifest

LOCK = "lock"
SEGMENTS = "segments"
PART = ".part"
#: The files of embedded databases, which change and check them themselves.
MILVUS, QDRANT = "milvus.db", "qdrant"
logger = logging.getLogger(__name__)

_OWN = (LOCK, SEGMENTS, MANIFEST, MILVUS, QDRANT)
_OWN_PREFIXES = ("engine-", "lexical-", "deleted-")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock the index for writing."""
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        names = [p.name for p in folder.iterdir() if not p.name.endswith(PART)]
        foreign = [n for n in names if n not in _OWN and not n.startswith(_OWN_PREFIXES)]
        if foreign and not (folder / MANIFEST).exists():
            raise IndexFolderError(
                f"{folder} holds other files ({min(foreign)}); name a new or empty folder"
            )
        with FileLock(folder / LOCK, blocking=False):
            try:
                yield
            finally:
                if is_new and [path.name for path in folder.iterdir()] == [LOCK]:
                    # Nothing was written, and the folder is still locked.
                    (folder / LOCK).unlink()
                    folder.rmdir()
    except Timeout as error:
        raise IndexBusyError(
            f"{folder} is being written by another process; wait until it is done"
        ) from error
    except OSError as error:
        reason = f"{error.strerror or error}; what was there is unchanged"
        raise IndexFolderError(f"cannot write the index {folder}: {reason}") from error


def commit(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, in one rename, when every file that it names is on the disk."""
    paths = [folder / name for name in manifest.files]
    for path in (*paths, *{path.parent for path in paths}, folder / SEGMENTS):
        sync(path)
    draft = folder / (MANIFEST + PART)
    draft.write_text(manifest.to_json(), encoding="utf-8")
    sync(draft)
    draft.replace(folder / MANIFEST)
    sync(folder)


def clean(folder: Path, *, keep_segments: bool = False) -> None:
    """Remove what the manifest does not name; finished segments can stay, to resume a build."""
    used: set[str] = set()
    with suppress(BoolattnError):
        used = {name.split("/")[0] for name in read_manifest(folder).files}
    for path in folder.iterdir():
        is_stale = path.name.startswith(_OWN_PREFIXES) and path.name not in used
        if path.name.endswith(PART) or is_stale:
            _remove(path)
    clean_segments(folder, only_parts=keep_segments)


def clean_segments(folder: Path, *, only_parts: bool = False) -> None:
    """Remove segments that the manifest does not name, or only those that were never finished."""
    used: set[str] = set()
    with suppress(BoolattnError):
        used = {segment.name for segment in read_manifest(folder).segments}
    segments = folder / SEGMENTS
    for path in segments.iterdir() if segments.is_dir() else ():
        if path.name.endswith(PART) or (path.name not in used and not only_parts):
            _remove(path)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove what is not used; a failure is no failure of the change."""
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        logger.warning("cannot remove %s: %s; the next change tries it", path, error.strerror)
