"""The experts with folded weights, for encoding without gradients.

FiLM, threshold, operator factor and all constants are folded into two matrices for each layer,
and what does not depend on the hidden state is computed once a pass. The values are those of
:class:`~boolattn.attention.boolattn.BoolAttnLayer`, the reference, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from boolattn.attention.factors import AttentionBias, Factors, bias_factors
from boolattn.attention.position import (
    N_CACHED,
    position_precision,
    position_weight,
    squared_distance,
    words,
)

if TYPE_CHECKING:
    from types import ModuleType

    from boolattn.attention.boolattn import BoolAttn, BoolAttnLayer
    from boolattn.attention.cue import CuePredictor
    from boolattn.attention.gate import Gate
    from boolattn.attention.kernel_bias import KernelCues, KernelLayer

#: Taken from a scope logit to keep a token out of scope; finite in half precision.
OUT_OF_SCOPE = 3e4
#: Most tokens of a text for which a CPU adds the dense bias, of the texts with an open expert.
SHORT = 128
#: Most pairs of tokens, of all layers, whose weights are computed at once.
_MOST_PAIRS = 2**22


@dataclass(frozen=True)
class FoldedCues:
    """What the layers of a pass share.

    Attributes:
        rows: Texts with an open expert, if not all. Shape ``(open,)``.
        n_texts: Of the batch.
        layers: Weights of the experts that a text opens, by layer.
        mask: 1 for tokens and 0 for padding, if there is any. Shape ``(open, tokens, 1)``.
        shared: Appended to the hidden state: cues, tokens that cannot be in scope, ones. Shape
            ``(open, tokens, 2 experts + 1)``.
        near: By layer, appended too: position weights. Shape ``(open, tokens, experts)``.
    """

    rows: Tensor | None
    n_texts: int
    layers: dict[int, FoldedLayer]
    mask: Tensor | None
    shared: Tensor
    near: dict[int, Tensor]

    def bias(self, index: int, hidden: Tensor) -> FoldedBias:
        """Compute the bias of layer ``index``; ``hidden`` as in :meth:`BoolAttnLayer.forward`."""
        return self.layers[index](hidden, self, self.near[index])


@dataclass(frozen=True)
class FoldedBias(AttentionBias):
    """One layer's bias: scopes, and strengths in scope. ``(open, tokens, heads, experts)``."""

    inside: Tensor
    weight: Tensor
    cues: FoldedCues
    has_not: bool
    head_size: int

    @cached_property
    def factors(self) -> Factors:
        """The bias as factors."""
        inside, weight = (part.transpose(2, 3) for part in (self.inside, self.weight))
        return bias_factors(inside, weight, self.head_size, has_not=self.has_not)

    def dense(self) -> Tensor:
        """Return the full bias. Shape ``(batch, heads, tokens, tokens)``."""
        query, key = (part.permute(3, 0, 2, 1) for part in (self.inside, self.weight))
        n_tokens, n_mutual = key.shape[-1], len(key) - self.has_not
        # NOT, the last operator, acts on single tokens; AND and OR between tokens in scope.
        bias = -key[-1, ..., None, :] if self.has_not else key.new_zeros(())
        for q, k in zip(query[:n_mutual, ..., None], key[:n_mutual, ..., None, :], strict=True):
            bias = torch.addcmul(bias, q, k)
        bias = bias.expand(-1, -1, n_tokens, -1)
        if self.cues.rows is None:
            return bias
        whole = bias.new_zeros(self.cues.n_texts, *bias.shape[1:])
        return whole.index_copy_(0, self.cues.rows, bias)


