"""Averaging the weights of models that were trained from one encoder.

A model half-way back to its base keeps more of what the base knows of other domains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.encoder.tower_storage import load_towers
from boolattn.encoder.towers import query_encoder, settings_of
from boolattn.errors import ConfigError
from boolattn.training.towers import load_encoder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sentence_transformers import SentenceTransformer
    from torch import nn


def average(base: str, models: Sequence[tuple[Path, float]]) -> SentenceTransformer:
    """Return ``base + Σ share · (model - base)``; all but the encoder is the first model's.

    Args:
        base: Folder or hub name of the encoder that all models were trained from.
        models: Folders of towers with shared weights, and the share of each.
    """
    if not models:
        raise ConfigError("name at least one model to average with its base")
    start = load_encoder(base)[0].state_dict()
    total = {name: value.clone() for name, value in start.items()}
    found = [load_towers(folder, device="cpu") for folder, _ in models]
    for towers, (folder, share) in zip(found, models, strict=True):
        if not settings_of(towers).is_shared:
            raise ConfigError(f"{folder} has towers with different weights; average shared ones")
        own = _backbone(towers).state_dict()
        if {n: v.shape for n, v in own.items()} != {n: v.shape for n, v in start.items()}:
            raise ConfigError(f"{folder} was not trained from {base}: its encoder differs")
        for name, value in own.items():
            if value.is_floating_point():
                total[name] += share * (value - start[name])
    _backbone(found[0]).load_state_dict(total)
    return found[0]


def _backbone(towers: SentenceTransformer) -> nn.Module:
    encoder = query_encoder(towers)
    return encoder.backbone if isinstance(encoder, BoolBertModel) else encoder
