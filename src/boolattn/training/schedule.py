"""The learning rate of a short training. May import: nothing of boolattn."""

from __future__ import annotations

import torch


def warm_up(
    optimizer: torch.optim.Optimizer, n_steps: int, n_warm: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Let a learning rate rise for ``n_warm`` steps, then fall in a line to its end."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / n_warm, (n_steps - step) / max(1, n_steps - n_warm)),
    )
