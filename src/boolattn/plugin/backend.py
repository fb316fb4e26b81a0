"""Encoder families, attention functions with a bias for transformers, and forward passes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from boolattn.attention.factors import SHORT, AttentionBias
from boolattn.errors import UnsupportedEncoderError

if TYPE_CHECKING:
    from boolattn.attention.gate import Gate
    from boolattn.attention.gpu.kernel_bias import KernelCues
    from boolattn.attention.layer import CueState, LayerBias

#: Our attention function for each of transformers'.
BACKENDS = {"sdpa": "boolattn_sdpa", "eager": "boolattn_eager"}
#: Keyword that passes a layer's bias from its hook to the attention function.
BIAS = "boolattn_bias"
#: Keyword that passes the forward pass from the model's hook to its layers.
PASS = "boolattn_pass"
#: Keyword for texts laid end to end: where they begin, the end included, and most tokens of one.
PACKED = "boolattn_packed"
#: Class of the self-attention by family. Not DeBERTa: it computes its scores outside
#: AttentionInterface and takes no additive mask, so a bias would be dropped without an error.
FAMILIES = {
    "bert": "BertSelfAttention",
    "distilbert": "DistilBertSelfAttention",
    "electra": "ElectraSelfAttention",
    "modernbert": "ModernBertAttention",
    "mpnet": "MPNetSelfAttention",
    "roberta": "RobertaSelfAttention",
    "xlm-roberta": "XLMRobertaSelfAttention",
}
#: Families whose attention adds its mask to the scores itself, and so the dense bias; it does not
#: use AttentionInterface and gets none of the model's keyword arguments.
WITHOUT_INTERFACE = ("mpnet",)


def family_of(encoder: PreTrainedModel) -> str:
    """Return the name of an encoder's family, or raise."""
    if not hasattr(encoder, "base_model"):
        remedy = "give a transformers encoder (of a SentenceTransformer: model[0].model)"
        raise UnsupportedEncoderError(f"cannot attach to a {type(encoder).__name__}; {remedy}")
    name: str = encoder.config.model_type
    if name not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedEncoderError(f"cannot attach to {name!r}; supported: {known}")
    if getattr(encoder.config, "is_decoder", False):
        raise UnsupportedEncoderError(
            f"cannot attach to a {name!r} decoder; load it with is_decoder=False"
        )
    return name


@dataclass
class Record:
    """What BoolAttn computed while recording, with gradients.

    Biases are of the last pass, by layer number; cues and gates of every pass, open or not.
    """

    cue_states: list[CueState] = field(default_factory=list)
    biases: dict[int, LayerBias] = field(default_factory=dict)


@dataclass
class ForwardPass:
    """One forward pass of one encoder."""

    mask: Tensor  # 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
    gate: Gate | None  # from labels or the lexicon; ``None`` for a learned gate
    #: ``None`` if no expert is open; then the layers are not changed
    cues: CueState | KernelCues | None = None
    idle: frozenset[int] = frozenset()  # layers that are not changed


class _Current(threading.local):
    """State of one thread."""

    record: Record | None = None

    def __init__(self) -> None:
        #: By id of the encoder's hooks: one encoder may run while another does.
        self.passes: dict[int, ForwardPass] = {}


current = _Current()


def recorder() -> Record | None:
    """Return what this thread records into, if it does."""
    return None if torch.compiler.is_compiling() else current.record


@contextmanager
def recording() -> Iterator[Record]:
    """Record what BoolAttn computes in this thread's forward passes."""
    outer, current.record = current.record, Record()
    try:
        yield current.record
    finally:
        current.record = outer


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
    packed: tuple[Tensor, int] | None = kwargs.pop(PACKED, None)
    if packed is not None:
        return _packed_attention((query, key, value), *packed, kwargs.get("dropout", 0.0)), None
    layer: AttentionBias | None = kwargs.pop(BIAS, None)
    if layer is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    dropout = kwargs.get("dropout", 0.0)
    if not dropout and (done := layer.attend(query, key, value, attention_mask)) is not None:
        return done, None
    # Short texts without gradients are faster with the dense bias; see benchmarks.encoding.
    is_quick = not (torch.compiler.is_compiling() or torch.is_grad_enabled())
    if is_quick and (query.device.type == "cpu" and query.shape[2] <= SHORT):
        dense = layer.masked(attention_mask, query.dtype)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=dense, dropout_p=dropout)
    else:
        out = layer.fused((query, key, value), attention_mask, dropout=dropout)
    return out.transpose(1, 2).contiguous(), None


def _packed_attention(
    heads: tuple[Tensor, ...], starts: Tensor, longest: int, dropout: float
) -> Tensor:
    """Attend within each text. ``(1, heads, tokens, d)`` to ``(1, tokens, heads, d)``."""
    if heads[0].is_cuda:
        rows = [part[0].transpose(0, 1) for part in heads]
        # torch's own flash attention; its public function for texts of any length has no dropout.
        flash = torch.ops.aten._flash_attention_forward
        return flash(*rows, starts, starts, longest, longest, dropout, False, False)[0][None]  # type: ignore[no-any-return]
    texts_heads = zip(*(part.split(starts.diff().tolist(), 2) for part in heads), strict=True)
    texts = [F.scaled_dot_product_attention(q, k, v, dropout_p=dropout) for q, k, v in texts_heads]
    return torch.cat(texts, 2).transpose(1, 2)


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
    layer: AttentionBias | None = kwargs.pop(BIAS, None)
    if layer is not None:
        attention_mask = layer.masked(attention_mask, query.dtype)
    # Each modelling file has its own eager function; only that one gives the same bits.
    eager = sys.modules[type(module).__module__].eager_attention_forward
    return eager(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]


# Each of our functions has the mask function of transformers' own.
AttentionInterface.register(BACKENDS["sdpa"], sdpa_attention)
AttentionMaskInterface.register(BACKENDS["sdpa"], sdpa_mask)
AttentionInterface.register(BACKENDS["eager"], eager_attention)
AttentionMaskInterface.register(BACKENDS["eager"], eager_mask)
