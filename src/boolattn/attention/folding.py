"""All layers' folded weights, made anew when a parameter changes."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

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
    from collections.abc import Sequence
    from types import ModuleType

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.attention.gate import Gate
    from boolattn.attention.kernel_bias import KernelCues, KernelWeights

#: The modules that can be folded.
_OWN = (
    *(BoolAttnLayer, ScopePredictor, BiasPredictor, CuePredictor),
    *(nn.Linear, nn.Conv1d, nn.Identity, nn.ModuleDict),
)
#: Most pairs of tokens, of all layers, whose weights are computed at once.
_MOST_PAIRS = 2**22


class Parts(NamedTuple):
    """The plug-in's parts."""

    config: BoolAttnConfig
    operators: Tensor
    cue: CuePredictor
    layers: dict[int, BoolAttnLayer]


@cache
def kernels() -> ModuleType | None:
    """Return the module of the GPU kernels, or ``None`` without Triton."""
    try:
        return import_module("boolattn.attention.kernel_bias")
    except ImportError:
        return None


class FoldedWeights:
    """All layers' folded weights, and the state of the modules they were made of."""

    def __init__(self, parts: Parts, modules: Sequence[nn.Module]) -> None:
        self._parts = parts
        self._modules = [module._modules for module in modules]
        self._hooks = [
            hooks
            for module in modules[1:]  # the plug-in itself is called
            for hooks in (module._forward_pre_hooks, module._forward_hooks)
        ]
        #: Whether the modules are those that BoolAttn builds; others compute what they want.
        self.is_own = not any(self._hooks) and all(type(part) in _OWN for part in modules[1:])
        self._places = [
            (module._parameters, name)
            for module in modules
            for name, value in module._parameters.items()
            if value is not None
        ]
        self._made_of = self._state()
        # Kept, or another could have their id.
        self._kept = [[own[name] for own, name in self._places], list(modules)]
        if not self.is_own:
            return
        self._layers: dict[tuple[int, ...], dict[int, FoldedLayer]] = {}
        self._kernels: KernelWeights | None = None
        self._reach: dict[int, Tensor] = {}
        with torch.inference_mode(False), torch.no_grad():
            self._cue = _fold_cue(parts.cue, parts.operators)

    def _state(self) -> list[object]:
        values = [cast("Tensor", own[name]) for own, name in self._places]
        state: list[object] = [(id(v), v.data_ptr(), v._version) for v in values]
        state += [id(part) for own in self._modules for part in own.values()]
        state.append(any(self._hooks))
        return state

    def is_current(self) -> bool:
        """Whether parameters and modules are as they were."""
        return self._made_of == self._state()

    def layers(self, experts: tuple[int, ...]) -> dict[int, FoldedLayer]:
        """Return the layers for some of the experts, folded when first needed."""
        if experts not in self._layers:
            operators = self._parts.operators
            with torch.inference_mode(False), torch.no_grad():
                self._layers[experts] = {
                    index: FoldedLayer(layer, operators, experts)
                    for index, layer in self._parts.layers.items()
                }
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
        out = F.linear(hidden, first, start)
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
            is_padded = not bool(mask.all())
            experts = tuple(e for e, any_open in enumerate(opened.any(0).tolist()) if any_open)
            if mask.shape[1] <= SHORT and not bool((is_open := opened.any(1)).all()):
                rows = is_open.nonzero()[:, 0]
                hidden, mask, opened = hidden[rows], mask[rows], opened[rows]
        scopable = words(mask) if self._parts.config.bounded_scope else mask
        mask, scopable, opened = (part.to(hidden.dtype) for part in (mask, scopable, opened))
        mask = mask[..., None]
        cue = self._cues(hidden * mask if is_padded else hidden) * mask
        near = self._near(cue.transpose(1, 2))
        outside = 1 - scopable[..., None] * opened[:, None]
        if len(experts) < opened.shape[1]:
            opened_only = torch.tensor(experts, device=cue.device)
            cue, outside, near = (
                part.index_select(-1, opened_only) for part in (cue, outside, near)
            )
        shared = torch.cat([cue, outside, mask], -1)
        layers = self.layers(experts)
        by_layer = dict(zip(layers, near.unbind(), strict=True))
        return FoldedCues(rows, n_texts, layers, mask if is_padded else None, shared, by_layer)

    def _cues(self, hidden: Tensor) -> Tensor:
        """Return cue probabilities, ``(batch, tokens, operators)``."""
        first, start, second, n_kernel = self._cue
        out = F.linear(hidden, first, start)
        taps, logits = out.split([n_kernel * len(second), second.shape[1]], -1)
        context = sum_taps(taps, n_kernel).relu_()
        logits = logits + context @ second
        return torch.sigmoid(logits)

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

    The first has a row for each tap and channel of the convolution, then for each operator.
    """
    n_channels, _, n_kernel = cue.conv.weight.shape
    hidden, context = cue.row(operators).split([cue.conv.in_channels, n_channels], -1)
    start = hidden.new_zeros(n_kernel, n_channels)
    start[n_kernel // 2] = cue.conv.bias
    first = torch.cat([cue.conv.weight.permute(2, 0, 1).flatten(0, 1), hidden])
    return first, torch.cat([start.flatten(), cue.bias]), context.T.contiguous(), n_kernel
