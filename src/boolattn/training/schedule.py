"""The learning rate of a short training. May import: nothing of boolattn."""

from __future__ import annotations

import torch


def warm_up(
    optimizer: torch.optim.Optimizer, n_steps: int, n_warm: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Let a learning rate rise for ``n_warm`` steps, then fall in a line to its end.

    >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    >>> schedule = warm_up(optimizer, n_steps=6, n_warm=2)
    >>> [schedule.lr_lambdas[0](step) for step in range(7)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / n_warm, (n_steps - step) / max(1, n_steps - n_warm)),
    )
