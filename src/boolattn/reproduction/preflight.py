"""Everything that runs need, checked before the first of them starts."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from transformers import AutoConfig

from boolattn.data.sentences import generate
from boolattn.errors import ConfigError, MissingDataError
from boolattn.files import require
from boolattn.reproduction.inputs import WEIGHTS, encoder_folder, open_data
from boolattn.training.corpus import Corpus
from boolattn.training.retrieval.training import require_gpu
from boolattn.training.towers import load_encoder, make_towers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.data.records import Dataset
    from boolattn.reproduction.inputs import DataPlace
    from boolattn.reproduction.requests import RunRequest
    from boolattn.reproduction.systems import RunSpec
    from boolattn.training.settings import Preset

#: Seconds to wait for the hub.
_PATIENCE = 5


def check(runs: Sequence[tuple[RunSpec, Preset]], request: RunRequest) -> None:
    """Check the packages, encoders, splits and GPU of runs."""
    require("significance", ("scipy",), "evaluate")
    for spec, preset in runs:
        require_gpu(preset)
        _check_packages(spec, preset)
        _check_encoder(preset.model.encoder)
        if (start := request.start(spec)) is not None:
            make_towers(preset, start)  # refuses one that does not fit
        _check_splits(spec, preset, open_data(request.data_place(spec, preset)))


@lru_cache(maxsize=1)
def open_corpus(encoder: str, length: int, where: DataPlace) -> Corpus:
    """Open a data set with an encoder's tokens, once for the runs that follow each other."""
    return Corpus(open_data(where), load_encoder(encoder)[1], length)


def _check_packages(spec: RunSpec, preset: Preset) -> None:
    if preset.train.n_bm25 and find_spec("tantivy") is None:
        raise MissingDataError(f"{spec.system.name} needs tantivy; pip install 'boolattn[search]'")
    if preset.model.use_plugin and (spec.system.pretrain or preset.train.scope_weight):
        next(iter(generate(1, 0)))  # says what generated sentences need


@lru_cache(maxsize=8)
def _check_encoder(name: str) -> None:
    """Refuse an encoder that cannot be loaded."""
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
        AutoConfig.from_pretrained(folder or name, local_files_only=folder is not None)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise MissingDataError(f"cannot read the encoder {name}: {reason}") from error


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
