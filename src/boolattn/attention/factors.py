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
    """A bias ``scale * sum_e query[i, e] * key[j, e]`` for every head.

    The scale is the one attention puts on its dot product, so that the factors can be appended
    to queries and keys as they are.

    Attributes:
        query: Shape ``(batch, heads, tokens, columns)``: one column an operator, then blank ones.
        key: Shape ``(batch, heads, tokens, columns)``.
    """

    query: Tensor
    key: Tensor
    scale: float

    def dense(self) -> Tensor:
        """Multiply the factors out: the reference. Shape ``(batch, heads, tokens, tokens)``."""
        return self.query @ (self.scale * self.key).transpose(-1, -2)


def factored_attention(
    heads: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    bias: Factors,
    *,
    dropout: float,
) -> Tensor:
    """Fused attention with the bias as extra query and key dimensions.

    On a CPU values are widened like queries and keys and the result is cut again: the fused
    kernel wants one width for all three, and with it a bias of zero leaves the result as it was
    to the bit. The GPU's masked kernel takes two widths.

    Args:
        heads: Queries, keys and values. Each ``(batch, heads, tokens, dim)``.
        mask: What scaled dot-product attention takes as its mask.
        bias: The factors.
        dropout: Probability of dropping an attention weight.

    Returns:
        Shape ``(batch, heads, tokens, dim)``.
    """
    query, key, value = heads
    dim, n_columns = query.shape[-1], bias.query.shape[-1]
    query = torch.cat([query, bias.query.to(query.dtype)], dim=-1)
    key = torch.cat([key, bias.key.to(key.dtype)], dim=-1)
    is_one_width = value.device.type != "cuda" or mask is None
    if is_one_width:
        value = F.pad(value, (0, n_columns))
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, scale=bias.scale
    )
    return out[..., :dim] if is_one_width else out
