"""The training loop: AdamW, a learning rate that rises and falls linearly, clipped gradients."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from torch import nn
from transformers import get_linear_schedule_with_warmup

from boolattn.attention.boolattn import BoolAttn
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor

    from boolattn.training.settings import LoopSettings

    Log = Callable[[int, dict[str, float]], None]


#: Parameters without weight decay, by the end of their own name: constants that are added, widths,
#: thresholds and factors. The name of their module says nothing: the bias predictor has weights.
_NO_DECAY_NAMES = ("bias", "sigma", "threshold", "factor")


def processes() -> PartialState:
    """Join the processes that torchrun started, if it did."""
    return PartialState(cpu=not torch.cuda.is_available())


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
    """Trains parameters, or groups of them, from step ``start`` on, which counts from 0.

    Groups may have their own learning rate. ``name`` says what is trained, for the error message;
    there are ``log_every`` steps between log entries, and the last step is logged too.
    """

    start = 0

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        settings: LoopSettings,
        name: str,
        n_steps: int,
        *,
        log_every: int = 20,
    ) -> None:
        self.name, self.settings, self.n_steps, self.log_every = name, settings, n_steps, log_every
        self.optimizer = torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=torch.cuda.is_available() or None,
        )
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]

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
        steps = (self.settings.warmup_steps, self.n_steps, self.start - 1)
        schedule = get_linear_schedule_with_warmup(self.optimizer, *steps)
        since: list[dict[str, Tensor]] = []
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        for step in range(self.start, self.n_steps):
            losses = losses_of(step)
            total = torch.stack(list(losses.values())).sum()
            since.append({name: loss.detach() for name, loss in losses.items()})
            is_logged = (step + 1) % self.log_every == 0 or step + 1 == self.n_steps
            # Reading a number makes a GPU wait, so it is read with the log alone.
            if is_logged or not total.is_cuda:
                self._check(since, step)
            total.backward()
            nn.utils.clip_grad_norm_(trained, self.settings.max_grad_norm)
            self.optimizer.step()
            schedule.step()
            self.optimizer.zero_grad()
            if is_logged:
                means = {n: torch.stack([row[n] for row in since]).mean() for n in since[-1]}
                log(step + 1, {name: reduce(mean, "mean").item() for name, mean in means.items()})
                since = []
            after_step(step + 1)

    def _check(self, since: list[dict[str, Tensor]], step: int) -> None:
        """Stop at the first loss that is not finite, and name its step."""
        for number, losses in enumerate(since, step + 2 - len(since)):
            total = torch.stack(list(losses.values())).sum()
            if not torch.isfinite(total):
                raise ConfigError(
                    f"the {self.name} loss is {total.item()} at step {number}; "
                    "lower its learning rate"
                )


def parameter_groups(
    model: nn.Module, settings: LoopSettings, plugin_rate: float = 0.0
) -> list[dict[str, Any]]:
    """Return the trained parameters by learning rate and weight decay, for an optimizer.

    The plug-in, which begins untrained, may have its own rate.
    """
    is_new, exempt = _inside(model, BoolAttn), _inside(model, nn.LayerNorm)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decays = id(parameter) not in exempt and not name.endswith(_NO_DECAY_NAMES)
            own_rate = plugin_rate if id(parameter) in is_new else 0.0
            key = (own_rate or settings.learning_rate, settings.weight_decay if decays else 0.0)
            groups.setdefault(key, []).append(parameter)
    return [
        {"params": chosen, "lr": rate, "weight_decay": decay}
        for (rate, decay), chosen in groups.items()
    ]


def _inside(model: nn.Module, kind: type[nn.Module]) -> set[int]:
    modules = (module for module in model.modules() if isinstance(module, kind))
    return {id(parameter) for module in modules for parameter in module.parameters()}
