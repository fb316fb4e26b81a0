"""The training loop: AdamW, a learning rate that rises and falls linearly, clipped gradients."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, nn
from transformers import get_linear_schedule_with_warmup

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
    learning_rate: float  # Highest, of groups without their own; after the warm-up it falls to 0
    warmup_steps: int = 0
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    log_every: int = 20  # Steps between log entries; the last step is logged too


@contextmanager
def fast_products() -> Iterator[None]:
    """Let a GPU multiply float32 matrices in TF32, several times as fast.

    Not for retrieval: TF32 has too few digits for the difference of two scores near 20.
    """
    before = torch.get_float32_matmul_precision()
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Loop:
    """Trains parameters, or groups of them, from a step on, which counts from 0."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        settings: LoopSettings,
        start: int = 0,
    ) -> None:
        self.settings, self.start = settings, start
        self.optimizer = torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=torch.cuda.is_available() or None,
        )
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        steps = (settings.warmup_steps, settings.n_steps, start - 1)
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, *steps)

    def run(
        self,
        losses_of: Callable[[int], Mapping[str, Tensor]],
        log: Log = lambda _step, _losses: None,
        after_step: Callable[[int], None] = lambda _step: None,
    ) -> None:
        """Minimise the sum of the losses of each step.

        ``log`` is called with a number of steps and the mean losses since the call before,
        ``after_step`` with the number of steps.
        """
        settings = self.settings
        since: list[dict[str, Tensor]] = []
        trained = [one for group in self.optimizer.param_groups for one in group["params"]]
        for step in range(self.start, settings.n_steps):
            losses = losses_of(step)
            total = torch.stack(list(losses.values())).sum()
            since.append({name: loss.detach() for name, loss in losses.items()})
            is_logged = (step + 1) % settings.log_every == 0 or step + 1 == settings.n_steps
            # Reading a number makes a GPU wait, so it is read with the log alone.
            if is_logged or not total.is_cuda:
                self._check(since, step)
            total.backward()
            nn.utils.clip_grad_norm_(trained, settings.max_grad_norm)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            if is_logged:
                means = {n: torch.stack([row[n] for row in since]).mean() for n in since[-1]}
                log(step + 1, {name: over_processes(mean) for name, mean in means.items()})
                since = []
            after_step(step + 1)

    def _check(self, since: list[dict[str, Tensor]], step: int) -> None:
        """Stop at the first loss that is not finite, and name its step."""
        for number, losses in enumerate(since, step + 2 - len(since)):
            total = torch.stack(list(losses.values())).sum()
            if not torch.isfinite(total):
                raise ConfigError(
                    f"the {self.settings.name} loss is {total.item()} at step {number}; "
                    "lower its learning rate"
                )


def over_processes(value: Tensor) -> float:
    """Return the mean of a number over all processes."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(value)
        value = value / distributed.get_world_size()
    return value.item()
