"""Everything that runs need, checked before the first of them starts."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, TrainerCallback

from boolattn.data.sentences import generate
from boolattn.errors import ConfigError, MissingDataError
from boolattn.files import require
from boolattn.reproduction.inputs import WEIGHTS, encoder_folder, open_data
from boolattn.training.corpus import Corpus
from boolattn.training.launch import make_steps
from boolattn.training.retrieval.trainer import Job, RetrievalTrainer
from boolattn.training.retrieval.training import release_memory, require_gpu
from boolattn.training.run_folder import RunFolder
from boolattn.training.towers import load_encoder, make_towers
from boolattn.training.validation import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from boolattn.data.records import Dataset
    from boolattn.reproduction.inputs import DataPlace
    from boolattn.reproduction.requests import Paths, RunRequest
    from boolattn.reproduction.systems import RunSpec
    from boolattn.training.settings import Preset

_GB = 1e9
#: Seconds to wait for the hub.
_PATIENCE = 5
#: Bytes of a parameter in training: weight, gradient and two moments of AdamW.
_TRAINED = 16
#: Steps of a trial, and documents encoded in it and at once, on a GPU and on a CPU.
_TRIAL = {True: (12, 4096, 1024), False: (2, 64, 64)}


class Needs(NamedTuple):
    """What runs take: memory, disk, and an estimate of their time."""

    memory: float
    disk: float
    seconds: float

    def __str__(self) -> str:
        has_gpu = torch.cuda.is_available()
        where = torch.cuda.get_device_name() if has_gpu else "the CPU"
        return (
            f"about {self.seconds / 3600:.2g} h by a trial of {_TRIAL[has_gpu][0]} steps on {where}"
            f", at least {self.memory / _GB:.1f} GB of memory and {self.disk / _GB:.1f} GB of disk"
        )


class Trial(NamedTuple):
    """Seconds of a training step and of encoding a document, and the GPU's memory."""

    step: float
    document: float
    memory: float


def check(
    runs: Sequence[tuple[RunSpec, Preset]], request: RunRequest, paths: Paths, seconds: float = 0
) -> Needs:
    """Check files, splits, GPU, memory, disk and time of runs; return what they take.

    A few steps are tried with the first system that has BoolAttn and the first that has none.
    ``seconds`` is the most time that the runs may take; 0 for any.
    """
    require("significance", ("scipy",), "evaluate")
    memory, disk = 0.0, 0.0
    for spec, preset in runs:
        require_gpu(preset)
        _check_packages(spec, preset)
        n_parameters, hidden_size = _check_encoder(preset.model.encoder)
        if (start := request.start(spec)) is not None:
            make_towers(preset, start)  # refuses one that does not fit
        dataset = open_data(request.data_place(spec, preset))
        _check_splits(spec, preset, dataset)
        n_trained = n_parameters * (1 if preset.model.is_shared else 2)
        memory = max(memory, _TRAINED * n_trained + 4 * len(dataset.documents) * hidden_size)
        disk += 4 * n_trained
    _check_machine(memory, disk, paths.work)
    total, trials = 0.0, dict[bool, Trial]()
    for spec, preset in runs:
        corpus = open_corpus(
            preset.model.encoder, preset.model.document_length, request.data_place(spec, preset)
        )
        if preset.model.use_plugin not in trials:
            trials[preset.model.use_plugin] = try_steps(preset, corpus, request.start(spec))
        trial = trials[preset.model.use_plugin]
        total, memory = total + _seconds(preset, corpus, trial), max(memory, trial.memory)
    if seconds and total > seconds:
        raise ConfigError(
            f"the runs take roughly {total / 3600:.1f} h, more than the "
            f"{seconds / 3600:.1f} h of --hours; run fewer seeds, or a smaller preset"
        )
    return Needs(memory, disk, total)


@lru_cache(maxsize=1)
def open_corpus(encoder: str, length: int, where: DataPlace) -> Corpus:
    """Open a data set with an encoder's tokens, once for the runs that follow each other."""
    return Corpus(open_data(where), load_encoder(encoder)[1], length)


