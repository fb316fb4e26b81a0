"""The training loop of everything but retrieval, which uses transformers' ``Trainer``."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import get_constant_schedule_with_warmup, get_linear_schedule_with_warmup

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor

    Log = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """The settings of a loop."""

    name: str  # What is trained, for the error message
    n_steps: int
    learning_rate: float  # Highest; after the warm-up it falls to 0, or is constant
    warmup_steps: int = 0
    schedule: str = "linear"  # or "constant"
    #: Whether the first step has learning rate 0, as transformers' schedule has, or one
    #: ``warmup_steps``-th of the highest
    starts_at_zero: bool = True
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    log_every: int = 20  # Steps between log entries; the last step is logged too


@contextmanager
def fast_products() -> Iterator[None]:
    """Let a GPU multiply float32 matrices in TF32, several times as fast."""
    before = torch.get_float32_matmul_precision()
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@fast_products()
def run_loop(
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
    losses_of: Callable[[int], Mapping[str, Tensor]],
    settings: LoopSettings,
    log: Log = lambda _step, _losses: None,
) -> None:
    """Minimise the sum of the losses of each step, counted from 0.

    ``log`` is called with a number of steps and the mean losses since the call before.
    """
    optimizer = torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=torch.cuda.is_available() or None,
    )
    trained = [one for group in optimizer.param_groups for one in group["params"]]
    is_ahead = settings.warmup_steps > 0 and not settings.starts_at_zero
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    last, warmup = 0 if is_ahead else -1, settings.warmup_steps
    if settings.schedule == "linear":
        schedule = get_linear_schedule_with_warmup(optimizer, warmup, settings.n_steps, last)
    else:
        schedule = get_constant_schedule_with_warmup(optimizer, warmup, last)
    since: list[dict[str, Tensor]] = []
    for step in range(settings.n_steps):
        losses = losses_of(step)
        total = torch.stack(list(losses.values())).sum()
        is_logged = (step + 1) % settings.log_every == 0 or step + 1 == settings.n_steps
        # Reading a number makes a GPU wait, so it is read with the log alone.
        if (is_logged or not total.is_cuda) and not torch.isfinite(total):
            raise ConfigError(
                f"the {settings.name} loss is {total.item()} at step {step + 1}; "
                "lower its learning rate"
            )
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(trained, settings.max_grad_norm)
        optimizer.step()
        # A schedule that is one step ahead waits once, at the end of the warm-up.
        if settings.starts_at_zero or step + 1 != settings.warmup_steps:
            schedule.step()
        since.append({name: loss.detach() for name, loss in losses.items()})
        if is_logged:
            means = {n: torch.stack([row[n] for row in since]).mean() for n in since[-1]}
            log(step + 1, {name: mean.item() for name, mean in means.items()})
            since = []
