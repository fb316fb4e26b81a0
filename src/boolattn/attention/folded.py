"""The experts with folded weights, for encoding without gradients.

FiLM, threshold, operator factor and all constants are folded into two matrices for each layer,
and what does not depend on the hidden state is computed once a pass. The values are those of
:class:`~boolattn.attention.layer.BoolAttnLayer`, the reference, up to rounding. Weights are folded
anew when a parameter changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.factors import SHORT, AttentionBias, Factors, bias_factors
from boolattn.attention.gate import CuePredictor, Gate
from boolattn.attention.layer import (
    N_COMPARED,
    BiasPredictor,
    BoolAttnLayer,
    ScopePredictor,
    position_precision,
    position_weight,
    words,
)

if TYPE_CHECKING:
    from types import ModuleType

    from boolattn.attention.gpu.kernel_bias import KernelCues, KernelWeights

#: Taken from a scope logit to keep a token out of scope; finite in half precision.
OUT_OF_SCOPE = 3e4
#: The modules that can be folded.
_FOLDABLE = (
    *(BoolAttnLayer, ScopePredictor, BiasPredictor, CuePredictor),
    *(nn.Linear, nn.Conv1d, nn.Identity, nn.ModuleDict),
)
#: Most pairs of tokens, of all layers, whose weights are computed at once.
_MOST_PAIRS = 2**22


@dataclass(frozen=True)
class FoldedCues:
    """What the layers of a pass share."""

    rows: Tensor | None  # texts with an open expert, if not all. Shape ``(open,)``.
    n_texts: int  # of the batch
    mask: Tensor | None  # 1 for tokens, 0 for padding, if any. Shape ``(open * tokens, 1)``.
    #: Weights of the experts, and their inputs beside the hidden state, by layer: cues, tokens that
    #: cannot be in scope, ones, position weights; with zeros around the text, as many as the
    #: convolution reaches. Shape ``(open, reach + tokens + reach, 3 operators + 1)``.
    layers: dict[int, tuple[FoldedLayer, Tensor]]

    def bias(self, index: int, hidden: Tensor) -> FoldedBias:
        """Compute the bias of layer ``index``; ``hidden`` as in :meth:`BoolAttnLayer.forward`."""
        layer, inputs = self.layers[index]
        if self.rows is not None:
            hidden = hidden[self.rows]
        return FoldedBias(*layer(hidden, inputs, self.mask), self, layer)


@dataclass
class FoldedBias(AttentionBias):
    """One layer's bias: scopes, and strengths in scope. ``(open, tokens, experts * heads)``."""

    inside: Tensor
    weight: Tensor
    cues: FoldedCues
    layer: FoldedLayer

    @cached_property
    def factors(self) -> Factors:
        """The bias as factors."""
        layer, shape = self.layer, (-1, self.layer.n_heads)
        inside, weight = (part.unflatten(2, shape) for part in (self.inside, self.weight))
        return bias_factors(inside, weight, layer.head_size)

    def dense(self) -> Tensor:
        """Return the full bias. Shape ``(batch, heads, tokens, tokens)``."""
        # By operator, each ``(open, heads, tokens)``.
        shape = (-1, self.layer.n_heads)
        inside, weight = (
            [*part.unflatten(2, shape).permute(2, 0, 3, 1)] for part in (self.inside, self.weight)
        )
        # NOT, the last operator, acts on single tokens; AND and OR between tokens in scope.
        bias: Tensor = -weight.pop()[:, :, None]
        for query, key in zip(inside, weight, strict=False):
            bias = torch.addcmul(bias, query[..., None], key[:, :, None])
        bias = bias.expand(-1, -1, self.inside.shape[1], -1)
        if self.cues.rows is None:
            return bias
        biases = bias.new_zeros(self.cues.n_texts, *bias.shape[1:])
        return biases.index_copy_(0, self.cues.rows, bias)


