"""Discrete choices that still pass a gradient.

May import: nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gumbel_sigmoid(logits: Tensor, temperature: float) -> Tensor:
    r"""Sample a relaxed Bernoulli: :math:`\sigma((z + g_1 - g_2)/\tau)`, g standard Gumbel.

    The difference of two Gumbel draws is one logistic draw. It comes from torch's global
    generator, which gradient checkpointing restores.
    """
    uniform = torch.rand_like(logits, dtype=torch.float32)
    # Kept off 0 and 1, where the logistic draw is infinite.
    noise = torch.logit(uniform, eps=1e-6).to(logits.dtype)
    return torch.sigmoid((logits + noise) / temperature)


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Return ``hard`` as numbers, to the bit, with the gradient of ``soft``."""
    value = hard.to(soft.dtype)
    return value + (soft - soft.detach()) if soft.requires_grad else value
