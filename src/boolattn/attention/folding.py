"""All layers' folded weights, made anew when a parameter changes."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from operator import attrgetter, is_
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.bias import BiasPredictor
from boolattn.attention.cue import CuePredictor
from boolattn.attention.folded import SHORT, FoldedCues, FoldedLayer, sum_taps
from boolattn.attention.layer import BoolAttnLayer
from boolattn.attention.position import (
    N_CACHED,
    position_precision,
    position_weight,
    squared_distance,
    words,
)
from boolattn.attention.scope import ScopePredictor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.attention.gate import Gate
    from boolattn.attention.gpu.kernel_bias import KernelCues, KernelWeights

#: The modules that can be folded.
_OWN = (
    *(BoolAttnLayer, ScopePredictor, BiasPredictor, CuePredictor),
    *(nn.Linear, nn.Conv1d, nn.Identity, nn.ModuleDict),
)
#: Most numbers of all layers that are computed before the first.
_MOST_SUMS = 2**20
_VERSION = attrgetter("_version")
#: Most pairs of tokens, of all layers, whose weights are computed at once.
_MOST_PAIRS = 2**22


class Parts(NamedTuple):
    """The plug-in's parts."""

    config: BoolAttnConfig
    operators: Tensor
    cue: CuePredictor
    layers: dict[int, BoolAttnLayer]


@cache
def kernels(name: str = "kernel_bias") -> ModuleType | None:
    """Return a module that launches GPU kernels, or ``None`` without Triton."""
    try:
        return import_module(f"boolattn.attention.gpu.{name}")
    except ImportError:
        return None


def are_own(modules: Iterable[nn.Module]) -> bool:
    """Whether modules are as BoolAttn builds them; others, or hooks, compute what they want."""
    return all(
        type(part) in _OWN
        and not (part._forward_pre_hooks or part._forward_hooks)
        and not (part._backward_pre_hooks or part._backward_hooks)
        and part._compiled_call_impl is None
        for part in modules
    )


