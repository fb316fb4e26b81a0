"""The model card of a saved model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder.bool_bert import BoolBertModel, base_name
from boolattn.encoder.towers import query_encoder, settings_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

UNKNOWN = "unknown"
_TEMPLATE = files("boolattn.encoder").joinpath("card.md")
_BIAS = """BoolAttn adds a learned bias to the attention of the query encoder. Documents are encoded
without it.
"""
GATES = {
    "label": "oracle operator labels; without `operators` every gate is closed",
    "lexicon": "cue lexicon, from plain text",
    "learned": "trained classifier, from plain text",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """Facts for the model card that are not in the model."""

    base: str = ""  # what the towers were initialised from; by default the name it was loaded by
    licence: str = "apache-2.0"  # identifier of the weights' licence, as model hubs write it
    data: str = UNKNOWN
    command: str = ""  # that trained the model


def model_card(model: SentenceTransformer, card: Card, name: str) -> str:
    """Return the card of a two-tower model as Markdown; ``name`` is that of its folder."""
    encoder = query_encoder(model)
    towers = settings_of(model)
    rows = {
        "base encoder": card.base or base_name(encoder) or UNKNOWN,
        "family": encoder.config.model_type,
        "weights": "shared by both towers" if towers.is_shared else "separate for each tower",
        "pooling": towers.pooling,
        "similarity": towers.similarity,
        "dimensions": str(model.get_embedding_dimension()),
        "maximum length": f"queries {towers.query_length}, documents {towers.document_length}",
    }
    if isinstance(encoder, BoolBertModel):
        settings = encoder.config.boolattn_config
        rows["family"] = str(encoder.backbone.config.model_type)
        rows["gate"] = GATES[settings.gate]
        rows["BoolAttn"] = f"{settings.variant} variant; {_changes(settings)}"
    else:
        rows["BoolAttn"] = "none"
    rows["training data"] = card.data
    bias = _BIAS if isinstance(encoder, BoolBertModel) else ""
    command = f"\nTrained with\n\n```sh\n{card.command}\n```\n" if card.command else ""
    table = "\n".join(f"| {key} | {_cell(value)} |" for key, value in rows.items())
    values = {"name": name, "licence": card.licence, "table": table}
    return Template(_TEMPLATE.read_text("utf-8")).substitute(values, bias=bias, command=command)


def _changes(settings: BoolAttnConfig) -> str:
    """List the settings that differ from the defaults."""
    default = asdict(BoolAttnConfig(variant=settings.variant, gate=settings.gate))
    changed = [f"{name}={v}" for name, v in asdict(settings).items() if v != default[name]]
    return ", ".join(changed) or "defaults"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
