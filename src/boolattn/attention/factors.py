"""The attention bias as a low-rank product, and the attention that uses it.

For one head the bias is a sum of one outer product for each operator. Appended to queries and
keys, the factors add it to the dot product, and no ``L x L`` matrix is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

#: Most tokens of a text for which a CPU adds the dense bias, of the texts with an open expert.
SHORT = 128


@dataclass(frozen=True)
class Factors:
    """A bias ``scale * sum_e query[i, e] * key[j, e]`` for every head.

    Query and key have one column for each operator, then padding, in the shape ``(batch, heads,
    tokens, columns)``; the scale is that of attention's dot product.
    """

    query: Tensor
    key: Tensor
    scale: float

    def dense(self) -> Tensor:
        """Return the full bias. Shape ``(batch, heads, tokens, tokens)``."""
        return self.query @ (self.scale * self.key).transpose(-1, -2)


class AttentionBias:
    """One layer's bias, in any way it can be computed; a subclass has its factors."""

    factors: Any  # the factors, an attribute or a property

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor | None:
        """Return the result of attention by an own kernel, ``(batch, tokens, heads, dim)``.

        ``None`` without such a kernel for these texts, as here.
        """
        return None

    def fused(
        self, heads: tuple[Tensor, Tensor, Tensor], mask: Tensor | None, *, dropout: float
    ) -> Tensor:
        """Run fused attention of queries and keys with the factors as extra dimensions.

        On a CPU values are padded like queries and keys, because the fused kernel needs one width
        for all three; a zero bias then changes no bit of the result. The GPU's masked kernel takes
        two widths. ``heads`` are queries, keys and values, and the result is as each of them:
        ``(batch, heads, tokens, dim)``. ``dropout`` is that of attention weights.
        """
        factors: Factors = self.factors
        query, key, value = heads
        query = torch.cat([query, factors.query.to(query.dtype)], dim=-1)
        key = torch.cat([key, factors.key.to(key.dtype)], dim=-1)
        dim, is_one_width = value.shape[-1], value.device.type != "cuda" or mask is None
        if is_one_width:
            value = F.pad(value, (0, query.shape[-1] - dim))
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, scale=factors.scale
        )
        return out[..., :dim] if is_one_width else out

    def masked(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return the full bias with a mask: none, Boolean, or additive."""
        bias = cast("Tensor", self.factors.dense()).to(dtype)
        if mask is not None and mask.dtype == torch.bool:
            return torch.where(mask, bias, torch.finfo(dtype).min)
        return bias if mask is None else mask + bias


def bias_factors(
    inside: Tensor, weight: Tensor, head_size: int, *, is_paper: bool = False
) -> Factors:
    """Write a bias as factors: AND and OR act between tokens in scope, NOT on single tokens.

    ``inside`` is 1 in scope, 0 outside, ``weight`` the strength there: both ``(batch, tokens,
    operators, heads)``. The head's size is the encoder's. In the paper NOT acts along the queries.
    """
    n_texts, n_tokens, n_columns, n_heads = inside.shape
    # Fused GPU kernels need a head width, with the factors, that is a multiple of 8.
    n_padding = -(head_size + n_columns) % 8
    scale = head_size**-0.5
    weight = weight / scale  # attention multiplies the factors by its scale
    padding = inside.new_zeros(1).expand(n_texts, n_tokens, n_padding, n_heads)
    mutual, negation = weight.split([n_columns - 1, 1], 2)
    negative = -negation
    ones = torch.ones_like(negative)
    # The paper's mask of shape (L, 1) is constant along the keys, and softmax cancels it
    # (error 1); in the corrected variant it is along the keys.
    at_query, at_key = (negative, ones) if is_paper else (ones, negative)
    query, key = [inside[:, :, :-1], at_query, padding], [mutual, at_key, padding]
    first, second = (torch.cat(part, 2).permute(0, 3, 1, 2) for part in (query, key))
    return Factors(first, second, scale)
