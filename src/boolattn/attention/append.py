"""Factors appended to queries and keys in training, with a backward pass written by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from boolattn.attention.folded import sum_taps
from boolattn.attention.scope import NOISE_EPS


class Sizes(NamedTuple):
    """Of the experts of a layer, and their settings."""

    n_operators: int
    n_kernel: int
    n_inner: int
    n_heads: int
    head_size: int
    has_not: bool
    temperature: float

    @property
    def n_taps(self) -> int:
        """Columns of the scopes."""
        return self.n_kernel * self.n_operators * self.n_heads

    @property
    def n_columns(self) -> int:
        """Columns of a product, without padding."""
        return self.n_taps + self.n_operators * self.n_inner

    @property
    def n_padding(self) -> int:
        """Columns of queries and keys after the factors: fused kernels need multiples of 8."""
        return -(self.head_size + self.n_operators) % 8


class Shared(NamedTuple):
    """What the layers of a pass share, in the dtype of the hidden state.

    Attributes:
        mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens, 1)``.
        around: Appended to the hidden state: cues, ones, zeros. ``(batch, tokens, columns)``.
        allowed: 1 for tokens that can be in scope. ``(batch, tokens, 1, 1)``.
        opened: The gate, ``(batch, operators)``.
    """

    mask: Tensor
    around: Tensor
    allowed: Tensor
    opened: Tensor


class Append(torch.autograd.Function):
    """From a layer's matrix product to queries and keys with factors."""

    @staticmethod
    def forward(  # noqa: PLR0913
        context: Any,  # noqa: ANN401
        query: Tensor,
        key: Tensor,
        out: Tensor,
        second: Tensor,
        opened: Tensor,
        shared: Shared,
        uniform: Tensor | None,
        sizes: Sizes,
    ) -> tuple[Tensor, Tensor]:
        """Return queries and keys, ``(batch, heads, tokens, dim + factors)``."""
        n, n_inner, n_heads, n_taps = sizes.n_operators, sizes.n_inner, sizes.n_heads, sizes.n_taps
        shape, dtype, reach = (*out.shape[:2], n, n_heads), out.dtype, sizes.n_kernel // 2
        parts = second[:, : (n_inner + 1) * n_heads + 1].split([n_inner * n_heads, n_heads, 1], 1)
        outer, bias = parts[0].unflatten(1, (n_inner, n_heads)).to(dtype), parts[1].to(dtype)
        mask, allowed = shared.mask.to(dtype), shared.allowed.to(dtype)
        # Padding must not change its neighbours.
        padded = F.pad(out[..., :n_taps] * mask, (0, 0, reach, reach))
        exact = torch.promote_types(dtype, torch.float32)
        logits = sum_taps(padded, sizes.n_kernel, n_taps, exact).view(shape)
        if uniform is not None:
            logits += torch.logit(uniform, eps=NOISE_EPS) / sizes.temperature
        probability = torch.sigmoid_(logits)
        inside = (probability > parts[2]) * allowed
        inner = torch.relu(out[..., n_taps : n_taps + n * n_inner])
        inner = inner.view(-1, n, n_inner).transpose(0, 1)
        score = torch.baddbmm(bias[:, None], inner, outer)
        # Attention multiplies the factors by its scale.
        strength = opened[:, None, :, None].to(exact) * sizes.head_size**0.5
        weight = F.softplus(score).view(n, *shape[:2], n_heads).permute(1, 2, 0, 3) * strength
        at_query = inside.clone()
        if sizes.has_not:  # its bias is the same for all queries
            at_query[:, :, -1] = 1
            weight[:, :, -1].neg_()
        padding = query.new_zeros(1).expand(*query.shape[:-1], sizes.n_padding)
        factors = (part.permute(0, 3, 1, 2) for part in (at_query, weight * inside))
        wide = [
            torch.cat([part, factor.to(part.dtype), padding], -1)
            for part, factor in zip((query, key), factors, strict=True)
        ]
        saved = (probability, inside, inner, outer, score, weight, strength, allowed, mask)
        context.save_for_backward(*saved)
        context.sizes, context.width, context.n_second = sizes, out.shape[-1], second.shape[1]
        return wide[0], wide[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, wide_query: Tensor, wide_key: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return gradients of queries, keys, the product, the layer's weights and the gate."""
        saved, sizes = context.saved_tensors, context.sizes
        probability, inside, inner, outer, score, weight, strength, allowed, mask = saved
        n_texts, n_tokens, n, n_heads = inside.shape
        dim, reach, dtype, width = sizes.head_size, sizes.n_kernel // 2, outer.dtype, context.width
        at_query, at_key = (
            part[..., dim : dim + n].permute(0, 2, 3, 1) for part in (wide_query, wide_key)
        )
        # Scopes: straight through the threshold, then back through the taps of the convolution.
        at_inside, n_mutual = at_key * weight, n - sizes.has_not
        at_inside[:, :, :n_mutual] += at_query[:, :, :n_mutual]
        at_inside *= allowed
        at_threshold = -at_inside.sum((0, 1, 3))[:, None]
        at_logits = torch.ops.aten.sigmoid_backward(at_inside, probability).to(dtype).flatten(2)
        padded = F.pad(at_logits.contiguous(), (0, 0, reach, reach))
        text, row, _ = padded.stride()
        # A token's last tap belongs to the token before it, so a window's taps are reversed.
        shape = (n_texts, n_tokens, sizes.n_kernel, n * n_heads)
        at_taps = padded.as_strided(shape, (text, row, row, 1)).flip(2).flatten(2) * mask
        # Strengths.
        at_soft = at_key * inside
        if sizes.has_not:
            at_soft[:, :, -1].neg_()
        at_opened = None
        if context.needs_input_grad[4]:
            soft = F.softplus(score).view(n, n_texts, n_tokens, n_heads).permute(1, 2, 0, 3)
            at_opened = (at_soft * soft).sum((1, 3), dtype=strength.dtype) * dim**0.5
        at_soft = (at_soft * strength).permute(2, 0, 1, 3).reshape(score.shape).to(dtype)
        at_score = torch.ops.aten.softplus_backward(at_soft, score, 1.0, 20.0)
        at_inner = torch.ops.aten.threshold_backward(at_score @ outer.transpose(1, 2), inner, 0)
        at_inner = at_inner.transpose(0, 1).reshape(n_texts, n_tokens, -1)
        at_out = F.pad(torch.cat([at_taps, at_inner], -1), (0, width - sizes.n_columns))
        at_outer = (inner.transpose(1, 2) @ at_score).flatten(1).to(at_threshold.dtype)
        at_bias = at_score.sum(1, dtype=at_threshold.dtype)
        at_second = torch.cat([at_outer, at_bias, at_threshold], 1)
        at_second = F.pad(at_second, (0, context.n_second - at_second.shape[1]))
        wide = (wide_query[..., :dim], wide_key[..., :dim])
        return (*wide, at_out, at_second, at_opened, None, None, None)
