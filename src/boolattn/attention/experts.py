"""The experts in few operations with gradients, for training.

All layers' weights are put together once a pass, as in ``folded``, and one function computes the
factors of a layer's bias from one matrix product, with a backward pass written by hand. Values and
gradients are those of :class:`~boolattn.attention.layer.BoolAttnLayer`, the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.factors import AttentionBias, Factors
from boolattn.attention.folded import sum_taps
from boolattn.attention.position import position_weight
from boolattn.attention.scope import gumbel_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.attention.layer import BoolAttnLayer, CueState


class Shared(NamedTuple):
    """What the layers of a pass share, in the dtype of the hidden state.

    Attributes:
        mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens, 1)``.
        around: Appended to the hidden state: cues, then ones. ``(batch, tokens, operators + 1)``.
        allowed: 1 for tokens that can be in scope. ``(batch, tokens, 1, 1)``.
        strength: What strengths are multiplied by to be factors: the gate, attention's scale, and
            a sign. ``(batch, 1, operators, 1)``.
        is_not: 1 for NOT, whose bias is the same for all queries. ``(operators, 1)``.
        is_mutual: 1 for the others. Same shape.
        zero: One number, the padding of the factors.
    """

    mask: Tensor
    around: Tensor
    allowed: Tensor
    strength: Tensor
    is_not: Tensor
    is_mutual: Tensor
    zero: Tensor


class Expert(NamedTuple):
    """One layer's weights.

    Attributes:
        first: Scope taps ``(kernel, operators, heads)``, then the experts' first layers. Shape
            ``(columns, features + 2 operators + 1)``.
        outer: The experts' second layers, ``(operators, inner, heads)``.
        bias: Their constants, ``(operators, 1, heads)``.
        threshold: Of a scope's probability, ``(operators, 1)``.
    """

    first: Tensor
    outer: Tensor
    bias: Tensor
    threshold: Tensor


@dataclass
class ExpertBias(AttentionBias):
    """One layer's bias, before its factors: of what they are computed.

    Attributes:
        out: Product of the inputs and the first matrix, ``(batch, tokens, columns)``.
        own: The layer's weights.
        shared: What the layers share.
        noise: Added to scope logits in training, ``(batch, tokens, operators, heads)``.
        head_size: Of the encoder.
    """

    out: Tensor
    own: Expert
    shared: Shared
    noise: Tensor | None
    head_size: int

    def append(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys with the factors as extra dimensions."""
        n_padding = -(self.head_size + len(self.own.outer)) % 8
        parts = (self.out, *self.own[1:], self.shared.strength)
        with torch.autocast(self.out.device.type, enabled=False):
            wide: tuple[Tensor, Tensor] = _Append.apply(  # type: ignore[no-untyped-call]
                query, key, *parts, self.shared, self.noise, n_padding
            )
        return wide

    @cached_property
    def factors(self) -> Factors:
        """The bias as factors."""
        n_texts, n_tokens, _ = self.out.shape
        nothing = self.out.new_empty(n_texts, self.own.outer.shape[-1], n_tokens, 0)
        return Factors(*self.append(nothing, nothing), self.head_size**-0.5)


@dataclass(frozen=True)
class ExpertCues:
    """Cues, what the layers share, and their weights."""

    cues: CueState
    shared: Shared
    layers: dict[int, BoolAttnLayer]
    experts: dict[int, Expert]

    @classmethod
    def find(
        cls, cues: CueState, layers: dict[int, BoolAttnLayer], operators: Tensor
    ) -> ExpertCues:
        """Compute what the layers share, and their weights."""
        own = list(layers.values())
        experts = stack_experts(own, own[0].config, operators)
        shared = share(cues, own[0].config, own[0].head_size)
        return cls(cues, shared, layers, dict(zip(layers, experts, strict=True)))

    def bias(self, index: int, hidden: Tensor) -> ExpertBias:
        """Compute the bias of layer ``index``; ``hidden`` as in :meth:`BoolAttnLayer.forward`."""
        layer, own, shared = self.layers[index], self.experts[index], self.shared
        config, near = layer.config, self.cues.positions.get(str(index))
        if near is None:
            near = position_weight(config, self.cues.cue, layer.bias.sigma)
        parts = (layer.reduce(hidden), shared.around, near.transpose(1, 2))
        inputs = torch.cat([part.to(shared.mask.dtype) for part in parts], -1) * shared.mask
        out = F.linear(inputs, own.first)
        noise = None
        if layer.scope.training and config.use_noise:
            shape = (*hidden.shape[:2], config.n_operators, own.outer.shape[-1])
            noise = gumbel_noise(shape, out.device)
            if config.scope_temperature != 1:
                noise = noise.div_(config.scope_temperature)
        return ExpertBias(out, own, shared, noise, layer.head_size)


