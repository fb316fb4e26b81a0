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
#: Keyword that passes the places of texts laid end to end to the attention function.
PACKED = "boolattn_packed"


@dataclass
class Applied:
    """A layer's bias, as passed to the attention function."""

    index: int
    form: str
    layer: AttentionBias


@dataclass
class Packed:
    """Where texts that are laid end to end begin, the end included, and most tokens of one."""

    starts: Tensor
    longest: int


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
    packed: Packed | None = kwargs.pop(PACKED, None)
    if packed is not None:
        return _packed_attention((query, key, value), packed, kwargs.get("dropout", 0.0)), None
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


def _packed_attention(heads: tuple[Tensor, ...], packed: Packed, dropout: float) -> Tensor:
    """Attend within each text. ``(1, heads, tokens, d)`` to ``(1, tokens, heads, d)``."""
    starts, longest = packed.starts, packed.longest
    if heads[0].is_cuda:
        rows = [part[0].transpose(0, 1) for part in heads]
        # torch's own flash attention; its public function for texts of any length has no dropout.
        flash = torch.ops.aten._flash_attention_forward
        return flash(*rows, starts, starts, longest, longest, dropout, False, False)[0][None]  # type: ignore[no-any-return]
    sizes = starts.diff().tolist()
    texts_heads = zip(*(part.split(sizes, 2) for part in heads), strict=True)
    texts = [F.scaled_dot_product_attention(q, k, v, dropout_p=dropout) for q, k, v in texts_heads]
    return torch.cat(texts, 2).transpose(1, 2)


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
    eager = sys.modules[type(module).__module__].eager_attention_forward
    return eager(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]


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
