"""The local store: a folder that is changed in transactions, new files first, the manifest last.

Many processes may read it while one writes to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from boolattn.checksums import file_sum
from boolattn.errors import BoolattnError, DataError, IndexFolderError
from boolattn.stores.base import Array, Store
from boolattn.stores.local import manifest as disk
from boolattn.stores.local.manifest import Manifest, check_files, read_manifest, read_stamps
from boolattn.stores.local.segments import ENDING, Rows, write_segment
from boolattn.stores.local.snapshot import Snapshot, faiss_module, write_graph
from boolattn.stores.settings import EXACT, HNSW, StoreSettings, check_build, check_ids
from boolattn.stores.writer import NO_DOCUMENTS, Batch, Draft

_PRECISIONS = ("float32", "float16", "int8")


class LocalStore(Store):
    """A store in a folder."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.address, self.label = folder, str(folder), str(folder)
        self._open(manifest)

    @classmethod
    def open(cls, address: str, *, verify: bool = False) -> LocalStore:
        """Open a folder; with ``verify`` every byte is compared with its hash."""
        folder = Path(address)
        manifest = read_manifest(folder)
        try:
            check_files(folder, manifest, verify=verify)
            return cls(folder, manifest)
        except IndexFolderError:
            # A writer may have replaced the index and cleaned up since the manifest was read.
            if read_manifest(folder) == manifest:
                raise
        return cls.open(address, verify=verify)

    @classmethod
    @contextmanager
    def create(
        cls, address: str, settings: StoreSettings, *, replace: bool = False, resume: bool = False
    ) -> Iterator[LocalDraft]:
        """Build a store, which appears when it is complete."""
        folder = Path(address)
        settings = settings.completed(EXACT, _PRECISIONS)
        if settings.vectors == HNSW:
            faiss_module()  # before anything is encoded
        with disk.writing(folder):
            has_index = (manifest := folder / disk.MANIFEST).exists()
            # Segments of a finished build are older than its manifest.
            since = manifest.stat().st_mtime_ns if has_index else 0
            segments = (folder / disk.SEGMENTS).glob("*")
            is_stopped = any(path.stat().st_mtime_ns > since for path in segments)
            check_build(address, has_index, is_stopped, replace=replace, resume=resume)
            disk.clean(folder, keep_segments=resume)
            base = Manifest(settings=settings)
            with suppress(IndexFolderError):
                base = Manifest(settings=settings, generation=read_manifest(folder).generation)
            draft = LocalDraft(folder, base)
            yield draft
            if not draft.files:
                raise DataError(NO_DOCUMENTS)
            draft.finish()

    @property
    def n_documents(self) -> int:
        """What the open state has, also where files were damaged since."""
        return int(self._snapshot.live.sum())

    def _open(self, manifest: Manifest) -> None:
        stamps = read_stamps(self.folder, manifest)  # before the files are mapped
        self._snapshot, self._stamps = Snapshot(self.folder, manifest), stamps
        self.manifest, self.settings = manifest, manifest.settings

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """Refuse to answer from files that were changed before or during a search."""
        self._check_changes()
        try:
            yield self._snapshot
        except BoolattnError:
            raise
        except Exception:
            # The largest files of a large index were never hashed.
            check_files(self.folder, self.manifest, verify=True)
            raise
        finally:
            self._check_changes()

    def _check_changes(self) -> None:
        """Raise if a mapped file was altered; open the store again if it only looks so."""
        now = read_stamps(self.folder, self.manifest).items()
        if changed := [name for name, stamp in now if stamp != self._stamps.get(name)]:
            check_files(self.folder, self.manifest, names=changed, verify=True)
            self._open(self.manifest)

    def refresh(self) -> bool:
        manifest = read_manifest(self.folder)
        if manifest == self.manifest:
            return False
        check_files(self.folder, manifest)
        self._open(manifest)
        return True

    @contextmanager
    def adding(self) -> Iterator[LocalDraft]:
        """Change the documents in one transaction."""
        with disk.writing(self.folder):
            manifest = read_manifest(self.folder)
            check_files(self.folder, manifest)
            disk.clean(self.folder)
            draft = LocalDraft(self.folder, manifest)
            yield draft
            if draft.files or draft.deleted:
                draft.finish()
        self._open(read_manifest(self.folder))

    def delete(self, ids: Iterable[str]) -> None:
        names = check_ids(ids)
        with self.adding() as draft:
            draft.delete(names)
            self.check_known(names, draft.deleted)

    def info(self) -> dict[str, Any]:
        manifest, rows = self.manifest, self._snapshot
        return {
            "documents": self.n_documents,
            "deleted": len(manifest.deleted),
            "passages": int(np.diff(rows.first_rows)[rows.live].sum()),
            **super().info(),
            "recall": manifest.graph.get("recall"),
            "megabytes": round(manifest.size / 1e6, 3),
            "changes": manifest.generation,
        }


class LocalDraft(Draft):
    """A change that no manifest names yet: new segments, and documents that are deleted."""

    batch_size = 16_384  # the most that a killed build loses

    def __init__(self, folder: Path, base: Manifest) -> None:
        self._folder, self._rows = folder, Rows(folder, base)
        self._base = replace(base, generation=base.generation + 1)
        self.files: dict[str, str] = {}
        self.deleted: dict[str, int] = {}

    def known(self, ids: Sequence[str]) -> set[str]:
        return set(self._rows.find(ids))

    def delete(self, ids: Sequence[str]) -> None:
        """Delete those of some documents that the store has."""
        self.deleted |= self._rows.find(ids)

    def has(self, batch: Batch) -> bool:
        """Take over a segment that an earlier build finished, if it is not damaged."""
        paths = self._folder.glob(f"{disk.SEGMENTS}/{self._digest(batch)}-*{ENDING}")
        segment = next((path.name for path in paths if file_sum(path) in path.name), "")
        if segment:
            self._append(batch, segment)
        return bool(segment)

    def write(self, batch: Batch, vectors: Array) -> None:
        digest, precision = self._digest(batch), self._base.settings.precision
        self._append(batch, write_segment(self._folder, digest, batch, vectors, precision))

    def _append(self, batch: Batch, segment: str) -> None:
        """Add a segment; its documents replace those with the same ids."""
        sha256 = segment.removesuffix(ENDING).partition("-")[2]
        self.files[f"{disk.SEGMENTS}/{segment}"] = sha256
        self.delete([entry.document.id for entry in batch])

    def _digest(self, batch: Batch) -> str:
        settings = self._base.settings
        about = f"{settings.fingerprint} {settings.precision} {disk.FORMAT}"
        lines = [about, *(entry.version for entry in batch)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]

    def finish(self) -> None:
        """Add the segments, index their vectors and words, and commit."""
        base, folder = self._base, self._folder
        manifest = replace(
            base,
            segments=(*base.segments, *self.files),
            files=base.files | self.files,
            deleted=tuple(sorted({*base.deleted, *self.deleted.values()})),
        )
        if self.files:
            rows = Rows(folder, manifest.measured(folder))
            if manifest.settings.vectors == HNSW:
                manifest = write_graph(folder, manifest, rows, self._rows.n_rows)
            if manifest.settings.words:
                from boolattn.stores.local.words import write_words

                new = range(self._rows.n_documents, rows.n_documents)
                manifest = write_words(folder, manifest, ((n, rows.document(n)) for n in new))
        disk.commit(folder, manifest)
