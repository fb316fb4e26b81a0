"""What runs are requested, with which settings and inputs, and which of them are finished.

Inputs are checked before the first run, and their fingerprints are stored with each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock
from transformers.utils.hub import cached_file

from boolattn.checksums import CONFIG, file_sum
from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.sentences import generate
from boolattn.encoders.models import torch_source
from boolattn.errors import ConfigError
from boolattn.reproduction.runs import NO_ENCODER, Run, RunKey, registry
from boolattn.training.launch import load_encoder, make_towers
from boolattn.training.loop import FINGERPRINT, data_fingerprint, differences
from boolattn.training.retrieval import Corpus, require_gpu
from boolattn.training.settings import Preset, load_preset, read_preset

if TYPE_CHECKING:
    from boolattn.data.records import Dataset
    from boolattn.reproduction.runs import DatasetSpec, EncoderSpec, SystemSpec

SEEDS = (0, 42, 1234)  # The paper's
#: Inputs that have fingerprints, in words.
_INPUTS = {"data": "data", "encoder": "encoder weights", "start": "weights to start from"}
#: Settings that change no result: the encoder's folder, whose weights have a fingerprint; speed.
_IRRELEVANT = ("model.encoder ", "train.chunk ", "train.captured ")
#: Settings without effect on towers without a plug-in.
_PLUGIN_ONLY = ("train.scope_weight ", "plugin.")
_WEIGHTS = (".safetensors", ".bin")

open_data = lru_cache(maxsize=2)(open_dataset)  # Once for all runs that use a data set


@lru_cache(maxsize=1)
def open_corpus(encoder: str, length: int, name: str, options: DataOptions) -> Corpus:
    """Open a data set with an encoder's tokens, once for the runs that follow each other."""
    return Corpus(open_data(name, options), load_encoder(encoder)[1], length)


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run: a system on a data set and encoder, with a seed and its complete settings."""

    system: SystemSpec
    dataset: DatasetSpec
    encoder: EncoderSpec
    seed: int
    preset: Preset
    folder: Path | None = None  # Of the data; default: the data set's own
    start: Path | None = None  # The model it starts from

    @property
    def key(self) -> RunKey:
        """What its file is named after."""
        encoder = NO_ENCODER if self.system.kind == "bm25" else self.encoder.name
        return RunKey(self.dataset.name, encoder, self.system.name, self.seed)

    @property
    def data(self) -> Dataset:
        """Its documents and queries."""
        return open_data(self.preset.data.name, self._options)

    @property
    def corpus(self) -> Corpus:
        """Its data with the encoder's tokens."""
        model, data = self.preset.model, self.preset.data
        return open_corpus(model.encoder, model.document_length, data.name, self._options)

    @property
    def _options(self) -> DataOptions:
        splits = tuple(self.preset.data.train.split("+"))
        return DataOptions(folder=self.folder, size=self.preset.data.size, splits=splits)

    def check(self) -> None:
        """Check the GPU, the packages, the encoder, the start and the splits that it needs."""
        preset, system = self.preset, self.system
        require_gpu(preset)
        if self.start is not None:
            make_towers(preset, self.start)  # refuses one that does not fit
        data = self.corpus.dataset  # also loads the encoder
        if preset.model.use_plugin and (system.pretrain or preset.train.scope_weight):
            next(iter(generate(1, 0)))  # says what generated sentences need
        splits = [*preset.data.train.split("+"), preset.data.validation]
        for split in filter(None, splits if system.kind == "trained" else ()):
            data.queries(split)
        if not any(map(data.splits.get, self.dataset.splits)):
            reported, known = (", ".join(part.splits) for part in (self.dataset, data))
            problem = f"{data.name} has none of the splits that are reported: {reported}"
            raise ConfigError(f"{problem}; it has {known}")

    def fingerprints(self) -> dict[str, str]:
        """Return hashes of what it reads, by what each is of; they are stored in its file."""
        data = self.preset.data
        splits = {*data.train.split("+"), data.validation, *self.dataset.splits} - {""}
        hashes = {"data": data_fingerprint(self.data, sorted(splits))}
        if self.system.kind != "bm25":
            hashes["encoder"] = encoder_fingerprint(self.preset.model.encoder)
        if self.start is not None:
            hashes["start"] = encoder_fingerprint(str(self.start))
        return hashes


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Folders and the command line of a series of runs."""

    runs: Path  # Files of finished runs: small, to be kept
    work: Path  # Large files that can be made again: models, pretrainings, BM25 rankings
    keep_models: bool = False  # Whether trained models stay in ``work/models``
    command: str = ""  # Stored in each run file

    def pretraining(self, preset: Preset) -> Path:
        """Folder of a pretraining; runs with the same settings share it."""
        model, plugin, settings = preset.model, preset.plugin, preset.pretrain
        encoder = encoder_fingerprint(model.encoder)
        values = [asdict(plugin), asdict(settings), encoder, model.pooling]
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
        name = f"{Path(model.encoder).name}-{plugin.variant}-{plugin.gate}-{settings.seed}-{digest}"
        return self.work / "heads" / name

    def model(self, key: RunKey) -> Path:
        """Folder of the training of a run."""
        return self.work / "models" / str(key).replace(" ", "-")

    def lock(self, key: RunKey) -> FileLock:
        """Return the lock of a run, which raises if another process has it."""
        folder = self.work / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / f"{self.model(key).name}.lock", blocking=False)


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Requested runs: every system on every data set and encoder, with every seed."""

    systems: Sequence[str]  # The most important first
    datasets: Sequence[str]
    encoders: Sequence[str] = ("minilm",)
    seeds: Sequence[int] = SEEDS  # All runs of the first seed come first
    data: Mapping[str, Path] = field(default_factory=dict)  # Folders; default: the data set's own
    preset: str = ""  # Instead of the presets of the data sets and encoders
    sources: Mapping[str, str] = field(default_factory=dict)  # Folders of encoders, by name
    changes: Sequence[str] = ()  # ``key=value``, applied after the systems' own
    done: Sequence[Path] = ()  # Folders with more finished runs
    starts: Mapping[str, Path] = field(default_factory=dict)  # Model to continue from, by system

    def runs(self) -> Iterator[PlannedRun]:
        """List the runs, seeds outermost, so that a table is complete early."""
        known = registry()
        for seed, name in product(self.seeds, self.systems):
            system = known.systems[name]
            if system.kind != "trained" and seed != self.seeds[0]:
                continue
            encoders = self.encoders[:1] if system.kind == "bm25" else self.encoders
            datasets = [known.datasets[name] for name in self.datasets]
            for dataset, encoder in product(datasets, map(known.encoders.__getitem__, encoders)):
                if not system.datasets or dataset.name in system.datasets:
                    yield self._run(system, dataset, encoder, seed)

    def _run(
        self, system: SystemSpec, dataset: DatasetSpec, encoder: EncoderSpec, seed: int
    ) -> PlannedRun:
        """Plan a run; ``{seed}`` in the name of its start is its seed."""
        name = self.preset or encoder.presets.get(dataset.name, "")
        if not name:
            known = ", ".join(encoder.presets)
            remedy = f"name one with --preset, or choose one of its data sets: {known}"
            raise ConfigError(f"no preset for {encoder.name} on {dataset.name}; {remedy}")
        values = read_preset(name)
        # The paper's size unless the system sets a rank, whatever the shipped model's preset has.
        values.get("plugin", {}).pop("rank", None)
        values.setdefault("model", {})["encoder"] = self.sources.get(encoder.name, encoder.source)
        # A preset of the caller's names its own splits.
        data = {} if self.preset else dataset.data
        values.setdefault("data", {}).update(data, name=dataset.catalog)
        changes = [*encoder.set, *system.set]
        # No validation that selects nothing, or that would select on a reported split.
        is_reported = values["data"].get("validation") in dataset.splits
        if is_reported or values.get("train", {}).get("keep") == "last":
            changes += ["data.validation=", "train.keep=last"]
        changes += [*self.changes, f"train.seed={seed}", f"pretrain.seed={seed}"]
        start = self.starts.get(system.name)
        return PlannedRun(
            system=system,
            dataset=dataset,
            encoder=encoder,
            seed=seed,
            preset=load_preset(name, changes, values=values),
            folder=self.data.get(dataset.name),
            start=start and Path(str(start).replace("{seed}", str(seed))),
        )


