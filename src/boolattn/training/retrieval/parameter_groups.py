"""Learning rate and weight decay of each parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from boolattn.attention.bias import BiasPredictor
from boolattn.attention.boolattn import BoolAttn
from boolattn.encoder.calibration import TrainableCalibration
from boolattn.encoder.parser_head import ParserHead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from boolattn.training.settings import Preset

#: Parts that begin untrained, and learn at the plug-in's rate.
_NEW = (BoolAttn, ParserHead, TrainableCalibration)
#: Parts without weight decay. Without BiasPredictor its weights are decayed like all others.
_NO_DECAY = (nn.LayerNorm, TrainableCalibration, BiasPredictor)
#: Parameters without weight decay, by the end of their name or their module's.
_NO_DECAY_NAMES = ("bias", "sigma", "threshold")


def parameter_groups(model: nn.Module, preset: Preset) -> Iterator[dict[str, Any]]:
    """Yield the trained parameters by learning rate and weight decay, for an optimizer."""
    settings = preset.train
    new_rate = settings.plugin_learning_rate or settings.learning_rate
    is_new, is_calibration, is_exempt = (
        _inside(model, kinds) for kinds in (_NEW, (TrainableCalibration,), _NO_DECAY)
    )
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        key = id(parameter)
        rate = new_rate if key in is_new else settings.learning_rate
        if key in is_calibration:
            rate = preset.compose.calibration_rate_factor * new_rate
        is_named = any(part.endswith(_NO_DECAY_NAMES) for part in name.split(".")[-2:])
        decay = 0.0 if is_named or key in is_exempt else settings.weight_decay
        groups.setdefault((rate, decay), []).append(parameter)
    for (rate, decay), chosen in groups.items():
        yield {"params": chosen, "lr": rate, "weight_decay": decay}


def _inside(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> set[int]:
    found = (module for module in model.modules() if isinstance(module, kinds))
    return {id(parameter) for module in found for parameter in module.parameters()}
