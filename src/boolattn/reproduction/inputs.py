"""What a run reads besides its settings: data, encoder, model to start from; their fingerprints.

Imports no torch: a plan is made in a process without it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from boolattn.data.catalog import Options, open_dataset
from boolattn.encoders.models import torch_source
from boolattn.files import text_hash

if TYPE_CHECKING:
    from boolattn.data.records import Dataset
    from boolattn.reproduction.systems import RunSpec
    from boolattn.training.settings import Preset

_LENGTH = 16
WEIGHTS = (".safetensors", ".bin")


class DataPlace(NamedTuple):
    """What a data set is opened by."""

    name: str
    size: str
    folder: Path | None
    splits: tuple[str, ...]


@lru_cache(maxsize=2)
def open_data(where: DataPlace) -> Dataset:
    """Open a data set, once for all runs that use it."""
    options = Options(folder=where.folder, size=where.size, splits=where.splits)
    return open_dataset(where.name, options)


def fingerprints(
    spec: RunSpec, preset: Preset, dataset: Dataset, start: Path | None = None
) -> dict[str, str]:
    """Return the fingerprints of a run, by what each is of; they are stored in its file."""
    found = {"data": data_fingerprint(dataset, used_splits(spec, preset))}
    if spec.system.kind != "bm25":
        found["encoder"] = encoder_fingerprint(preset.model.encoder)
    if start is not None:
        found["start"] = encoder_fingerprint(str(start))
    return found


def used_splits(spec: RunSpec, preset: Preset) -> list[str]:
    """Return the splits that a run trains on, validates on and reports."""
    data = preset.data
    return sorted({*data.train.split("+"), data.validation, *spec.dataset.splits} - {""})


def data_fingerprint(dataset: Dataset, splits: list[str]) -> str:
    """Hash documents, queries and answers, whatever files they come from."""
    rows = [(document.id, document.text) for document in dataset.documents]
    for split in splits:
        queries = dataset.splits.get(split, ())
        rows += [
            (f"{split} {one.id}", one.text + "\0".join(sorted(one.gold) + sorted(one.excluded)))
            for one in queries
        ]
    return text_hash(rows)[:_LENGTH]


def encoder_folder(name: str) -> Path | None:
    """Return the folder of an encoder, or of its copy in the hub's cache; ``None`` without one."""
    source = torch_source(name)
    if not Path(source).is_dir():
        try:
            found = try_to_load_from_cache(source, "config.json")
        except HFValidationError:  # a path
            found = None
        return Path(found).parent if isinstance(found, str) else None
    return Path(source)


def encoder_fingerprint(name: str) -> str:
    """Hash the weights of an encoder; of one that is not on this machine, only its name."""
    folder = encoder_folder(name)
    if folder is None:
        return hashlib.sha256(name.encode()).hexdigest()[:_LENGTH]
    paths = sorted(path for path in folder.rglob("*") if path.suffix in WEIGHTS)
    return _files_hash(tuple((str(path), path.stat().st_mtime_ns) for path in paths))


@lru_cache(maxsize=16)
def _files_hash(files: tuple[tuple[str, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, _time in files:
        with Path(path).open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:_LENGTH]