class FoldedWeights:
    """All layers' folded weights, and the state of the modules they were made of."""

    def __init__(self, parts: Parts, modules: Sequence[nn.Module]) -> None:
        self._parts = parts
        self._hooks = [
            hooks
            for module in modules[1:]  # the plug-in itself is called
            for hooks in (module._forward_pre_hooks, module._forward_hooks)
        ]
        self._has_hooks = any(self._hooks)
        self.is_own = are_own(modules[1:])
        places = [
            (own, name, value)
            for module in modules
            for own in (module._parameters, module._modules)
            for name, value in own.items()
        ]
        self._owners, self._names, self._parts_of = zip(*places, strict=True)
        self._made_of = [part for part in self._parts_of if isinstance(part, Tensor)]
        self._state = self._current_state()
        if not self.is_own:
            return
        self._layers: dict[tuple[int, ...], dict[int, FoldedLayer]] = {}
        self._rest: dict[tuple[int, ...], Tensor] = {}
        self._kernels: KernelWeights | None = None
        self._reach: dict[int, Tensor] = {}
        self._of_one: dict[tuple[int, int], Tensor] = {}
        with torch.inference_mode(False), torch.no_grad():
            self._cue = _fold_cue(parts.cue, parts.operators)

    def is_current(self) -> bool:
        """Whether parameters and modules are as they were."""
        if self._state != self._current_state() or any(self._hooks) != self._has_hooks:
            return False
        return all(map(is_, map(dict.get, self._owners, self._names), self._parts_of))

    def _current_state(self) -> list[int]:
        """Return addresses and counts of changes; ``map`` is quick."""
        return [*map(Tensor.data_ptr, self._made_of), *map(_VERSION, self._made_of)]

    def layers(self, experts: tuple[int, ...]) -> dict[int, FoldedLayer]:
        """Return the layers for some of the experts, folded when first needed."""
        if experts not in self._layers:
            operators = self._parts.operators
            with torch.inference_mode(False), torch.no_grad():
                layers = {
                    index: FoldedLayer(layer, operators, experts)
                    for index, layer in self._parts.layers.items()
                }
                self._rest[experts] = torch.stack([own.rest for own in layers.values()])[:, None]
            self._layers[experts] = layers
        return self._layers[experts]

    def _kernel_cues(self, own: ModuleType, hidden: Tensor, mask: Tensor, gate: Gate) -> KernelCues:
        """Do what :meth:`find_cues` does, by the kernels of the module ``own``."""
        parts, (first, start, second, _) = self._parts, self._cue
        if self._kernels is None:
            experts = tuple(range(len(parts.operators)))
            with torch.inference_mode(False), torch.no_grad():
                layers = {}
                for index, layer in parts.layers.items():
                    folded = FoldedLayer(layer, parts.operators, experts, torch.float32)
                    layers[index] = own.KernelLayer(layer, folded)
                precisions = position_precision(self._sigmas())
            self._kernels = own.KernelWeights(layers, precisions, parts.config)
        mask, opened = mask.contiguous(), gate.open.contiguous()
        out = F.linear(hidden, first.T, start)
        cues: KernelCues = own.find_cues(out, second, mask, opened, self._kernels)
        return cues

    def _sigmas(self) -> Tensor:
        """Return all layers' widths, ``(layers, operators)``."""
        return torch.stack([layer.bias.sigma for layer in self._parts.layers.values()])

    def find_cues(self, hidden: Tensor, mask: Tensor, gate: Gate) -> FoldedCues | KernelCues:
        """Do what :meth:`BoolAttn.find_cues` does, and compute all layers' position weights."""
        if hidden.is_cuda and (own := kernels()) is not None:
            return self._kernel_cues(own, hidden, mask, gate)
        opened, rows, n_texts = gate.open, None, len(mask)
        experts, is_padded = tuple(range(opened.shape[1])), True
        if hidden.device.type == "cpu":
            is_padded, flags = not bool(mask.all()), opened.tolist()
            experts = tuple(e for e in experts if any(row[e] for row in flags))
            if mask.shape[1] <= SHORT and not all(any(row) for row in flags):
                rows = torch.tensor([i for i, row in enumerate(flags) if any(row)])
                hidden, mask, opened = hidden[rows], mask[rows], opened[rows]
        cue, seen = self._cues(hidden, mask if is_padded else None)
        near = self._near(cue.transpose(1, 2))
        if len(experts) < opened.shape[1]:
            used = torch.tensor(experts, device=cue.device)
            cue, near, opened = (part.index_select(-1, used) for part in (cue, near, opened))
        layers, reach = self.layers(experts), self._parts.config.kernel // 2
        fixed = self._fixed(mask, opened, cue.dtype, is_one=len(mask) == 1 and not is_padded)
        shared = torch.cat([cue, fixed], -1).expand(len(layers), -1, -1, -1)
        inputs = F.pad(torch.cat([shared, near], -1), (0, 0, reach, reach))
        rest = self._rest[experts]
        is_summed = inputs.numel() // inputs.shape[-1] * rest.shape[-1] <= _MOST_SUMS
        inputs = inputs @ rest if is_summed else inputs
        by_layer = dict(zip(layers, inputs.unbind(), strict=True))
        return FoldedCues(rows, n_texts, layers, seen, by_layer, is_summed)

    def _fixed(self, mask: Tensor, opened: Tensor, dtype: torch.dtype, *, is_one: bool) -> Tensor:
        """Return 1 for tokens that cannot be in an open scope, by operator, then the mask.

        ``is_one`` is for one text without padding: its experts are open, and it is cached.
        """
        key = (mask.shape[1], opened.shape[1])
        if is_one and (known := self._of_one.get(key)) is not None:
            return known
        scopable = words(mask) if self._parts.config.bounded_scope else mask
        outside = 1 - scopable.to(dtype)[..., None] * opened.to(dtype)[:, None]
        fixed = torch.cat([outside, mask.to(dtype)[..., None]], -1)
        if is_one:
            self._of_one[key] = fixed
        return fixed

    def _cues(self, hidden: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return cue probabilities, ``(batch, tokens, operators)``, and :attr:`FoldedCues.mask`."""
        first, start, second, n_kernel = self._cue
        reach, n_taps = n_kernel // 2, n_kernel * len(second)
        shape, hidden = hidden.shape[:2], hidden.reshape(-1, hidden.shape[-1])
        seen = None if mask is None else mask.reshape(-1, 1).to(hidden.dtype)
        out = torch.addmm(start, hidden if seen is None else hidden * seen, first)
        padded = F.pad(out.view(*shape, -1), (0, 0, reach, reach))
        context = sum_taps(padded, n_kernel, n_taps).relu_().view(len(out), -1)
        cue = torch.addmm(out[:, n_taps:], context, second).sigmoid_()
        return (cue if seen is None else cue * seen).view(*shape, -1), seen

    def _near(self, cue: Tensor) -> Tensor:
        """Return all layers' position weights, ``(layers, batch, tokens, operators)``."""
        config, n_tokens = self._parts.config, cue.shape[-1]
        if cue.numel() * n_tokens * len(self._parts.layers) > _MOST_PAIRS or n_tokens > N_CACHED:
            near = torch.stack([position_weight(config, cue.float(), s) for s in self._sigmas()])
            return near.transpose(2, 3).to(cue.dtype)
        if n_tokens not in self._reach:
            with torch.inference_mode(False):
                precision = position_precision(self._sigmas().detach())
                squared = squared_distance(config, n_tokens, cue.device)
                reach = torch.exp(-squared * precision[..., None, None])
                self._reach[n_tokens] = reach[:, None].to(cue.dtype)
        return (self._reach[n_tokens] * cue[:, :, None]).amax(-1).transpose(2, 3)


def _fold_cue(cue: CuePredictor, operators: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return the cue predictor's first matrix and constants, its second matrix, and its width.

    The first has a column for each tap and channel of the convolution, then for each operator.
    """
    n_channels, _, n_kernel = cue.conv.weight.shape
    hidden, context = cue.row(operators).split([cue.conv.in_channels, n_channels], -1)
    start = hidden.new_zeros(n_kernel, n_channels)
    start[n_kernel // 2] = cue.conv.bias
    first = torch.cat([cue.conv.weight.permute(2, 0, 1).flatten(0, 1), hidden])
    return (
        first.T.contiguous(),
        torch.cat([start.flatten(), cue.bias]),
        context.T.contiguous(),
        n_kernel,
    )
