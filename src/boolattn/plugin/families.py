"""The supported encoder families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.errors import UnsupportedEncoderError

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Family:
    """Names and abilities of a family's modules."""

    attention: str  # class name of its self-attention
    stack: str = ""  # module whose first argument is the input of the first layer, if there is one
    has_interface: bool = True  # whether its attention uses ``AttentionInterface``
    passes_kwargs: bool = True  # whether keyword arguments of the model reach every layer


# DeBERTa is missing on purpose: it computes its scores outside AttentionInterface and takes no
# additive mask, so a bias would be dropped without an error.
FAMILIES = {
    "bert": Family("BertSelfAttention", stack="encoder"),
    "distilbert": Family("DistilBertSelfAttention", stack="transformer"),
    "electra": Family("ElectraSelfAttention", stack="encoder"),
    "modernbert": Family("ModernBertAttention"),
    # MPNet adds its attention mask to the scores itself, and so the dense bias.
    "mpnet": Family(
        "MPNetSelfAttention", stack="encoder", has_interface=False, passes_kwargs=False
    ),
    "roberta": Family("RobertaSelfAttention", stack="encoder"),
    "xlm-roberta": Family("XLMRobertaSelfAttention", stack="encoder"),
}


def family_of(encoder: PreTrainedModel) -> Family:
    """Return an encoder's family, or raise."""
    if not hasattr(encoder, "base_model"):
        raise UnsupportedEncoderError(
            f"cannot attach to a {type(encoder).__name__}; give a transformers encoder "
            "(of a SentenceTransformer: model[0].model)"
        )
    name = encoder.config.model_type
    if name not in FAMILIES:
        raise UnsupportedEncoderError(
            f"cannot attach to {name!r}; supported: {', '.join(sorted(FAMILIES))}"
        )
    if getattr(encoder.config, "is_decoder", False):
        raise UnsupportedEncoderError(
            f"cannot attach to a {name!r} decoder; load it with is_decoder=False"
        )
    return FAMILIES[name]


def self_attentions(encoder: PreTrainedModel, family: Family) -> list[nn.Module]:
    """Return the encoder's self-attention modules, first layer first."""
    return [part for part in encoder.modules() if type(part).__name__ == family.attention]
