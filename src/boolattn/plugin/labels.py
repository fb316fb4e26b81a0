"""Operator labels given with a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from boolattn.attention.gate import Gate
from boolattn.errors import GateError

if TYPE_CHECKING:
    from boolattn.attention.config import BoolAttnConfig

#: Operator names for each text, or 0 and 1 of the shape (batch, operators).
OperatorLabels = Sequence[Sequence[str]] | Tensor


def label_gate(
    labels: OperatorLabels, config: BoolAttnConfig, batch: int, device: torch.device
) -> Gate:
    """Check labels and open the gate by them."""
    if not isinstance(labels, Tensor):
        labels = _from_names(labels, config, batch)
    if tuple(labels.shape) != (batch, config.n_operators):
        raise GateError(
            f"operators must have the shape ({batch}, {config.n_operators}): a row for each text, "
            f"a column for each of {', '.join(config.operators)}; got {tuple(labels.shape)}"
        )
    is_open = None
    # Reading values would synchronise with a GPU and break a compiled graph.
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise GateError("operators must contain only 0 and 1")
        is_open = bool(labels.any())
    return Gate(labels.to(device, torch.float32), is_open=is_open)


def _from_names(labels: Sequence[Sequence[str]], config: BoolAttnConfig, batch: int) -> Tensor:
    if len(labels) != batch:
        raise GateError(f"operators must have a list for each of {batch} texts; got {len(labels)}")
    gate = torch.zeros(batch, config.n_operators)
    for row, names in enumerate(labels):
        if isinstance(names, str):
            raise GateError(f"operators[{row}] must be a list of names; got the text {names!r}")
        for name in names:
            gate[row, config.index(name)] = 1
    return gate
