"""The encoder families that can carry the plug-in, and how each is entered.

May import: boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.errors import UnsupportedEncoderError

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Family:
    """Where a family's parts are.

    Attributes:
        attention: Class name of its self-attention.
        stack: Name of the module whose first argument is what enters the first layer.
        embeddings: Name of the module whose output is that, in a family without a stack.
        has_interface: Whether its attention goes through ``AttentionInterface``.
        carries_kwargs: Whether what is given to the model reaches every layer.
    """

    attention: str
    stack: str = ""
    embeddings: str = ""
    has_interface: bool = True
    carries_kwargs: bool = True


# DeBERTa is absent on purpose: it computes its scores outside AttentionInterface and takes no
# additive mask, so a bias would be dropped without a word.
FAMILIES = {
    "bert": Family("BertSelfAttention", stack="encoder"),
    "distilbert": Family("DistilBertSelfAttention", stack="transformer"),
    "electra": Family("ElectraSelfAttention", stack="encoder"),
    "modernbert": Family("ModernBertAttention", embeddings="embeddings"),
    # MPNet adds its attention mask to the scores itself: the dense bias goes in there.
    "mpnet": Family(
        "MPNetSelfAttention", stack="encoder", has_interface=False, carries_kwargs=False
    ),
    "roberta": Family("RobertaSelfAttention", stack="encoder"),
    "xlm-roberta": Family("XLMRobertaSelfAttention", stack="encoder"),
}


def family_of(encoder: PreTrainedModel) -> Family:
    """Look an encoder's family up, or refuse it by name."""
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
