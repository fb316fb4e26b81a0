"""Discrete choices with gradients."""

from __future__ import annotations

import torch
from torch import Tensor


def gumbel_sigmoid(logits: Tensor, temperature: float) -> Tensor:
    r"""Sample a relaxed Bernoulli: :math:`\sigma((z + g_1 - g_2)/\tau)`, g standard Gumbel.

    The difference of two Gumbel draws is one logistic draw. It comes from torch's global
    generator, which gradient checkpointing restores.
    """
    uniform = torch.rand_like(logits, dtype=torch.float32)
    # Clipped, because at 0 and 1 the logistic draw is infinite.
    noise = torch.logit(uniform, eps=1e-6).to(logits.dtype)
    return torch.sigmoid((logits + noise) / temperature)


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Return exactly ``hard``, with the gradient of ``soft``."""
    value = hard.to(soft.dtype)
    return value + (soft - soft.detach()) if soft.requires_grad else value
