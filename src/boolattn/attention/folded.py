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
from torch import Tensor, nn
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
        mask: 1 for tokens and 0 for padding, if there is any. Shape ``(open * tokens, 1)``.
        layers: Weights of the experts, and their inputs beside the hidden state, by layer: cues,
            tokens that cannot be in scope, ones, position weights; with zeros around the text, as
            many as the convolution reaches. Shape
            ``(open, reach + tokens + reach, 3 operators + 1)``.
    """

    rows: Tensor | None
    n_texts: int
    mask: Tensor | None
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
