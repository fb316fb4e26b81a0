"""The towers that a run begins with: from an encoder, a pretraining, or another training."""

from __future__ import annotations

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
from boolattn.errors import ConfigError
from boolattn.plugin import plugin_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerBase

    from boolattn.training.settings import Preset, TrainSettings

_SHAPE = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")


def load_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder and its tokenizer by name."""
    source = torch_source(name)
    # Weights stored in half precision would be trained in it, and become nan.
    return from_pretrained(AutoModel, source).float(), from_pretrained(AutoTokenizer, source)


def make_towers(preset: Preset, pretrained: Path | None = None) -> SentenceTransformer:
    """Build the towers of a preset, or begin with the model of a pretraining or a training."""
    model = preset.model
    if pretrained is not None and not pretrained.is_dir():
        raise ConfigError(f"no folder {pretrained} to begin from; name a run's model")
    if pretrained is not None and (pretrained / "modules.json").is_file():
        towers = load_towers(pretrained)
        if differences := _differences(preset, towers):
            raise ConfigError(f"{pretrained} is of another model: {differences[0]}")
        return towers.float()
    if pretrained is not None and not model.use_plugin:
        raise ConfigError("plain towers take no pretrained plug-in; leave out --pretrained")
    config = preset.plugin if model.use_plugin else None
    source = base = torch_source(model.encoder)
    more: dict[str, Any] = {item.name: getattr(model, item.name) for item in fields(TowerConfig)}
    if pretrained:
        # The paper's document encoder is BERT, without the embeddings that pretraining moved.
        source, more["document_encoder"] = str(pretrained), None if model.is_shared else base
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


def _differences(preset: Preset, towers: SentenceTransformer) -> list[str]:
    encoder, model = query_encoder(towers), preset.model
    actual = asdict(settings_of(towers)) | {"use_plugin": isinstance(encoder, BoolBertModel)}
    differences = [
        f"its {name} is {value}, not {getattr(model, name)}; --set model.{name}={value} takes it"
        for name, value in actual.items()
        if value != getattr(model, name)
    ]
    if isinstance(encoder, BoolBertModel) and encoder.config.boolattn_config != preset.plugin:
        differences.append("its plug-in has other settings")
    source = torch_source(model.encoder)
    if Path(source).is_dir():  # one that is not on disk is not needed, and not compared
        config = AutoConfig.from_pretrained(source, local_files_only=True)
        for name in _SHAPE:
            here, there = (getattr(c, name, None) for c in (_backbone(towers).config, config))
            if here != there:
                differences.append(f"its encoder has {name} {here}, and {model.encoder} {there}")
    return differences


def average(base: str, model: Path, share: float) -> SentenceTransformer:
    """Return the model with the weights ``base + share · (model - base)`` of its encoder.

    A model half-way back to its base keeps more of what the base knows of other domains. ``base``
    is the folder or hub name of the encoder that it was trained from.
    """
    start, towers = load_encoder(base)[0].state_dict(), load_towers(model, device="cpu")
    if not settings_of(towers).is_shared:
        raise ConfigError(f"{model} has towers with different weights; average shared ones")
    weights = _backbone(towers).state_dict()
    if {n: v.shape for n, v in weights.items()} != {n: v.shape for n, v in start.items()}:
        raise ConfigError(f"{model} was not trained from {base}: its encoder differs")
    for name, value in weights.items():
        if value.is_floating_point():
            value.copy_(start[name] + share * (value - start[name]))
    return towers


def _backbone(towers: SentenceTransformer) -> PreTrainedModel:
    encoder = query_encoder(towers)
    return encoder.backbone if isinstance(encoder, BoolBertModel) else encoder
