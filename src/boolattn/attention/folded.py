"""The experts with folded weights, for encoding without gradients.

FiLM, threshold, operator factor and all constants are folded into two matrices for each layer,
and what does not depend on the hidden state is computed once a pass. The values are those of
:class:`~boolattn.attention.layer.BoolAttnLayer`, the reference, up to rounding. Weights are folded
anew when a parameter changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.cue import CuePredictor
from boolattn.attention.factors import SHORT, AttentionBias, Factors, bias_factors
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
    from collections.abc import Iterable
    from types import ModuleType

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.attention.gate import Gate
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
        return bias_factors(inside, weight, layer.head_size, has_not=layer.has_not)

    def dense(self) -> Tensor:
        """Return the full bias. Shape ``(batch, heads, tokens, tokens)``."""
        # By operator, each ``(open, heads, tokens)``.
        shape = (-1, self.layer.n_heads)
        inside, weight = (
            [*part.unflatten(2, shape).permute(2, 0, 3, 1)] for part in (self.inside, self.weight)
        )
        # NOT, the last operator, acts on single tokens; AND and OR between tokens in scope.
        bias = -weight.pop()[:, :, None] if self.layer.has_not else self.layer.zero
        for query, key in zip(inside, weight, strict=False):
            bias = torch.addcmul(bias, query[..., None], key[:, :, None])
        bias = bias.expand(-1, -1, self.inside.shape[1], -1)
        if self.cues.rows is None:
            return bias
        whole = bias.new_zeros(self.cues.n_texts, *bias.shape[1:])
        return whole.index_copy_(0, self.cues.rows, bias)


class FoldedLayer:
    """One layer's weights.

    Attributes:
        first: Scope taps ``(kernel, experts, heads)``, then the experts' first layers, for the
            hidden state. Shape ``(features, columns)``.
        rest: The same for :attr:`FoldedCues.inputs`.
        second: The experts' second layers, with 0 between different experts.
        bias: Added to the second layers' scores.
        factor: Of the strengths. Shape ``(experts * heads,)``.
    """

    def __init__(self, layer: BoolAttnLayer, operators: Tensor, dtype: torch.dtype) -> None:
        linear, n = layer.reduce, len(operators)
        self.reduce: tuple[Tensor, Tensor] | None = None
        if isinstance(linear, nn.Linear):
            self.reduce = linear.weight.T.to(dtype).contiguous(), linear.bias.to(dtype)
        self.n_kernel, _, self.n_heads = layer.scope.shape
        self.has_not = layer.config.operators[-1] == "not"
        self.head_size = layer.head_size
        eye = torch.eye(n, device=operators.device)
        rows = (_taps(layer, operators, eye), _first_layers(layer, eye))
        first, rest = torch.cat(rows).to(dtype).tensor_split([-3 * n - 1], 1)
        # Rows of features: a CPU multiplies few tokens by them several times as fast.
        self.first, self.rest = first.T.contiguous(), rest.T.contiguous()
        scale = torch.sigmoid(layer.bias.operator(operators)).float()
        outer = layer.bias.outer_weight.float() * scale[:, None]
        self.second = torch.einsum("ein,ef->eifn", outer, eye).flatten(0, 1).flatten(1).to(dtype)
        self.bias = (layer.bias.outer_bias.float()[:, 0] * scale).flatten().to(dtype)
        factor = torch.ones_like(scale) if layer.factor is None else layer.factor
        self.factor, self.zero = factor.flatten().to(dtype), self.bias.new_zeros(())

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
        out = inputs @ self.rest
        tokens = out[:, reach : reach + n_tokens]
        if n_texts == 1:
            tokens[0].addmm_(hidden, self.first)
        else:
            tokens += (hidden @ self.first).view_as(tokens)
        inside = torch.heaviside(sum_taps(out, self.n_kernel, n_taps), self.zero)
        inner = torch.relu(tokens[..., n_taps:]).view(n_texts * n_tokens, -1)
        weight = F.softplus(torch.addmm(self.bias, inner, self.second)).view_as(inside)
        return inside, weight.mul_(inside).mul_(self.factor)


def _taps(layer: BoolAttnLayer, operators: Tensor, eye: Tensor) -> Tensor:
    """Return scope weights, ``(kernel * operators * heads, inputs)``; above 0 is in scope."""
    scope, n = layer.scope, len(operators)
    middle = scope.shape[0] // 2
    scale, shift = scope.film(operators).float().chunk(2, -1)
    shift = torch.addcmul(shift, scale, scope.bias.float())
    scale, shift = (part / layer.config.scope_temperature for part in (scale, shift))
    threshold = scope.threshold.float()
    if not layer.config.bounded_scope:
        limit = OUT_OF_SCOPE / 4
        threshold = torch.logit(threshold.clamp(0, 1)).clamp(-limit, limit)
    shift = shift - threshold[:, None]
    hidden = scope.hidden_weight.float().unflatten(0, scope.shape) * scale[..., None]
    cue = (scope.cue_weight.float() * scale)[..., None] * eye[:, None]
    constant = eye.new_zeros(*scope.shape, 2 * n + 1)
    constant[middle, ..., :n] = -OUT_OF_SCOPE * eye[:, None]
    constant[middle, ..., n] = shift
    return torch.cat([hidden, cue, constant], -1).flatten(0, 2)


def _first_layers(layer: BoolAttnLayer, eye: Tensor) -> Tensor:
    """Return the first layers of the bias experts, ``(operators * inner, inputs)``."""
    bias, shape = layer.bias, layer.bias.position_weight.shape
    near = bias.position_weight.float()[..., None] * eye[:, None]
    if bias.inner is None:
        start = bias.inner_bias.float()
        weight = torch.eye(shape[1], device=start.device).expand(shape[0], -1, -1)
    else:
        start = bias.inner.bias.float().unflatten(0, shape)
        weight = bias.inner.weight.float().unflatten(0, shape)
    none = near.new_zeros(*shape, 2 * len(eye))
    return torch.cat([weight, none, start[..., None], near], -1).flatten(0, 1)


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