def plan(request: RunRequest, paths: Paths) -> tuple[list[Path], list[PlannedRun]]:
    """Return the files of the requested runs that are finished, and the runs that are not."""
    for option, named, known in (
        ("--start", request.starts, request.systems),
        ("--encoder", request.sources, request.encoders),
        ("--data", request.data, request.datasets),
    ):
        if unknown := [name for name in named if name not in known]:
            raise ConfigError(f"{option} {unknown[0]}=…: the runs have {', '.join(known)}")
    for cache in (open_data, open_corpus, encoder_fingerprint):
        cache.cache_clear()  # files may have changed since
    pairs = [(run, find_finished(run, (paths.runs, *request.done))) for run in request.runs()]
    return [path for _, path in pairs if path], [run for run, path in pairs if not path]


def find_finished(run: PlannedRun, folders: Iterable[Path]) -> Path | None:
    """Find the file of a finished run; refuse one of other settings, encoder weights or data.

    Some runs of the repository are older than the fingerprints of these.
    """
    paths = (home / run.key.path for home in folders)
    if (path := next(filter(Path.is_file, paths), None)) is None:
        return None
    details = Run.load(path).details
    other = ""
    if run.system.kind != "bm25":
        ignored: tuple[str, ...] = () if run.system.pretrain else ("pretrain.",)
        ignored += _IRRELEVANT if run.preset.model.use_plugin else _IRRELEVANT + _PLUGIN_ONLY
        saved = details["settings"]
        here = {name: values for name, values in run.preset.to_dict().items() if name != "name"}
        there = {name: {key: saved.get(name, {}).get(key) for key in here[name]} for name in here}
        other = next((d for d in differences(here, there) if not d.startswith(ignored)), "")
    if not other and (before := details.get("inputs")) is not None:
        now = run.fingerprints()
        changed = [name for name in now | before if now.get(name) != before.get(name)]
        other = f"other {_INPUTS[changed[0]]}" if changed else ""
    if other:
        remedy = "name another --out, or remove it to run again"
        raise ConfigError(f"{path} was run with {other}; {remedy}")
    return path


@lru_cache(maxsize=16)
def encoder_fingerprint(name: str) -> str:
    """Hash the weights of an encoder; of one that is not on this machine, only its name."""
    try:
        cached = str(cached_file(torch_source(name), CONFIG, local_files_only=True))
    except OSError:
        return hashlib.sha256(name.encode()).hexdigest()[:FINGERPRINT]
    paths = sorted(p for p in Path(cached).parent.rglob("*") if p.suffix in _WEIGHTS)
    sums = (bytes.fromhex(file_sum(path)) for path in paths)
    return hashlib.sha256(b"".join(sums)).hexdigest()[:FINGERPRINT]