def share(cues: CueState, config: BoolAttnConfig, head_size: int) -> Shared:
    """Compute what the layers share."""
    mask, dtype = cues.mask[..., None], cues.mask.dtype
    around = torch.cat([cues.cue.transpose(1, 2).to(dtype), torch.ones_like(mask)], -1)
    # Made on the device: a recorded pass takes no value from the host.
    is_not = torch.zeros(config.n_operators, 1, device=mask.device, dtype=dtype)
    if config.operators[-1] == "not":
        is_not[-1].fill_(1)
    # Attention multiplies the factors by its scale.
    exact = torch.promote_types(dtype, torch.float32)
    strength = cues.gate.open[:, None, :, None] * ((1 - 2 * is_not).to(exact) * head_size**0.5)
    allowed = cues.scopable[..., None, None]
    return Shared(mask, around, allowed, strength, is_not, 1 - is_not, mask.new_zeros(1))


def stack_experts(
    layers: Sequence[BoolAttnLayer], config: BoolAttnConfig, operators: Tensor
) -> list[Expert]:
    """Return all layers' weights, with gradients, by as many operations as for one layer."""

    def stack(of: Callable[[BoolAttnLayer], Tensor]) -> Tensor:
        return torch.stack([of(layer) for layer in layers])

    def linear(of: Callable[[BoolAttnLayer], nn.Linear]) -> Tensor:
        out = operators @ stack(lambda layer: of(layer).weight).transpose(1, 2)
        if of(layers[0]).bias is None:
            return out
        return out + stack(lambda layer: of(layer).bias)[:, None]

    n, n_kernel = len(operators), config.kernel
    eye = torch.eye(n, device=operators.device, dtype=operators.dtype)
    film = linear(lambda layer: layer.scope.film) / config.scope_temperature
    scale, shift = film.chunk(2, -1)
    shift = torch.addcmul(shift, scale, stack(lambda layer: layer.scope.bias))
    shape = layers[0].scope.shape
    hidden = stack(lambda layer: layer.scope.hidden_weight).unflatten(1, shape)
    cue = (stack(lambda layer: layer.scope.cue_weight) * scale[:, None])[..., None]
    # The constant belongs to the middle tap; a scope does not depend on position weights.
    shift = F.pad(shift[:, None, ..., None], (0, n, *(0, 0) * 2, n_kernel // 2, n_kernel // 2))
    taps = torch.cat([hidden * scale[:, None, ..., None], cue * eye[:, None], shift], -1)

    near = stack(lambda layer: layer.bias.position_weight)[..., None] * eye[:, None]
    if layers[0].bias.inner is None:
        start = stack(lambda layer: layer.bias.inner_bias)[..., None]
        weight = torch.eye(start.shape[2], device=start.device, dtype=start.dtype)
        weight = weight.expand(len(layers), n, -1, -1)
    else:
        inner: list[Any] = [layer.bias.inner for layer in layers]
        weight = torch.stack([own.weight for own in inner]).unflatten(1, near.shape[1:3])
        start = torch.stack([own.bias for own in inner]).view(*near.shape[:3], 1)
    first = torch.cat([weight, F.pad(start, (n, 0)), near], -1)

    both = torch.cat([taps.flatten(1, 3), first.flatten(1, 2)], 1)
    factor = torch.sigmoid(linear(lambda layer: layer.bias.operator))[:, :, None]
    outer = stack(lambda layer: layer.bias.outer_weight) * factor
    bias = stack(lambda layer: layer.bias.outer_bias) * factor
    threshold = stack(lambda layer: layer.scope.threshold)[..., None]
    if config.bounded_scope:
        threshold = torch.sigmoid(threshold)
    parts = zip(both.unbind(), outer.unbind(), bias.unbind(), threshold.unbind(), strict=True)
    return [Expert(*own) for own in parts]


class _Append(torch.autograd.Function):
    """From a layer's matrix product to queries and keys with factors."""

    @staticmethod
    def forward(  # noqa: PLR0913
        context: Any,  # noqa: ANN401
        query: Tensor,
        key: Tensor,
        out: Tensor,
        outer: Tensor,
        bias: Tensor,
        threshold: Tensor,
        strength: Tensor,
        shared: Shared,
        noise: Tensor | None,
        n_padding: int,
    ) -> tuple[Tensor, Tensor]:
        """Return queries and keys, ``(batch, heads, tokens, dim + factors)``."""
        n, n_inner, n_heads = outer.shape
        n_texts, n_tokens, width = out.shape
        shape, n_taps = (n_texts, n_tokens, n, n_heads), width - n * n_inner
        n_kernel, dtype = n_taps // (n * n_heads), out.dtype
        padded = F.pad(out[..., :n_taps], (0, 0, n_kernel // 2, n_kernel // 2))
        exact = torch.promote_types(dtype, torch.float32)
        logits = sum_taps(padded, n_kernel, n_taps, exact).view(shape)
        probability = torch.sigmoid_(logits if noise is None else logits.add_(noise))
        allowed = shared.allowed.to(dtype)
        inside = (probability > threshold) * allowed
        inner = torch.relu(out[..., n_taps:]).view(-1, n, n_inner).transpose(0, 1)
        outer = outer.to(dtype)
        score = torch.baddbmm(bias.to(dtype), inner, outer)
        weight = F.softplus(score).view(n, *shape[:2], n_heads).permute(1, 2, 0, 3) * strength
        at_query = torch.maximum(inside, shared.is_not.to(dtype))
        zero = shared.zero.to(query.dtype)
        padding = zero.expand(n_texts, n_heads, n_tokens, n_padding)
        factors = (part.permute(0, 3, 1, 2) for part in (at_query, weight * inside))
        wide = [
            torch.cat([part, factor.to(part.dtype), padding], -1)
            for part, factor in zip((query, key), factors, strict=True)
        ]
        saved = (probability, inside, inner, outer, score, weight, strength, allowed)
        context.save_for_backward(*saved, shared.is_mutual)
        context.sizes, context.dtypes = (n_kernel, query.shape[-1]), (bias.dtype, threshold.dtype)
        return wide[0], wide[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, wide_query: Tensor, wide_key: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return gradients of queries, keys, the product, the layer's weights and the gate."""
        *saved, is_mutual = context.saved_tensors
        probability, inside, inner, outer, score, weight, strength, allowed = saved
        n_kernel, dim = context.sizes
        n_texts, n_tokens, n, n_heads = inside.shape
        reach, dtype = n_kernel // 2, outer.dtype
        at_query, at_key = (
            part[..., dim : dim + n].permute(0, 2, 3, 1) for part in (wide_query, wide_key)
        )
        # Scopes: straight through the threshold, then back through the taps of the convolution.
        at_inside = at_key * weight
        at_inside = torch.addcmul(at_inside, at_query, is_mutual).mul_(allowed)
        at_threshold = -at_inside.sum((0, 1, 3))[:, None]
        at_logits = torch.ops.aten.sigmoid_backward(at_inside, probability).to(dtype).flatten(2)
        padded = F.pad(at_logits, (0, 0, reach, reach))
        text, row, _ = padded.stride()
        # A token's last tap belongs to the token before it, so a window's taps are reversed.
        shape = (n_texts, n_tokens, n_kernel, n * n_heads)
        at_taps = padded.as_strided(shape, (text, row, row, 1)).flip(2).flatten(2)
        # Strengths.
        at_soft = at_key * inside
        at_strength = None
        if context.needs_input_grad[6]:
            soft = F.softplus(score).view(n, n_texts, n_tokens, n_heads).permute(1, 2, 0, 3)
            at_strength = (at_soft * soft).sum((1, 3), keepdim=True, dtype=strength.dtype)
        at_soft = (at_soft * strength).permute(2, 0, 1, 3).reshape(score.shape).to(dtype)
        at_score = torch.ops.aten.softplus_backward(at_soft, score, 1.0, 20.0)
        at_inner = torch.ops.aten.threshold_backward(at_score @ outer.transpose(1, 2), inner, 0)
        at_inner = at_inner.transpose(0, 1).reshape(n_texts, n_tokens, -1)
        at_out = torch.cat([at_taps, at_inner], -1)
        at_outer = inner.transpose(1, 2) @ at_score
        bias_dtype, threshold_dtype = context.dtypes
        at_bias = at_score.sum(1, keepdim=True, dtype=bias_dtype)
        return (
            *(wide_query[..., :dim], wide_key[..., :dim]),
            *(at_out, at_outer.to(bias_dtype), at_bias, at_threshold.to(threshold_dtype)),
            *(at_strength, None, None, None),
        )
