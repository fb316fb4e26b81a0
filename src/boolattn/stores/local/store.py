"""The local store: a folder that is changed in transactions, new files first, the manifest last.

Many processes may read it while one writes to it.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import BoolattnError, IndexFolderError
from boolattn.stores.base import Draft, Store
from boolattn.stores.local import manifest as disk
from boolattn.stores.local import segments as storage
from boolattn.stores.local.manifest import Manifest, check_files, describe, read_manifest
from boolattn.stores.local.snapshot import Snapshot
from boolattn.stores.local.vectors import faiss_module, write_graph
from boolattn.stores.settings import EXACT, HNSW, check_build, check_ids, no_documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from boolattn.stores.base import Array
    from boolattn.stores.batches import Batch
    from boolattn.stores.local.manifest import SegmentEntry
    from boolattn.stores.settings import StoreSettings

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
        for attempt in (1, 2):
            manifest = read_manifest(folder)
            try:
                check_files(folder, manifest, verify=verify)
                return cls(folder, manifest)
            except IndexFolderError:
                # A writer may have replaced the index and cleaned up since the manifest was read.
                if attempt == 2 or read_manifest(folder) == manifest:
                    raise
        raise IndexFolderError(f"{folder} changes too fast to be opened")

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
            check_build(
                address,
                has_index=(folder / disk.MANIFEST).exists(),
                is_stopped=(folder / disk.SEGMENTS).is_dir(),
                replace=replace,
                resume=resume,
            )
            disk.clean(folder, segments=not resume)
            generation = 1
            with suppress(IndexFolderError):
                generation = read_manifest(folder).generation + 1
            draft = LocalDraft(folder, Manifest(settings=settings, generation=generation))
            yield draft
            if not draft.segments:
                raise no_documents()
            draft.finish(draft.base)

    @property
    def n_documents(self) -> int:
        """What the manifest says, also where other files are damaged."""
        return self.manifest.n_documents

    @property
    def manifest(self) -> Manifest:
        """The manifest of the open state."""
        return self._snapshot.manifest

    def _open(self, manifest: Manifest) -> None:
        self._snapshot, self.settings = Snapshot(self.folder, manifest), manifest.settings

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
        if changed := self._snapshot.changed_files(self.folder):
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
    def adding(self, *, replace_old: bool = False) -> Iterator[LocalDraft]:
        """Add documents in one transaction."""
        with disk.writing(self.folder):
            manifest, rows = self._changeable(segments=False)
            draft = LocalDraft(self.folder, manifest, rows)
            yield draft
            if draft.segments:
                changed = replace(manifest, generation=manifest.generation + 1)
                if replace_old and (replaced := rows.find(draft.ids)):
                    changed = _with_deleted(self.folder, changed, rows, replaced)
                manifest = draft.finish(changed)
                # Segments of additions that were stopped: no manifest names them.
                disk.clean(self.folder, others=False)
            self._open(manifest)

    def _changeable(self, *, segments: bool) -> tuple[Manifest, storage.Rows]:
        """Read what is changed, and remove what is not used, segments only if asked for."""
        manifest = read_manifest(self.folder)
        check_files(self.folder, manifest)
        disk.clean(self.folder, segments=segments)
        return manifest, storage.Rows(self.folder, manifest)

    def delete(self, ids: Iterable[str]) -> None:
        """Delete documents in one transaction."""
        names = check_ids(ids)
        read_manifest(self.folder)
        with disk.writing(self.folder):
            manifest, rows = self._changeable(segments=True)
            numbers = rows.find(names)
            self.check_known(names, numbers)
            if numbers:
                changed = replace(manifest, generation=manifest.generation + 1)
                manifest = _with_deleted(self.folder, changed, rows, numbers)
                disk.commit(self.folder, manifest)
        self._open(manifest)

    def info(self) -> dict[str, Any]:
        manifest, rows = self.manifest, self._snapshot
        return {
            "documents": manifest.n_documents,
            "deleted": manifest.n_deleted,
            "passages": int(np.diff(rows.first_rows)[rows.live].sum()),
            **super().info(),
            "recall": manifest.index.get("recall"),
            "megabytes": round(sum(file.size for file in manifest.files.values()) / 1e6, 3),
            "changes": manifest.generation,
        }


class LocalDraft(Draft):
    """Segments that no manifest names yet."""

    batch_size = 16_384  # the most that a killed build loses

    def __init__(self, folder: Path, base: Manifest, rows: storage.Rows | None = None) -> None:
        self._folder, self.base, self._rows = folder, base, rows
        self.segments: list[SegmentEntry] = []
        self.ids: list[str] = []

    def known(self, ids: Sequence[str]) -> set[str]:
        return set() if self._rows is None else set(self._rows.find(ids))

    def has(self, batch: Batch) -> bool:
        """Take over a segment that an earlier build finished, if it is not damaged."""
        segment = storage.find_segment(self._folder, self._name(batch))
        if segment is not None:
            self._append(batch, segment)
        return segment is not None

    def write(self, batch: Batch, vectors: Array) -> None:
        name, precision = self._name(batch), self.base.settings.precision
        self._append(batch, storage.write_segment(self._folder, name, batch, vectors, precision))

    def _append(self, batch: Batch, segment: SegmentEntry) -> None:
        self.segments.append(segment)
        if self._rows is not None:
            self.ids += [document.id for document in batch.documents]

    def _name(self, batch: Batch) -> str:
        settings = self.base.settings
        return batch.digest(f"{settings.fingerprint} {settings.precision} {disk.FORMAT}")

    def finish(self, manifest: Manifest) -> Manifest:
        """Add the segments, index their vectors and words, and commit."""
        first_row, first = manifest.n_rows, manifest.n_documents + manifest.n_deleted
        files = dict(manifest.files)
        for segment in self.segments:
            files |= storage.segment_files(self._folder, segment.name)
        segments = (*manifest.segments, *self.segments)
        changed = replace(manifest, segments=segments, files=files)
        rows = storage.Rows(self._folder, changed)
        index, new = write_graph(self._folder, changed, rows, first_row, lambda: self._sample(rows))
        files = {k: v for k, v in files.items() if not k.startswith("engine-")} | new
        changed = replace(changed, index=index, files=files)
        if manifest.settings.words:
            changed = self._with_words(changed, rows, first)
        disk.commit(self._folder, changed)
        return changed

    def _sample(self, rows: storage.Rows) -> Array:
        """Encode some titles, or first words, as queries."""
        chosen = np.unique(np.linspace(0, rows.n_documents - 1, 200).astype(np.int64))
        documents = [rows.document(number) for number in chosen.tolist()]
        texts = [d.title or " ".join(d.text[:200].split()[:6]) for d in documents]
        if self.sample is None:
            return rows.row_vectors(rows.first_rows[chosen])
        return self.sample(texts)

    def _with_words(self, manifest: Manifest, rows: storage.Rows, first: int) -> Manifest:
        from boolattn.stores.local.words import write_words

        name = f"lexical-{manifest.generation}"
        target, part = self._folder / name, self._folder / (name + disk.PART)
        base = self._folder / manifest.words if manifest.words else None
        shutil.rmtree(target, ignore_errors=True)
        new = ((number, rows.document(number)) for number in range(first, rows.n_documents))
        write_words(part, new, manifest.settings.known_kinds, base)
        part.rename(target)
        files = {k: v for k, v in manifest.files.items() if not k.startswith("lexical-")}
        files |= {f"{name}/{path.name}": describe(path) for path in sorted(target.iterdir())}
        return replace(manifest, words=name, files=files)


def _with_deleted(
    folder: Path, manifest: Manifest, rows: storage.Rows, numbers: Mapping[str, int]
) -> Manifest:
    deleted = np.union1d(np.flatnonzero(~rows.live), list(numbers.values()))
    name = f"deleted-{manifest.generation}-{len(deleted)}.npy"
    with (folder / name).open("wb") as handle:
        np.lib.format.write_array(handle, deleted, allow_pickle=False)
    files = {k: v for k, v in manifest.files.items() if k != manifest.deleted}
    files[name] = describe(folder / name)
    return replace(manifest, deleted=name, n_deleted=len(deleted), files=files)
