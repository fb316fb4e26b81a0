"""The towers a run begins with: from an encoder, from heads, or from another training.

May import: boolattn.encoder, boolattn.plugin, boolattn.training.settings,
boolattn.embedding, boolattn.errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoTokenizer

from boolattn.embedding.models import encoder_source
from boolattn.encoder import BoolBertModel, build_towers, query_encoder, settings_of
from boolattn.errors import ConfigError
from boolattn.plugin import plugin_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.attention.boolattn import BoolAttn
    from boolattn.training.settings import Preset

_TOWERS = ("pooling", "is_shared", "similarity", "query_length", "document_length")
_SHAPE = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")


def load_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder and its tokenizer by name."""
    source = encoder_source(name)
    is_local = Path(source).is_dir()
    try:
        # Weights kept in half precision would train in it, and soon be nan.
        encoder = AutoModel.from_pretrained(source, local_files_only=is_local, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=is_local)
    except (OSError, ValueError) as error:
        raise ConfigError(_not_found(name, error)) from error
    return encoder, tokenizer


def make_towers(preset: Preset, pretrained: Path | None = None) -> SentenceTransformer:
    """Build the towers of a preset.

    Args:
        preset: Every number.
        pretrained: What to begin from: a pretraining's model, or the model of another training.
    """
    model = preset.model
    if pretrained is not None and not pretrained.is_dir():
        raise ConfigError(f"no folder {pretrained} to begin from; name a run's model")
    if pretrained is not None and (pretrained / "modules.json").is_file():
        return _load_towers(preset, pretrained)
    if pretrained is not None and not model.use_plugin:
        raise ConfigError("plain towers take no pretrained plug-in; leave out --pretrained")
    config = preset.plugin if model.use_plugin else None
    settings: dict[str, Any] = {name: getattr(model, name) for name in _TOWERS}
    source = str(pretrained) if pretrained else encoder_source(model.encoder)
    try:
        # Weights kept in half precision would train in it, and collapse.
        return build_towers(source, config, **settings).float()
    except OSError as error:
        raise ConfigError(_not_found(source, error)) from error


def _load_towers(preset: Preset, folder: Path) -> SentenceTransformer:
    """Go on from trained towers, if they are the preset's."""
    try:
        towers = SentenceTransformer(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        [reason, *_] = str(error).splitlines() or [""]
        raise ConfigError(f"cannot read the model {folder}: {reason}") from error
    if other := next(_differences(preset, towers), ""):
        raise ConfigError(f"{folder} is of another model: {other}")
    # Weights kept in half precision would train in it, and collapse.
    return towers.float()


def hold_heads(towers: SentenceTransformer) -> None:
    """Keep a learned gate and the cue predictor as pretraining left them.

    Retrieval moves both by what a vector gains from them, and they forget what a query says.
    """
    plugin = _plugin(towers, "train.hold_heads holds the plug-in's heads")
    for part in (plugin.cue, plugin.gate):
        if part is not None:
            part.requires_grad_(requires_grad=False)


def _plugin(towers: SentenceTransformer, what: str) -> BoolAttn:
    encoder = query_encoder(towers)
    if not isinstance(encoder, BoolBertModel):
        raise ConfigError(f"{what}; set model.use_plugin=true")
    return plugin_of(encoder.backbone)


def _differences(preset: Preset, towers: SentenceTransformer) -> Iterator[str]:
    """Say what trained towers have and a preset has not."""
    encoder = query_encoder(towers)
    own = settings_of(towers)
    for name in _TOWERS:
        found, wanted = getattr(own, name), getattr(preset.model, name)
        if found != wanted:
            yield f"its {name} is {found}, not {wanted}; --set model.{name}={found} takes it"
    plugin = encoder.config.boolattn_config if isinstance(encoder, BoolBertModel) else None
    wanted_plugin = preset.plugin if preset.model.use_plugin else None
    if (plugin is None) != (wanted_plugin is None):
        yield f"it has {'a' if plugin else 'no'} plug-in; --set model.use_plugin says which"
    elif plugin != wanted_plugin:
        yield "its plug-in has other settings"
    source = encoder_source(preset.model.encoder)
    # An encoder that is not here cannot be compared, and is not needed.
    if Path(source).is_dir():
        config = AutoConfig.from_pretrained(source, local_files_only=True)
        bare = encoder.backbone if isinstance(encoder, BoolBertModel) else encoder
        for name in _SHAPE:
            found, wanted = getattr(bare.config, name, None), getattr(config, name, None)
            if found != wanted:
                yield f"its encoder has {name} {found}, and {preset.model.encoder} {wanted}"


def _not_found(name: str, error: Exception) -> str:
    [reason, *_] = str(error).splitlines() or [""]
    return f"no encoder {name!r} ({reason}); name its folder: --set model.encoder=FOLDER"
