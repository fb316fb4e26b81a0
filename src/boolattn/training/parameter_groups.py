"""Which parameters learn how fast: encoders, what begins untrained, and a handful of numbers.

May import: nothing of boolattn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from boolattn.training.settings import TrainSettings

#: Parts of parameter names that begin untrained, and learn at the plug-in's rate.
_NEW = (".boolattn.", "composer.")
_CALIBRATION = "composer.calibration."
#: Parts of parameter names that weight decay leaves alone, as is usual for BERT.
_NO_DECAY = ("bias", "LayerNorm", "norm.", "sigma", "threshold", _CALIBRATION)


def parameter_groups(model: nn.Module, settings: TrainSettings) -> Iterator[dict[str, Any]]:
    """Sort what learns by learning rate and weight decay, as an optimizer takes it."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decays = not any(part in name for part in _NO_DECAY)
            key = (_rate(name, settings), settings.weight_decay if decays else 0.0)
            groups.setdefault(key, []).append(parameter)
    for (rate, decay), chosen in groups.items():
        yield {"params": chosen, "lr": rate, "weight_decay": decay}


def _rate(name: str, settings: TrainSettings) -> float:
    new = settings.plugin_learning_rate or settings.learning_rate
    if _CALIBRATION in name:
        # A handful of numbers that have far to go.
        return 10 * new
    return new if any(part in name for part in _NEW) else settings.learning_rate