def try_steps(preset: Preset, corpus: Corpus, start: Path | None = None) -> Trial:
    """Train a few steps and encode some documents as a run does; keep nothing."""
    n_steps, n_documents, size = _TRIAL[torch.cuda.is_available()]
    # One step more than are done: the last one of a run writes a checkpoint.
    changed = replace(preset.train, max_steps=n_steps + 1, n_bm25=0)
    preset, clock = replace(preset, train=changed), _Clock(n_steps)
    towers = make_towers(preset, start)
    try:
        with TemporaryDirectory() as folder:
            job = Job(preset, towers, make_steps(preset, corpus), RunFolder(Path(folder)))
            trainer = RetrievalTrainer(job)
            trainer.add_callback(clock)
            trainer.train()
            job.run.finish({}, [])
        rows = np.linspace(0, len(corpus.documents) - 1, n_documents).astype(int).tolist()
        began = time.perf_counter()
        with torch.inference_mode():
            encode(towers.eval(), corpus.documents, rows, "document", size)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"preset {preset.name} needs more memory than {torch.cuda.get_device_name()} has free; "
            "lower train.chunk or train.batch_size"
        ) from error
    document = (time.perf_counter() - began) / n_documents
    memory = torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0.0
    release_memory()
    return Trial(float(np.median(np.diff(clock.times))), document, memory)


class _Clock(TrainerCallback):
    """Notes when each step ends, and stops after some."""

    def __init__(self, n_steps: int) -> None:
        self.n_steps, self.times = n_steps, list[float]()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Note the time."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())
        control.should_training_stop = state.global_step >= self.n_steps


def _seconds(preset: Preset, corpus: Corpus, trial: Trial) -> float:
    """Estimate the time of training, validation and ranking; pretraining is short beside them."""
    train, n_documents = preset.train, len(corpus.documents)
    per_epoch = -(-len(corpus.split(preset.data.train)) // train.batch_size)
    n_steps = train.max_steps or train.n_epochs * per_epoch
    n_encoded = n_documents
    if preset.data.validation:
        n_validated = min(train.n_validation_documents or n_documents, n_documents)
        n_encoded += n_steps // (train.evaluate_every or per_epoch) * n_validated
    return n_steps * trial.step + n_encoded * trial.document


def _check_packages(spec: RunSpec, preset: Preset) -> None:
    if preset.train.n_bm25 and find_spec("tantivy") is None:
        raise MissingDataError(f"{spec.system.name} needs tantivy; pip install 'boolattn[search]'")
    if preset.model.use_plugin and (spec.system.pretrain or preset.train.scope_weight):
        next(iter(generate(1, 0)))  # says what generated sentences need


@lru_cache(maxsize=8)
def _check_encoder(name: str) -> tuple[int, int]:
    """Refuse an encoder that cannot be loaded; return its parameters and its width."""
    folder = encoder_folder(name)
    if folder is None:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError

        try:
            HfApi().model_info(name, timeout=_PATIENCE)
        except (OSError, HfHubHTTPError, HFValidationError) as error:
            raise MissingDataError(
                f"no encoder {name!r}: neither a folder nor in the hub's cache, and the hub is out "
                "of reach or does not have it; name its folder with --encoder"
            ) from error
    elif not any(path.suffix in WEIGHTS for path in folder.iterdir()):
        raise MissingDataError(f"{folder} holds no weights (*.safetensors)")
    try:
        config = AutoConfig.from_pretrained(folder or name, local_files_only=folder is not None)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise MissingDataError(f"cannot read the encoder {name}: {reason}") from error
    with torch.device("meta"):
        return AutoModel.from_config(config).num_parameters(), config.hidden_size


def _check_splits(spec: RunSpec, preset: Preset, dataset: Dataset) -> None:
    """Refuse a data set without the splits of a run."""
    data, there = preset.data, dataset.splits
    train = data.train.split("+") if spec.system.kind == "trained" else []
    needed = [*train, *([data.validation] if data.validation and train else [])]
    remedy = ""
    for split in needed:
        if not there.get(split):
            if split == data.validation:
                remedy = "; train without by --set data.validation= --set train.keep=last"
            raise ConfigError(
                f"{dataset.name} has no split {split!r}; it has {', '.join(there)}{remedy}"
            )
    if not any(there.get(split) for split in spec.dataset.splits):
        raise ConfigError(
            f"{dataset.name} has none of the splits that are reported: "
            f"{', '.join(spec.dataset.splits)}; it has {', '.join(there)}"
        )


def _check_machine(memory: float, disk: float, work: Path) -> None:
    there = next(one for one in (work, *work.absolute().parents) if one.exists())
    free = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else _free_memory()
    for what, has, needed in (
        ("memory", free, memory),
        ("disk", shutil.disk_usage(there).free, disk),
    ):
        if has < needed:
            raise ConfigError(
                f"the runs need at least {needed / _GB:.1f} GB of {what}; {has / _GB:.1f} are free"
            )


def _free_memory() -> float:
    """Return the memory that is available, where the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return 1024.0 * next(int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float("inf")
