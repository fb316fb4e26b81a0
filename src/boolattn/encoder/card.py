"""The model card: what a saved model is, what made it, and how to use it.

May import: boolattn.encoder, boolattn.attention.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder.bool_bert import BoolBertModel, base_name
from boolattn.encoder.towers import query_encoder, settings_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NOT_SAID = "not said"
GATES = {
    "label": "by label: without `operators` a query is read as a plain one",
    "lexicon": "by the cue lexicon, from plain text",
    "learned": "by a trained classifier, from plain text",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a model cannot say of itself.

    Attributes:
        base: The encoder the towers started from; left out, the name it was loaded by.
        licence: Identifier of the weights' licence, as model hubs write it.
        data: What it was trained on.
        command: The command that made it.
        results: Markdown about what it reaches.
    """

    base: str = ""
    licence: str = "apache-2.0"
    data: str = NOT_SAID
    command: str = ""
    results: str = ""


def model_card(model: SentenceTransformer, card: Card, name: str) -> str:
    """Write the card of a two-tower model.

    Args:
        model: The model.
        card: What it cannot say of itself.
        name: Its folder's name.
    """
    encoder = query_encoder(model)
    base = card.base or base_name(encoder) or NOT_SAID
    towers = settings_of(model)
    rows = {
        "base encoder": base,
        "family": encoder.config.model_type,
        "weights": "one set for both towers" if towers.is_shared else "one set a tower",
        "pooling": towers.pooling,
        "similarity": towers.similarity,
        "dimensions": str(model.get_embedding_dimension()),
        "lengths": f"queries {towers.query_length}, documents {towers.document_length} tokens",
    }
    if isinstance(encoder, BoolBertModel):
        settings = encoder.config.boolattn_config
        rows["family"] = str(encoder.backbone.config.model_type)
        rows["gate"] = GATES[settings.gate]
        rows["BoolAttn"] = f"{settings.variant}; {_changes(settings)}"
    else:
        rows["BoolAttn"] = "none: plain towers"
    rows["training data"] = card.data
    table = "\n".join(f"| {key} | {_cell(value)} |" for key, value in rows.items())
    front = ["license: " + card.licence, "library_name: sentence-transformers"]
    front += ["pipeline_tag: sentence-similarity", "tags: [boolattn, dense-retrieval]"]
    command = f"Made by\n\n```sh\n{card.command}\n```\n" if card.command else "Command: not said.\n"
    parts = ["---\n" + "\n".join(front) + "\n---", f"# {name}", _INTRODUCTION]
    parts += ["| | |\n|---|---|\n" + table, command, _USAGE.replace("NAME", name)]
    if card.results:
        parts.append("## Results\n\n" + card.results)
    return "\n\n".join(part.strip() for part in parts) + "\n"


_INTRODUCTION = """
A two-tower retriever that reads *and*, *or* and *not* in a query: BoolAttn adds a learned bias to
the attention of the query encoder; documents go through the bare encoder.
"""

_USAGE = """
## Use

```python
from sentence_transformers import SentenceTransformer

import boolattn.encoder  # makes Bool-BERT known to transformers

model = SentenceTransformer("NAME")
queries = model.encode_query(["moths of Borneo but not Sumatra"])
documents = model.encode_document(["A moth found in Borneo.", "A moth found in Sumatra."])
print(model.similarity(queries, documents))
```
"""


def _changes(settings: BoolAttnConfig) -> str:
    """Name the settings that are not the defaults."""
    own, usual = asdict(settings), asdict(BoolAttnConfig())
    found = [f"{k}={own[k]}" for k in own if own[k] != usual[k] and k not in ("gate", "variant")]
    return ", ".join(found) or "defaults"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
