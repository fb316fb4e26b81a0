"""Building and changing an index: new files first, the manifest last."""

from __future__ import annotations

import shutil
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from boolattn.encoders.callables import unit
from boolattn.errors import ConfigError, DataError, IndexFolderError
from boolattn.search.engines.base import Job
from boolattn.search.engines.registry import find_engine
from boolattn.search.lexical import write_lexical
from boolattn.search.storage import segments as store
from boolattn.search.storage import transaction as disk
from boolattn.search.storage.manifest import (
    MANIFEST,
    Manifest,
    check_files,
    check_model,
    describe,
    read_manifest,
)
from boolattn.search.storage.values import value_hash
from boolattn.settings import check_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.data.records import Document
    from boolattn.encoders.base import BaseRetriever
    from boolattn.search.storage.manifest import SegmentEntry
    from boolattn.search.storage.segments import Array, Draft, Spans

#: Encodes lists of texts, in order; a cluster may encode several at once.
Encode: TypeAlias = "Callable[[Iterable[list[str]]], Iterator[Array]]"
#: Most characters of a token: a text is cut at so many for each token of the model's length.
_CHARACTERS = 32
#: Queries with which the recall of an approximate engine is measured.
_N_SAMPLE = 200


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """Settings of an index."""

    engine: str = "flat"  # or another of ENGINES
    lexical: bool = True  # whether to index words too, for hybrid search
    uri: str = ""  # of a database: an address, or a file or folder
    model: str = ""  # what to load to search the index, for the manifest
    segment_size: int = 16_384  # documents in a segment: the most that a killed build loses
    #: Most tokens of a passage; left out, what the model reads; 0: documents are not cut.
    passages: int | None = None
    batch_size: int | None = None  # documents encoded at once; left out, chosen for the device
    replace: bool = False  # whether to replace an existing index
    resume: bool = False  # whether to resume a build that was stopped

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("segment_size", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        if self.passages is not None and self.passages < 0:
            raise ConfigError(f"passages must be at least 0, got {self.passages}")
        find_engine(self.engine).check_uri(self.uri, self.engine)


@dataclass
class Writer:
    """Writes one index."""

    folder: Path
    retriever: BaseRetriever
    settings: IndexSettings = field(default_factory=IndexSettings)
    encode: Encode | None = None  # None: the retriever encodes
    progress: Callable[[int], None] = lambda _: None  # documents just encoded, a batch or a segment

    def build(self, documents: Iterable[Document]) -> Manifest:
        """Build a new index."""
        with disk.writing(self.folder):
            self._check_free()
            find_engine(self.settings.engine).reach(self.settings.uri)
            disk.clean(self.folder, keep_segments=self.settings.resume)
            generation = 1
            with suppress(IndexFolderError):
                generation = read_manifest(self.folder).generation + 1
            n_tokens = self.settings.passages
            n_tokens = self.retriever.max_tokens if n_tokens is None else n_tokens
            segments = self._segments(documents, np.zeros(0, np.uint64), n_tokens)
            if not segments:
                raise DataError("the corpus holds no documents, so there is nothing to index")
            manifest = Manifest(
                fingerprint=self.retriever.fingerprint,
                model=self.settings.model,
                dimension=self.retriever.dimension,
                similarity=self.retriever.similarity,
                engine=self.settings.engine,
                generation=generation,
                passages=n_tokens,
                parts=self.retriever.parts,
            )
            return self._finish(manifest, segments)

    def add(self, documents: Iterable[Document], *, replace_old: bool = False) -> Manifest:
        """Add documents to an index; see ``Searcher.add``."""
        with disk.writing(self.folder):
            manifest = _checked_manifest(self.folder)
            check_model(self.folder, manifest, self.retriever)
            disk.clean(self.folder, keep_segments=True)
            rows = store.Rows.open(self.folder, manifest)
            known = rows.column("key") if rows.live is None else rows.column("key")[rows.live]
            known = known[:0] if replace_old else known
            segments = self._segments(documents, known, manifest.passages)
            if not segments:
                return manifest
            changed, deleted = manifest, list[int]()
            if replace_old:
                added = replace(manifest, segments=tuple(segments), deleted="")
                new = store.Rows.open(self.folder, added)
                names = (new.document(number).id for number in range(new.n_documents))
                deleted = list(rows.find(names).values())
            if deleted:
                changed = _with_deleted(self.folder, manifest, rows, deleted)
            changed = replace(changed, generation=manifest.generation + 1)
            changed = self._finish(changed, segments)
            if deleted:
                _delete_rows(self.folder, changed, rows, deleted)
            # Segments of additions that were stopped: no manifest names them.
            disk.clean_segments(self.folder)
            return changed

    def _check_free(self) -> None:
        if self.settings.replace or self.settings.resume:
            return
        if (self.folder / MANIFEST).exists():
            raise IndexFolderError(
                f"{self.folder} holds an index: add to it with boolattn add, or build it anew "
                "with --replace"
            )
        if (self.folder / disk.SEGMENTS).is_dir():
            raise IndexFolderError(
                f"a build was stopped in {self.folder}: go on with --resume, or begin again with "
                "--replace"
            )

    def _segments(
        self, documents: Iterable[Document], known: NDArray[np.uint64], n_tokens: int
    ) -> list[SegmentEntry]:
        """Encode and write the documents, but for segments that an earlier build finished."""
        found: list[SegmentEntry | None] = []
        waiting: deque[tuple[int, str, Draft]] = deque()
        seen = _SeenIds(known)

        def missing() -> Iterator[list[str]]:
            for draft in store.drafts(documents, self.settings.segment_size, n_tokens):
                seen.add(draft)
                name = draft.name(self.retriever.fingerprint)
                old = store.find_segment(self.folder, name)
                found.append(old)
                if old is not None:
                    self.progress(old.count)
                    continue
                waiting.append((len(found) - 1, name, draft))
                pairs = zip(draft.documents, draft.spans, strict=True)
                yield [text for pair in pairs for text in self._encodable(*pair)]

        for vectors in (self.encode or self._encode)(missing()):
            place, name, draft = waiting.popleft()
            checked = self._checked(vectors, draft)
            found[place] = store.write_segment(self.folder, name, draft, checked)
            if self.encode is not None:
                self.progress(len(draft.documents))
        return [segment for segment in found if segment is not None]

    def _encode(self, batches: Iterable[list[str]]) -> Iterator[Array]:
        for texts in batches:
            yield self.retriever.encode_documents(
                texts, batch_size=self.settings.batch_size, progress=self.progress
            )

    def _encodable(self, document: Document, spans: Spans) -> Iterator[str]:
        """Return the passages to encode, each cut where no encoder reads on.

        Later passages begin with the title, without which they may not say what they are about.
        """
        text = document.text if document.text.strip() else document.title
        if not text.strip():
            raise DataError(f"document {document.id!r} has no text; leave it out")
        if len(spans) == 1:
            spans = [(0, len(text))]
        for number, (start, end) in enumerate(spans):
            passage = text[start : min(end, start + _CHARACTERS * self.retriever.max_tokens)]
            yield f"{document.title}. {passage}" if number and document.title else passage

    def _checked(self, vectors: Array, draft: Draft) -> Array:
        owners = [d.id for d, own in zip(draft.documents, draft.spans, strict=True) for _ in own]
        if vectors.shape != (len(owners), self.retriever.dimension):
            raise DataError(
                f"the encoder gave vectors of shape {vectors.shape} for {len(owners)} "
                f"passages and dimension {self.retriever.dimension}"
            )
        broken = np.flatnonzero(~np.isfinite(vectors).all(1))
        if len(broken):
            name = owners[broken[0]]
            raise DataError(f"the model gives no finite vector for document {name!r}")
        return unit(vectors) if self.retriever.similarity == "cosine" else vectors

    def _finish(self, manifest: Manifest, segments: list[SegmentEntry]) -> Manifest:
        """Add segments, update engine and lexical index, and commit."""
        first_row, first = manifest.n_rows, manifest.n_documents + manifest.n_deleted
        files = dict(manifest.files)
        for segment in segments:
            files |= store.segment_files(self.folder, segment.name)
        changed = replace(manifest, segments=(*manifest.segments, *segments), files=files)
        rows = store.Rows.open(self.folder, changed)
        changed = self._with_engine(changed, rows, first_row)
        if self.settings.lexical if not first_row else bool(manifest.lexical):
            changed = self._with_lexical(changed, rows, first)
        disk.commit(self.folder, changed)
        return changed

    def _with_engine(self, manifest: Manifest, rows: store.Rows, first_row: int) -> Manifest:
        job = Job(
            folder=self.folder,
            manifest=manifest,
            rows=rows,
            first_row=first_row,
            uri=self.settings.uri,
            sample=lambda: self._sample(rows),
        )
        settings, own = find_engine(manifest.engine).write(job)
        files = {k: v for k, v in manifest.files.items() if not k.startswith("engine-")}
        return replace(manifest, engine_settings=settings, files=files | own)

    def _sample(self, rows: store.Rows) -> Array:
        """Encode some titles, or first words, as queries to measure the recall with."""
        chosen = np.unique(np.linspace(0, rows.n_documents - 1, _N_SAMPLE).astype(np.int64))
        documents = [rows.document(number) for number in chosen.tolist()]
        texts = [d.title or " ".join(d.text[:200].split()[:6]) for d in documents]
        vectors = self.retriever.encode_operands(texts)
        return unit(vectors) if self.retriever.similarity == "cosine" else vectors

    def _with_lexical(self, manifest: Manifest, rows: store.Rows, first: int) -> Manifest:
        name = f"lexical-{manifest.generation}"
        target, part = self.folder / name, self.folder / (name + disk.PART)
        base = self.folder / manifest.lexical if manifest.lexical else None
        shutil.rmtree(target, ignore_errors=True)
        new = ((number, rows.document(number)) for number in range(first, rows.n_documents))
        write_lexical(part, new, base)
        part.rename(target)
        files = {k: v for k, v in manifest.files.items() if not k.startswith("lexical-")}
        files |= {f"{name}/{path.name}": describe(path) for path in sorted(target.iterdir())}
        return replace(manifest, lexical=name, files=files)


def delete_documents(folder: Path, ids: Iterable[str]) -> Manifest:
    """Remove documents; with an unknown id nothing is removed. No model is needed."""
    names = list(ids)
    if isinstance(ids, str | bytes) or not all(isinstance(name, str) for name in names):
        raise DataError("ids to delete are a list of texts")
    names = list(dict.fromkeys(names))
    read_manifest(folder)
    with disk.writing(folder):
        manifest = _checked_manifest(folder)
        disk.clean(folder)
        rows = store.Rows.open(folder, manifest)
        found = rows.find(names)
        if missing := [name for name in names if name not in found]:
            raise DataError(f"no document {missing[0]!r} in {folder}; nothing was deleted")
        if not found:
            return manifest
        changed = replace(manifest, generation=manifest.generation + 1)
        changed = _with_deleted(folder, changed, rows, deleted := list(found.values()))
        disk.commit(folder, changed)
        _delete_rows(folder, changed, rows, deleted)
        return changed


def _delete_rows(folder: Path, manifest: Manifest, rows: store.Rows, numbers: list[int]) -> None:
    own, _ = rows.of_documents(np.array(numbers))
    find_engine(manifest.engine).delete_rows(folder, manifest, own)


def _checked_manifest(folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    return manifest


def _with_deleted(
    folder: Path, manifest: Manifest, rows: store.Rows, chosen: list[int]
) -> Manifest:
    live = np.ones(rows.n_documents, bool) if rows.live is None else rows.live.copy()
    live[chosen] = False
    deleted = np.flatnonzero(~live)
    name = f"deleted-{manifest.generation}-{len(deleted)}.npy"
    with (folder / name).open("wb") as handle:
        np.lib.format.write_array(handle, deleted, allow_pickle=False)
    files = {k: v for k, v in manifest.files.items() if k != manifest.deleted}
    files[name] = describe(folder / name)
    return replace(manifest, deleted=name, n_deleted=len(deleted), files=files)


class _SeenIds:
    """Refuses an id that occurs twice."""

    def __init__(self, indexed: NDArray[np.uint64]) -> None:
        self._indexed, self._known = indexed, [np.zeros(0, np.uint64)]

    def add(self, draft: Draft) -> None:
        ids = [document.id for document in draft.documents]
        keys = np.array([value_hash(name) for name in ids], np.uint64)
        is_old = np.logical_or.reduce([np.isin(keys, old) for old in self._known])
        twice = [name for name, count in Counter(ids).items() if count > 1]
        if twice := twice + [ids[place] for place in np.flatnonzero(is_old)]:
            raise DataError(f"the id {twice[0]!r} comes twice; every document needs its own")
        if len(old := np.flatnonzero(np.isin(keys, self._indexed))):
            name = ids[old[0]]
            raise DataError(f"the index has the id {name!r} already; boolattn update replaces it")
        self._known.append(np.sort(keys))
        # Lists of similar length are merged, so that their number stays logarithmic.
        while len(self._known) > 1 and 2 * len(self._known[-1]) >= len(self._known[-2]):
            last = self._known.pop()
            self._known[-1] = np.sort(np.concatenate([self._known[-1], last]))
