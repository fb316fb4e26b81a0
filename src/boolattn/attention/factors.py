"""The attention bias as a low-rank product, and the attention that uses it.

For one head the bias is a sum of one outer product for each operator. Appended to queries and
keys, the factors add it to the dot product, and no ``L x L`` matrix is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Factors:
    """A bias ``scale * sum_e query[i, e] * key[j, e]`` for every head.

    Attributes:
        query: One column for each operator, then padding. ``(batch, heads, tokens, columns)``.
        key: Same shape.
        scale: Of attention's dot product.
    """

    query: Tensor
    key: Tensor
    scale: float

    def dense(self) -> Tensor:
        """Return the full bias. Shape ``(batch, heads, tokens, tokens)``."""
        return self.query @ (self.scale * self.key).transpose(-1, -2)


def factored_attention(
    heads: tuple[Tensor, Tensor, Tensor], mask: Tensor | None, bias: Factors, *, dropout: float
) -> Tensor:
    """Fused attention with the bias as extra query and key dimensions.

    On a CPU values are padded like queries and keys, because the fused kernel needs one width
    for all three; a zero bias then changes no bit of the result. The GPU's masked kernel takes
    two widths.

    Args:
        heads: Queries, keys and values, and the result: each ``(batch, heads, tokens, dim)``.
        mask: As in ``scaled_dot_product_attention``.
        bias: The factors.
        dropout: Of attention weights.
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
