"""The attention bias as a product of thin factors, and the attention that uses it.

For one head the bias is a sum of one outer product for each operator, so an ``L x L`` matrix
need not exist: appended to queries and keys, the factors make the dot product itself carry it.
May import: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Factors:
    """A bias ``sum_e query[i, e] * key[j, e]`` for every head.

    Attributes:
        query: Shape ``(batch, tokens, operators, heads)``.
        key: Shape ``(batch, tokens, operators, heads)``.
    """

    query: Tensor
    key: Tensor

    def dense(self) -> Tensor:
        """Multiply the factors out: the reference. Shape ``(batch, heads, tokens, tokens)``."""
        return torch.einsum("bieh,bjeh->bhij", self.query, self.key)


def factored_attention(
    heads: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    bias: Factors,
    *,
    dropout: float,
    scale: float,
) -> Tensor:
    """Fused attention with the bias as extra query and key dimensions.

    Values are widened like queries and keys and the result is cut again: kernels want one width
    for all three, and with it a bias of zero leaves the result as it was.

    Args:
        heads: Queries, keys and values. Each ``(batch, heads, tokens, dim)``.
        mask: What scaled dot-product attention takes as its mask.
        bias: The factors.
        dropout: Probability of dropping an attention weight.
        scale: Factor on the dot product, ``1 / sqrt(dim)``.

    Returns:
        Shape ``(batch, heads, tokens, dim)``.
    """
    query, key, value = heads
    dim, n_operators = query.shape[-1], bias.query.shape[2]
    # Fused kernels on GPUs want a width that 8 divides.
    n_blank = -(dim + n_operators) % 8
    blank = query.new_zeros(1).expand(*query.shape[:-1], n_blank)
    query = torch.cat([query, _by_head(bias.query, query.dtype), blank], dim=-1)
    # The kernel scales the whole dot product, so the bias is divided by the scale beforehand.
    key = torch.cat([key, _by_head(bias.key / scale, key.dtype), blank], dim=-1)
    value = F.pad(value, (0, n_operators + n_blank))
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, scale=scale
    )
    return out[..., :dim]


def _by_head(factor: Tensor, dtype: torch.dtype) -> Tensor:
    """``(batch, tokens, operators, heads)`` as ``(batch, heads, tokens, operators)``."""
    return factor.permute(0, 3, 1, 2).to(dtype)
