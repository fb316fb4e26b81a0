"""Everything that runs need, checked before the first of them starts."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoConfig, AutoModel

from boolattn.data.sentences import generate
from boolattn.errors import ConfigError, MissingDataError
from boolattn.reproduction.inputs import WEIGHTS, encoder_folder, open_data
from boolattn.training.retrieval.training import require_gpu
from boolattn.training.towers import make_towers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.data.records import Dataset
    from boolattn.reproduction.requests import Paths, RunRequest
    from boolattn.reproduction.systems import RunSpec
    from boolattn.training.settings import Preset

_GB = 1e9
#: Seconds to wait for the hub.
_PATIENCE = 5
#: Bytes of a parameter in training: weight, gradient and two moments of AdamW.
_TRAINED = 16
#: Share of a matrix multiplication's speed that training reaches; for an estimate.
_SHARE = 0.3


@dataclass(frozen=True)
class Needs:
    """What runs take: lower bounds of memory and disk, and a rough time."""

    memory: float
    disk: float
    seconds: float

    def __str__(self) -> str:
        hours = f"{self.seconds / 3600:.1f} h" if self.seconds >= 3600 else "less than 1 h"
        memory, disk = self.memory / _GB, self.disk / _GB
        return f"roughly {hours}, at least {memory:.1f} GB of memory and {disk:.1f} GB of disk"


def check(
    runs: Sequence[tuple[RunSpec, Preset]], request: RunRequest, paths: Paths, seconds: float = 0
) -> Needs:
    """Check files, splits, GPU, memory, disk and time of runs; return what they take.

    ``seconds`` is the most time that they may take; 0 for any.
    """
    total, memory, disk = 0.0, 0.0, 0.0
    for spec, preset in runs:
        require_gpu(preset)
        _check_packages(spec, preset)
        n_parameters, hidden_size = _check_encoder(preset.model.encoder)
        if (start := request.start(spec)) is not None:
            make_towers(preset, start)  # refuses one that does not fit
        dataset = open_data(request.data_place(spec, preset))
        n_queries, n_documents = _check_splits(spec, preset, dataset), len(dataset.documents)
        n_trained = n_parameters * (1 if preset.model.is_shared else 2)
        memory = max(memory, _TRAINED * n_trained + 4 * n_documents * hidden_size)
        disk += 4 * n_trained
        total += _operations(preset, n_parameters, n_queries, n_documents)
    needs = Needs(memory, disk, total / (_SHARE * _speed()))
    _check_machine(needs, paths.work, seconds)
    return needs


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


def _check_splits(spec: RunSpec, preset: Preset, dataset: Dataset) -> int:
    """Refuse a data set without the splits of a run; return its number of training queries."""
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
    return sum(len(there[split]) for split in train)


def _operations(preset: Preset, n_parameters: int, n_queries: int, n_documents: int) -> float:
    """Count the operations of a run, for texts of full length."""
    model, train = preset.model, preset.train
    steps = train.max_steps or train.n_epochs * -(-n_queries // train.batch_size)
    tokens = model.query_length + (1 + train.n_negatives) * model.document_length
    trained = 6.0 * n_parameters * steps * train.batch_size * tokens if n_queries else 0.0
    return trained + 2.0 * n_parameters * n_documents * model.document_length


@lru_cache(maxsize=1)
def _speed() -> float:
    """Measure how many operations this machine does in a second, in a product of matrices."""
    is_cuda = torch.cuda.is_available()
    size, dtype = (8192, torch.bfloat16) if is_cuda else (1024, torch.float32)
    matrix = torch.ones(size, size, dtype=dtype, device="cuda" if is_cuda else "cpu")
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        (matrix @ matrix)[0, 0].item()
        best = min(best, time.perf_counter() - began)
    return 2.0 * size**3 / best


def _check_machine(needs: Needs, work: Path, seconds: float) -> None:
    free_disk = shutil.disk_usage(
        next(one for one in (work, *work.absolute().parents) if one.exists())
    )
    memory = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else _free_memory()
    for what, free, needed in (
        ("memory", memory, needs.memory),
        ("disk", free_disk.free, needs.disk),
    ):
        if free < needed:
            raise ConfigError(
                f"the runs need at least {needed / _GB:.1f} GB of {what}; {free / _GB:.1f} are free"
            )
    if seconds and needs.seconds > seconds:
        raise ConfigError(
            f"the runs take roughly {needs.seconds / 3600:.1f} h, more than the "
            f"{seconds / 3600:.1f} h of --hours; run fewer seeds, or a smaller preset"
        )


def _free_memory() -> float:
    """Return the memory that is available, where the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return 1024.0 * next(int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float("inf")
