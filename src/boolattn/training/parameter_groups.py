"""Learning rate and weight decay of each parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from boolattn.attention.boolattn import BoolAttn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from boolattn.training.settings import Preset

#: Parameters without weight decay, by the end of their own name: constants that are added, widths,
#: thresholds and factors. The name of their module says nothing: the bias predictor has weights.
_NO_DECAY_NAMES = ("bias", "sigma", "threshold", "factor")


def parameter_groups(model: nn.Module, preset: Preset) -> Iterator[dict[str, Any]]:
    """Yield the trained parameters by learning rate and weight decay, for an optimizer."""
    settings = preset.train
    new_rate = settings.plugin_learning_rate or settings.learning_rate
    # The plug-in begins untrained.
    is_new = _inside(model, BoolAttn)
    for group in decay_groups(model, settings.weight_decay):
        rates: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            rate = new_rate if id(parameter) in is_new else settings.learning_rate
            rates.setdefault(rate, []).append(parameter)
        for rate, chosen in rates.items():
            yield {**group, "params": chosen, "lr": rate}


def decay_groups(model: nn.Module, weight_decay: float) -> Iterator[dict[str, Any]]:
    """Yield the trained parameters with and without weight decay, by their kind."""
    exempt = _inside(model, nn.LayerNorm)
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decays = id(parameter) not in exempt and not name.endswith(_NO_DECAY_NAMES)
            groups[decays].append(parameter)
    for decays, chosen in groups.items():
        if chosen:
            yield {"params": chosen, "weight_decay": weight_decay if decays else 0.0}


def _inside(model: nn.Module, kind: type[nn.Module]) -> set[int]:
    found = (module for module in model.modules() if isinstance(module, kind))
    return {id(parameter) for module in found for parameter in module.parameters()}