class FoldedLayer:
    """One layer's weights.

    Attributes:
        first: Scope taps ``(kernel, experts, heads)``, then the experts' first layers, for the
            hidden state. Shape ``(features, columns)``.
        start: Added to both. Shape ``(columns,)``.
        cue: Of the taps, for the cues. Shape ``(kernel, experts, heads)``.
        near: Of the first layers, for the position weights. Shape ``(experts, inner)``.
        outer: The experts' second layers. Shape ``(experts, inner, heads)``.
        bias: Added to the second layers' scores. Shape ``(experts * heads,)``.
        factor: Of the strengths. Same shape.
        rest: Start, cue and near as one matrix for :attr:`FoldedCues.inputs`.
        second: The second layers as one matrix, with 0 between different experts.
    """

    def __init__(self, layer: BoolAttnLayer, operators: Tensor, dtype: torch.dtype) -> None:
        scope, bias, linear = layer.scope, layer.bias, layer.reduce
        self.n_kernel, n, self.n_heads = scope.shape
        self.head_size = layer.head_size
        self.reduce: tuple[Tensor, Tensor] | None = None
        if isinstance(linear, nn.Linear):
            self.reduce = linear.weight.T.to(dtype).contiguous(), linear.bias.to(dtype)

        # Above 0 is in scope.
        scale, shift = scope.film(operators).float().chunk(2, -1)
        shift = torch.addcmul(shift, scale, scope.bias.float())
        scale, shift = (part / layer.config.scope_temperature for part in (scale, shift))
        threshold = scope.threshold.float()
        if not layer.config.bounded_scope:
            limit = OUT_OF_SCOPE / 4
            threshold = torch.logit(threshold.clamp(0, 1)).clamp(-limit, limit)
        taps = scope.hidden_weight.float().unflatten(0, scope.shape) * scale[..., None]
        tap_start, outside = shift.new_zeros(2, *scope.shape)
        tap_start[self.n_kernel // 2] = shift - threshold[:, None]
        outside[self.n_kernel // 2] = -OUT_OF_SCOPE
        cue, near = scope.cue_weight.float() * scale, bias.position_weight.float()
        if bias.inner is None:
            inner_start = bias.inner_bias.float()
            inner = torch.eye(near.shape[1], device=near.device).repeat(n, 1)
        else:
            inner_start, inner = bias.inner.bias.float(), bias.inner.weight.float()
        strength = torch.sigmoid(bias.operator(operators)).float()
        outer = bias.outer_weight.float() * strength[:, None]
        factor = torch.ones_like(strength) if layer.factor is None else layer.factor

        # Rows of features: a CPU multiplies few tokens by them several times as fast.
        self.first = torch.cat([taps.flatten(0, 2), inner]).to(dtype).T.contiguous()
        start = torch.cat([tap_start.flatten(), inner_start.flatten()])
        self.start, self.cue, self.near, self.outer = (
            part.to(dtype) for part in (start, cue, near, outer)
        )
        self.bias = (bias.outer_bias.float()[:, 0] * strength).flatten().to(dtype)
        self.factor, self.zero = factor.flatten().to(dtype), self.bias.new_zeros(())

        eye = torch.eye(n, device=operators.device)
        by_tap, by_inner = (eye[:, None].expand(n, k, n) for k in (self.n_heads, near.shape[1]))
        by_input = start.new_zeros(len(start), 3 * n + 1)
        by_input[: cue.numel(), :n] = (cue[..., None] * by_tap).flatten(0, 2)
        by_input[: cue.numel(), n : 2 * n] = (outside[..., None] * by_tap).flatten(0, 2)
        by_input[:, 2 * n] = start
        by_input[cue.numel() :, 2 * n + 1 :] = (near[..., None] * by_inner).flatten(0, 1)
        self.by_input = by_input.to(dtype).T.contiguous()
        self.second = torch.einsum("ein,ef->eifn", outer, eye).flatten(0, 1).flatten(1).to(dtype)

    def __call__(
        self, hidden: Tensor, inputs: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return scopes and strengths."""
        n_texts, n_tokens, n_features = hidden.shape
        hidden = hidden.reshape(-1, n_features)
        if self.reduce is not None:
            hidden = torch.addmm(self.reduce[1], hidden, self.reduce[0])
        if mask is not None:
            hidden = hidden * mask  # padding must not change its neighbours
        reach, n_taps = self.n_kernel // 2, self.n_kernel * len(self.bias)
        out = inputs @ self.by_input
        tokens = out[:, reach : reach + n_tokens]
        if n_texts == 1:
            tokens[0].addmm_(hidden, self.first)
        else:
            tokens += (hidden @ self.first).view_as(tokens)
        inside = torch.heaviside(sum_taps(out, self.n_kernel, n_taps), self.zero)
        inner = torch.relu(tokens[..., n_taps:]).view(n_texts * n_tokens, -1)
        weight = F.softplus(torch.addmm(self.bias, inner, self.second)).view_as(inside)
        return inside, weight.mul_(inside).mul_(self.factor)


def sum_taps(padded: Tensor, n_kernel: int, n_taps: int) -> Tensor:
    """Add the taps of a convolution, the first columns: ``(batch, tokens, n_taps / n_kernel)``.

    ``(batch, reach + tokens + reach, columns)``, with zeros around the tokens.
    """
    n_texts, n_rows, _ = padded.shape
    (text, row, _), n = padded.stride(), n_taps // n_kernel
    shape = (n_texts, n_rows - n_kernel + 1, n_kernel, n)
    return padded.as_strided(shape, (text, row, row + n, 1)).sum(2)


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

    def __init__(self, state: list[int], plugin: Any) -> None:  # noqa: ANN401 - above this one
        self.state, self._config, operators = state, plugin.config, plugin.operators
        layers = {int(name): layer for name, layer in plugin.layers.items()}
        # The GPU's kernels take constants in float32.
        dtype = torch.float32 if operators.is_cuda else operators.dtype
        with torch.inference_mode(False), torch.no_grad():
            self._cue = _fold_cue(plugin.cue, operators)
            self._sigmas = torch.stack([layer.bias.sigma for layer in layers.values()])
            self._layers = {i: FoldedLayer(layer, operators, dtype) for i, layer in layers.items()}
            self._kernels: KernelWeights | None = None
            if operators.is_cuda:
                launcher: Any = kernels()
                kernel_layers = {
                    i: launcher.KernelLayer(layer, operators.dtype)
                    for i, layer in self._layers.items()
                }
                precisions = position_precision(self._sigmas)
                self._kernels = launcher.KernelWeights(kernel_layers, precisions, plugin.config)

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
    first = torch.cat([cue.conv.weight.permute(2, 0, 1).flatten(0, 1), hidden]).T.contiguous()
    start = torch.cat([start.flatten(), cue.bias])
    return first, start, context.T.contiguous(), n_kernel
