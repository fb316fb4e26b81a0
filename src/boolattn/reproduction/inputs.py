"""What a run reads besides its settings: data, encoder, model to start from.

They are checked before the first run, and their fingerprints are stored with each.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from transformers import AutoConfig

from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.sentences import generate
from boolattn.encoders.models import torch_source
from boolattn.errors import ConfigError, MissingDataError
from boolattn.files import text_hash
from boolattn.training.corpus import Corpus
from boolattn.training.retrieval import require_gpu
from boolattn.training.towers import load_encoder, make_towers

if TYPE_CHECKING:
    from boolattn.data.records import Dataset
    from boolattn.reproduction.systems import RunSpec
    from boolattn.training.settings import Preset

_LENGTH = 16
WEIGHTS = (".safetensors", ".bin")


@lru_cache(maxsize=2)
def open_data(name: str, size: str, folder: Path | None, splits: tuple[str, ...]) -> Dataset:
    """Open a data set, once for all runs that use it."""
    return open_dataset(name, DataOptions(folder=folder, size=size, splits=splits))


@lru_cache(maxsize=1)
def open_corpus(
    encoder: str, length: int, name: str, size: str, folder: Path | None, splits: tuple[str, ...]
) -> Corpus:
    """Open a data set with an encoder's tokens, once for the runs that follow each other."""
    return Corpus(open_data(name, size, folder, splits), load_encoder(encoder)[1], length)


@dataclass(frozen=True)
class PlannedRun:
    """A run with its complete settings, the folder of its data and the model it starts from."""

    spec: RunSpec
    preset: Preset
    folder: Path | None = None  # Of the data; default: the data set's own
    start: Path | None = None

    @property
    def dataset(self) -> Dataset:
        """Its data set."""
        return open_data(*self._data_key)

    @property
    def corpus(self) -> Corpus:
        """Its data set with the encoder's tokens."""
        model = self.preset.model
        return open_corpus(model.encoder, model.document_length, *self._data_key)

    @property
    def _data_key(self) -> tuple[str, str, Path | None, tuple[str, ...]]:
        data = self.preset.data
        return data.name, data.size, self.folder, tuple(data.train.split("+"))

    def check(self) -> None:
        """Check the GPU, the packages, the encoder, the start and the splits that it needs."""
        preset, system = self.preset, self.spec.system
        require_gpu(preset)
        if self.start is not None:
            make_towers(preset, self.start)  # refuses one that does not fit
        there = self.dataset.splits
        if preset.train.n_bm25 and find_spec("tantivy") is None:
            raise MissingDataError(f"{system.name} needs tantivy; pip install tantivy")
        if preset.model.use_plugin and (system.pretrain or preset.train.scope_weight):
            next(iter(generate(1, 0)))  # says what generated sentences need
        _check_encoder(preset.model.encoder)
        data, reported = preset.data, self.spec.dataset.splits
        needed = [*data.train.split("+"), data.validation] if system.kind == "trained" else []
        for split in filter(None, needed):
            if not there.get(split):
                remedy = "; train without by --set data.validation= --set train.keep=last"
                raise ConfigError(
                    f"{self.dataset.name} has no split {split!r}; it has {', '.join(there)}"
                    + (remedy if split == data.validation else "")
                )
        if not any(there.get(split) for split in reported):
            raise ConfigError(
                f"{self.dataset.name} has none of the splits that are reported: "
                f"{', '.join(reported)}; it has {', '.join(there)}"
            )

    def fingerprints(self) -> dict[str, str]:
        """Return hashes of what it reads, by what each is of; they are stored in its file."""
        data = self.preset.data
        splits = {*data.train.split("+"), data.validation, *self.spec.dataset.splits} - {""}
        hashes = {"data": data_fingerprint(self.dataset, sorted(splits))}
        if self.spec.system.kind != "bm25":
            hashes["encoder"] = encoder_fingerprint(self.preset.model.encoder)
        if self.start is not None:
            hashes["start"] = encoder_fingerprint(str(self.start))
        return hashes


@lru_cache(maxsize=8)
def _check_encoder(name: str) -> None:
    """Refuse an encoder that cannot be loaded."""
    folder = _encoder_folder(name)
    if folder and not any(path.suffix in WEIGHTS for path in folder.iterdir()):
        raise MissingDataError(f"{folder} holds no weights (*.safetensors)")
    try:
        AutoConfig.from_pretrained(folder or name, local_files_only=folder is not None)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise MissingDataError(
            f"no encoder {name!r} ({reason}); name its folder with --encoder"
        ) from error


def data_fingerprint(dataset: Dataset, splits: list[str]) -> str:
    """Hash documents, queries and answers, whatever files they come from."""
    rows = [(document.id, document.text) for document in dataset.documents]
    for split in splits:
        for query in dataset.splits.get(split, ()):
            ids = [*sorted(query.gold), *sorted(query.excluded)]
            rows.append((f"{split} {query.id}", query.text + "\0".join(ids)))
    return text_hash(rows)[:_LENGTH]


def encoder_fingerprint(name: str) -> str:
    """Hash the weights of an encoder; of one that is not on this machine, only its name."""
    folder = _encoder_folder(name)
    if folder is None:
        return hashlib.sha256(name.encode()).hexdigest()[:_LENGTH]
    paths = sorted(path for path in folder.rglob("*") if path.suffix in WEIGHTS)
    return _files_hash(tuple((str(path), path.stat().st_mtime_ns) for path in paths))


def _encoder_folder(name: str) -> Path | None:
    """Return the folder of an encoder, or of its copy in the hub's cache; ``None`` without one."""
    source = torch_source(name)
    if Path(source).is_dir():
        return Path(source)
    try:
        cached = try_to_load_from_cache(source, "config.json")
    except HFValidationError:  # a path
        cached = None
    return Path(cached).parent if isinstance(cached, str) else None


@lru_cache(maxsize=16)
def _files_hash(files: tuple[tuple[str, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, _time in files:
        with Path(path).open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:_LENGTH]
