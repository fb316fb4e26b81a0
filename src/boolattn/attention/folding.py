"""All layers' folded weights, made anew when a parameter changes."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.bias import BiasPredictor
from boolattn.attention.cue import CuePredictor
from boolattn.attention.folded import SHORT, FoldedCues, FoldedLayer, sum_taps
from boolattn.attention.layer import BoolAttnLayer
from boolattn.attention.position import N_COMPARED, position_precision, position_weight, words
from boolattn.attention.scope import ScopePredictor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.attention.gate import Gate
    from boolattn.attention.gpu.kernel_bias import KernelCues, KernelWeights

#: The modules that can be folded.
_FOLDABLE = (
    *(BoolAttnLayer, ScopePredictor, BiasPredictor, CuePredictor),
    *(nn.Linear, nn.Conv1d, nn.Identity, nn.ModuleDict),
)

#: Most pairs of tokens, of all layers, whose weights are computed at once.
_MOST_PAIRS = 2**22


@cache
def kernels() -> ModuleType | None:
    """Return the module that launches GPU kernels, or ``None`` without Triton."""
    try:
        return import_module("boolattn.attention.gpu.kernel_bias")
    except ImportError:
        return None


def current_state(tensors: list[Tensor]) -> list[int]:
    """Return addresses and counts of changes; ``map`` is quick."""
    return [*map(Tensor.data_ptr, tensors), *map(attrgetter("_version"), tensors)]


def are_foldable(modules: Iterable[nn.Module]) -> bool:
    """Whether modules are as BoolAttn builds them; others, or hooks, compute what they want."""
    return all(
        type(part) in _FOLDABLE
        and not (part._forward_pre_hooks or part._forward_hooks)
        and not (part._backward_pre_hooks or part._backward_hooks)
        and part._compiled_call_impl is None
        for part in modules
    )


class FoldedWeights:
    """All layers' folded weights; ``state`` is that of the tensors they were made of."""

    def __init__(
        self,
        state: list[int],
        config: BoolAttnConfig,
        operators: Tensor,
        cue: CuePredictor,
        layers: dict[int, BoolAttnLayer],
    ) -> None:
        self.state, self._config = state, config
        # The GPU's kernels take constants in float32.
        dtype = torch.float32 if operators.is_cuda else operators.dtype
        with torch.inference_mode(False), torch.no_grad():
            self._cue = _fold_cue(cue, operators)
            self._sigmas = torch.stack([layer.bias.sigma for layer in layers.values()])
            self._layers = {i: FoldedLayer(layer, operators, dtype) for i, layer in layers.items()}
            self._kernels: KernelWeights | None = None
            if operators.is_cuda:
                launcher: Any = kernels()
                kernel_layers = {
                    i: launcher.KernelLayer(layers[i], self._layers[i]) for i in layers
                }
                precisions = position_precision(self._sigmas)
                self._kernels = launcher.KernelWeights(kernel_layers, precisions, config)

    def find_cues(self, hidden: Tensor, mask: Tensor, gate: Gate) -> FoldedCues | KernelCues:
        """Do what :meth:`BoolAttn.find_cues` does, and compute all layers' position weights."""
        if self._kernels is not None:
            first, start, second, _ = self._cue
            out, opened = F.linear(hidden, first.T, start), gate.open.contiguous()
            return self._kernels.find_cues(out, second, mask.contiguous(), opened)
        config, opened, rows, n_texts = self._config, gate.open, None, len(mask)
        is_padded, is_open = not bool(mask.all()), opened.any(1)
        if mask.shape[1] <= SHORT and not bool(is_open.all()):
            rows = is_open.nonzero()[:, 0]
            hidden, mask, opened = hidden[rows], mask[rows], opened[rows]
        cue, seen = self._cues(hidden, mask if is_padded else None)
        scopable = words(mask) if config.bounded_scope else mask
        outside = 1 - scopable.to(cue.dtype)[..., None] * opened.to(cue.dtype)[:, None]
        shared = torch.cat([cue, outside, mask.to(cue.dtype)[..., None]], -1)
        shared, reach = shared.expand(len(self._layers), -1, -1, -1), config.kernel // 2
        near = self._near(cue.transpose(1, 2).float()).transpose(2, 3).to(cue.dtype)
        inputs = F.pad(torch.cat([shared, near], -1), (0, 0, reach, reach))
        layers = {i: (self._layers[i], part) for i, part in zip(self._layers, inputs, strict=True)}
        return FoldedCues(rows, n_texts, seen, layers)

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
        """Return all layers' position weights, ``(layers, batch, operators, tokens)``."""
        config, n_tokens = self._config, cue.shape[-1]
        if n_tokens <= N_COMPARED and cue.numel() * n_tokens * len(self._sigmas) <= _MOST_PAIRS:
            return position_weight(config, cue, self._sigmas)
        return torch.stack([position_weight(config, cue, sigma) for sigma in self._sigmas])


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