class FoldedLayer:
    """One layer's weights for some of the experts.

    Attributes:
        first: Scope taps ``(kernel, heads, experts)``, then the experts' first layers.
        second: The experts' second layers, with 0 between different experts.
        bias: Added to the second layers' scores.
    """

    def __init__(
        self,
        layer: BoolAttnLayer,
        operators: Tensor,
        experts: tuple[int, ...],
        dtype: torch.dtype | None = None,
    ) -> None:
        self.reduce, self.head_size = layer.reduce, layer.head_size
        self.shape = (layer.config.kernel, layer.scope.shape[-1], len(experts))
        self.has_not = layer.config.operators[experts[-1]] == "not"
        dtype, own = dtype or operators.dtype, list(experts)
        eye = torch.eye(len(own), device=operators.device)
        parts = (_taps(layer, operators, own, eye), _first_layers(layer, own, eye))
        self.first = torch.cat(parts).to(dtype)
        factor = torch.sigmoid(layer.bias.operator(operators))[own].float()
        outer = layer.bias.outer_weight.float()[own] * factor[:, None]
        self.second = torch.einsum("ein,ef->einf", outer, eye).flatten(0, 1).flatten(1).to(dtype)
        self.bias = (layer.bias.outer_bias.float()[own, 0] * factor).T.flatten().to(dtype)

    def __call__(self, hidden: Tensor, cues: FoldedCues, near: Tensor) -> FoldedBias:
        """Compute the bias; ``near`` are this layer's position weights."""
        if cues.rows is not None:
            hidden = hidden[cues.rows]
        hidden = self.reduce(hidden)
        if cues.mask is not None:
            hidden = hidden * cues.mask  # padding must not change its neighbours
        out = F.linear(torch.cat([hidden, cues.shared, near], -1), self.first)
        n_kernel, n_taps = self.shape[0], self.shape[0] * len(self.bias)
        inside = torch.heaviside(sum_taps(out[..., :n_taps], n_kernel), out.new_zeros(()))
        inner = out[..., n_taps:].relu_().flatten(0, 1)
        weight = F.softplus(torch.addmm(self.bias, inner, self.second)).view_as(inside) * inside
        shape = (*inside.shape[:2], *self.shape[1:])
        return FoldedBias(
            inside.view(shape), weight.view(shape), cues, self.has_not, self.head_size
        )


