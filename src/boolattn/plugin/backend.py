"""Attention functions with a bias, registered with transformers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from boolattn.attention.factors import wide_attention
from boolattn.attention.folded import SHORT
from boolattn.plugin.recording import current

if TYPE_CHECKING:
    from torch import Tensor, nn

    from boolattn.attention.factors import AttentionBias

#: Our attention function for each of transformers'.
BACKENDS = {"sdpa": "boolattn_sdpa", "eager": "boolattn_eager"}
#: Keyword that passes a layer's bias from its hook to the attention function.
BIAS = "boolattn_bias"
#: Keyword that passes the forward pass from the model's hook to its layers.
PASS = "boolattn_pass"


@dataclass
class Applied:
    """A layer's bias, as passed to the attention function."""

    index: int
    form: str
    layer: AttentionBias


def sdpa_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Run transformers' own function, or fused attention with the bias."""
    kwargs.pop(PASS, None)
    applied: Applied | None = kwargs.pop(BIAS, None)
    if applied is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    layer, dropout = applied.layer, kwargs.get("dropout", 0.0)
    _record_attention(applied, query, key, attention_mask)
    if not dropout and (done := layer.attend(query, key, value, attention_mask)) is not None:
        return done, None
    if applied.form == "dense" or _is_dense_faster(query):
        dense = layer.masked(attention_mask, query.dtype)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=dense, dropout_p=dropout)
    else:
        scale = query.shape[-1] ** -0.5
        heads = (*layer.append(query, key), value)
        out = wide_attention(heads, attention_mask, scale, dropout=dropout)
    return out.transpose(1, 2).contiguous(), None


def _is_dense_faster(query: Tensor) -> bool:
    """Whether the dense bias is faster: short texts without gradients; see benchmarks.encoding."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return False
    return query.device.type == "cpu" and query.shape[2] <= SHORT


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Run the family's own eager function, with the bias added to its mask."""
    kwargs.pop(PASS, None)
    applied: Applied | None = kwargs.pop(BIAS, None)
    if applied is not None:
        _record_attention(applied, query, key, attention_mask)
        attention_mask = applied.layer.masked(attention_mask, query.dtype)
    # Each modelling file has its own eager function; only that one gives the same bits.
    own = sys.modules[type(module).__module__].eager_attention_forward
    result: tuple[Tensor, Tensor | None] = own(module, query, key, value, attention_mask, **kwargs)
    return result


def _record_attention(applied: Applied, query: Tensor, key: Tensor, mask: Tensor | None) -> None:
    """Record the attention weights, if they are wanted."""
    if torch.compiler.is_compiling() or current.record is None:
        return
    if current.record.wants_attention:
        factors = applied.layer.factors
        scores = query @ key.transpose(-1, -2) * factors.scale
        weights = (scores + applied.layer.masked(mask, scores.dtype)).softmax(-1)
        current.record.attention[applied.index] = weights


def register() -> None:
    """Register our functions, each with the mask function of transformers' own."""
    for name, function, mask in (
        ("sdpa", sdpa_attention, sdpa_mask),
        ("eager", eager_attention, eager_mask),
    ):
        AttentionInterface.register(BACKENDS[name], function)
        AttentionMaskInterface.register(BACKENDS[name], mask)
