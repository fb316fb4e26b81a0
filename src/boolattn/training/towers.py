"""The towers that a run begins with: from an encoder, a pretraining, or another training."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.encoder.tower_storage import load_towers
from boolattn.encoder.towers import (
    TowerConfig,
    build_towers,
    from_pretrained,
    query_encoder,
    settings_of,
)
from boolattn.encoders.models import torch_source
from boolattn.errors import ConfigError, MissingDataError
from boolattn.plugin import plugin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerBase

    from boolattn.training.settings import Preset, TrainSettings

_SHAPE = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the setting of an encoder that is not there."""
    try:
        yield
    except MissingDataError as error:
        raise ConfigError(
            f"no encoder {name!r} ({error}); name its folder: --set model.encoder=FOLDER"
        ) from error


def load_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder and its tokenizer by name."""
    source = torch_source(name)
    with _named(name):
        # Weights stored in half precision would be trained in it, and become nan.
        encoder = from_pretrained(AutoModel, source).float()
        return encoder, from_pretrained(AutoTokenizer, source)


def make_towers(preset: Preset, pretrained: Path | None = None) -> SentenceTransformer:
    """Build the towers of a preset, or begin with the model of a pretraining or a training."""
    model = preset.model
    if pretrained is not None and not pretrained.is_dir():
        raise ConfigError(f"no folder {pretrained} to begin from; name a run's model")
    if pretrained is not None and (pretrained / "modules.json").is_file():
        towers = load_towers(pretrained)
        if other := next(_differences(preset, towers), ""):
            raise ConfigError(f"{pretrained} is of another model: {other}")
        return towers.float()
    if pretrained is not None and not model.use_plugin:
        raise ConfigError("plain towers take no pretrained plug-in; leave out --pretrained")
    config = preset.plugin if model.use_plugin else None
    source = base = torch_source(model.encoder)
    more: dict[str, Any] = {item.name: getattr(model, item.name) for item in fields(TowerConfig)}
    if pretrained:
        # The paper's document encoder is BERT, without the embeddings that pretraining moved.
        source, more["document_encoder"] = str(pretrained), None if model.is_shared else base
    with _named(source):
        # Weights stored in half precision would be trained in it.
        return build_towers(source, config, **more).float()


def freeze(towers: SentenceTransformer, settings: TrainSettings) -> None:
    """Freeze what the settings name.

    Retrieval training would move gate and cue predictor by what a vector gains, away from the
    query's operators. A frozen encoder has no dropout: documents keep their vectors.
    """
    encoder = query_encoder(towers)
    plugin = plugin_of(encoder.backbone) if isinstance(encoder, BoolBertModel) else None
    if settings.freeze_encoder:
        towers.requires_grad_(False)
    if plugin is not None:
        plugin.requires_grad_(True)
        for head in (plugin.cue, plugin.gate) if settings.freeze_heads else ():
            if head is not None:
                head.requires_grad_(False)
    elif settings.freeze_heads or settings.freeze_encoder:
        raise ConfigError("freeze_heads and freeze_encoder need the plug-in: model.use_plugin=true")
    for part in towers.modules():
        if settings.freeze_encoder and isinstance(part, nn.Dropout):
            part.p = 0.0
        if settings.freeze_embeddings and isinstance(part, PreTrainedModel):
            part.get_input_embeddings().requires_grad_(False)


def _differences(preset: Preset, towers: SentenceTransformer) -> Iterator[str]:
    encoder = query_encoder(towers)
    for name, actual in asdict(settings_of(towers)).items():
        wanted = getattr(preset.model, name)
        if actual != wanted:
            yield f"its {name} is {actual}, not {wanted}; --set model.{name}={actual} takes it"
    plugin = encoder.config.boolattn_config if isinstance(encoder, BoolBertModel) else None
    wanted_plugin = preset.plugin if preset.model.use_plugin else None
    if (plugin is None) != (wanted_plugin is None):
        yield f"it has {'a' if plugin else 'no'} plug-in; --set model.use_plugin says which"
    elif plugin != wanted_plugin:
        yield "its plug-in has other settings"
    source = torch_source(preset.model.encoder)
    # An encoder that is not on disk is not needed, and not compared.
    if Path(source).is_dir():
        config = AutoConfig.from_pretrained(source, local_files_only=True)
        for name in _SHAPE:
            actual = getattr(_backbone(towers).config, name, None)
            wanted = getattr(config, name, None)
            if actual != wanted:
                yield f"its encoder has {name} {actual}, and {preset.model.encoder} {wanted}"


def average(base: str, models: Sequence[tuple[Path, float]]) -> SentenceTransformer:
    """Return ``base + Σ share · (model - base)``; all but the encoder is the first model's.

    A model half-way back to its base keeps more of what the base knows of other domains.

    Args:
        base: Folder or hub name of the encoder that all models were trained from.
        models: Folders of towers with shared weights, and the share of each.
    """
    if not models:
        raise ConfigError("name at least one model to average with its base")
    start = load_encoder(base)[0].state_dict()
    total = {name: value.clone() for name, value in start.items()}
    trained = [load_towers(folder, device="cpu") for folder, _ in models]
    for towers, (folder, share) in zip(trained, models, strict=True):
        if not settings_of(towers).is_shared:
            raise ConfigError(f"{folder} has towers with different weights; average shared ones")
        weights = _backbone(towers).state_dict()
        if {n: v.shape for n, v in weights.items()} != {n: v.shape for n, v in start.items()}:
            raise ConfigError(f"{folder} was not trained from {base}: its encoder differs")
        for name, value in weights.items():
            if value.is_floating_point():
                total[name] += share * (value - start[name])
    _backbone(trained[0]).load_state_dict(total)
    return trained[0]


def _backbone(towers: SentenceTransformer) -> PreTrainedModel:
    encoder = query_encoder(towers)
    return encoder.backbone if isinstance(encoder, BoolBertModel) else encoder
