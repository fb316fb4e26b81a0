"""The experts with folded weights, for encoding without gradients.

FiLM, threshold, operator factor and all constants are folded into two matrices for each layer,
and what does not depend on the hidden state is computed once a pass. The values are those of
:class:`~boolattn.attention.layer.BoolAttnLayer`, the reference, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from boolattn.attention.factors import AttentionBias, Factors, bias_factors

if TYPE_CHECKING:
    from boolattn.attention.layer import BoolAttnLayer

#: Taken from a scope logit to keep a token out of scope; finite in half precision.
OUT_OF_SCOPE = 3e4
#: Most tokens of a text for which a CPU adds the dense bias, of the texts with an open expert.
SHORT = 128


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
