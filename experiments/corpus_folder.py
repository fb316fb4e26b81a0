"""Folders of tokenized corpora: their format, and a name for what they hold."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.systems import RunSpec
    from boolattn.training.settings import Preset

CORPUS_FORMAT = "boolattn-prepared-2"


def corpus_folder(spec: RunSpec, preset: Preset, data: Path | None, paths: Paths) -> Path:
    """Return the folder of the tokenized corpus of a run."""
    size = preset.data.size if data is None else "given"
    length, version = preset.model.document_length, CORPUS_FORMAT.rpartition("-")[-1]
    parts = (spec.dataset.name, size, spec.encoder.vocabulary, length, content_hash(data), version)
    return paths.work / "layouts" / "-".join(map(str, parts))


def content_hash(folder: Path | None) -> str:
    """Hash the files of a folder: changed data is tokenized again, a copy is not."""
    if folder is None:
        return "own"
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as handle:
            own = hashlib.file_digest(handle, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder)}\0{own}\0".encode())
    return digest.hexdigest()[:12]