def _taps(layer: BoolAttnLayer, operators: Tensor, own: list[int], eye: Tensor) -> Tensor:
    """Return scope weights, ``(kernel * heads * experts, inputs)``; above 0 is in scope."""
    scope, n_experts = layer.scope, len(own)
    n_kernel, _, n_heads = scope.shape
    scale, shift = scope.film(operators)[own].float().chunk(2, -1)
    shift = torch.addcmul(shift, scale, scope.bias.float()[own])
    scale, shift = (part / layer.config.scope_temperature for part in (scale, shift))
    threshold = scope.threshold.float()[own]
    if not layer.config.bounded_scope:
        limit = OUT_OF_SCOPE / 4
        threshold = torch.logit(threshold.clamp(0, 1)).clamp(-limit, limit)
    shift = shift - threshold[:, None]
    hidden = scope.hidden_weight.float().unflatten(0, scope.shape)[:, own] * scale[..., None]
    cue = (scope.cue_weight.float()[:, own] * scale)[..., None] * eye[:, None]
    constant = eye.new_zeros(n_kernel, n_experts, n_heads, 2 * n_experts + 1)
    constant[n_kernel // 2, ..., :n_experts] = -OUT_OF_SCOPE * eye[:, None]
    constant[n_kernel // 2, ..., n_experts] = shift
    return torch.cat([hidden, cue, constant], -1).transpose(1, 2).flatten(0, 2)


def _first_layers(layer: BoolAttnLayer, own: list[int], eye: Tensor) -> Tensor:
    """Return the first layers of the bias experts, ``(experts * inner, inputs)``."""
    bias = layer.bias
    near = bias.position_weight.float()[own][..., None] * eye[:, None]
    if bias.inner is None:
        start = bias.inner_bias.float()[own]
        weight = torch.eye(start.shape[1], device=start.device).expand(len(own), -1, -1)
    else:
        shape = bias.position_weight.shape
        weight = bias.inner.weight.float().unflatten(0, shape)[own]
        start = bias.inner.bias.float().unflatten(0, shape)[own]
    none = near.new_zeros(*near.shape[:2], 2 * len(own))
    return torch.cat([weight, none, start[..., None], near], -1).flatten(0, 1)


def sum_taps(taps: Tensor, n_kernel: int) -> Tensor:
    """Add the taps of a convolution. ``(batch, tokens, kernel * n)`` -> ``(batch, tokens, n)``."""
    n_texts, n_tokens, width = taps.shape
    if n_kernel == 1:
        return taps
    reach, n = n_kernel // 2, width // n_kernel
    padded = F.pad(taps, (0, 0, reach, reach))
    text, row, _ = padded.stride()
    return padded.as_strided((n_texts, n_tokens, n_kernel, n), (text, row, row + n, 1)).sum(2)


@cache
def kernels() -> ModuleType | None:
    """Return the module of the GPU kernels, or ``None`` without Triton."""
    try:
        return import_module("boolattn.attention.kernel_bias")
    except ImportError:
        return None


class FoldedWeights:
    """All layers' folded weights, and the state of the parameters they were made of."""

    def __init__(self, plugin: BoolAttn) -> None:
        self._plugin = plugin
        self._parameters = list(plugin.parameters())
        self._made_of = self._state()
        self._own = cast("dict[str, BoolAttnLayer]", dict(plugin.layers.items()))
        self._layers: dict[tuple[int, ...], dict[int, FoldedLayer]] = {}
        self._kernels: dict[int, KernelLayer] = {}
        self._reach: dict[int, Tensor] = {}
        with torch.inference_mode(False), torch.no_grad():
            self._cue = _fold_cue(cast("CuePredictor", plugin.cue), plugin.operators)

    def _state(self) -> list[tuple[int, int]]:
        return [(value.data_ptr(), value._version) for value in self._parameters]

    def is_current(self) -> bool:
        """Whether the parameters are as they were."""
        return self._made_of == self._state()

    def layers(self, experts: tuple[int, ...]) -> dict[int, FoldedLayer]:
        """Return the layers for some of the experts, folded when first needed."""
        if experts not in self._layers:
            operators = self._plugin.operators
            with torch.inference_mode(False), torch.no_grad():
                self._layers[experts] = {
                    int(name): FoldedLayer(layer, operators, experts)
                    for name, layer in self._own.items()
                }
        return self._layers[experts]

    def _kernel_cues(self, own: ModuleType, hidden: Tensor, mask: Tensor, gate: Gate) -> KernelCues:
        """Do what :meth:`find_cues` does, by a kernel of the module ``own``."""
        first, start, second, n_kernel = self._cue
        mask, opened = mask.contiguous(), gate.open.contiguous()
        out, is_bounded = F.linear(hidden, first, start), self._plugin.config.bounded_scope
        found = own.find_cues(out, second, mask, opened, n_kernel, is_bounded=is_bounded)
        if not self._kernels:
            plugin = self._plugin
            experts = tuple(range(plugin.config.n_operators))
            with torch.inference_mode(False), torch.no_grad():
                for name, layer in self._own.items():
                    folded = FoldedLayer(layer, plugin.operators, experts, torch.float32)
                    precision = position_precision(layer.bias.sigma)
                    self._kernels[int(name)] = own.KernelLayer(layer, folded, precision)
        cues: KernelCues = own.KernelCues(mask, *found, self._kernels)
        return cues

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
        scopable = words(mask) if self._plugin.config.bounded_scope else mask
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
        config, n_tokens = self._plugin.config, cue.shape[-1]
        sigmas: list[Tensor] = [layer.bias.sigma for layer in self._own.values()]
        if cue.numel() * n_tokens * len(sigmas) > _MOST_PAIRS or n_tokens > N_CACHED:
            near = torch.stack([position_weight(config, cue.float(), s) for s in sigmas])
            return near.transpose(2, 3).to(cue.dtype)
        if n_tokens not in self._reach:
            with torch.inference_mode(False):
                precision = position_precision(torch.stack(sigmas).detach())
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
