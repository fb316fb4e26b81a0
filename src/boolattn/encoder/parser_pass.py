"""One pass of the query tower from which a query's vector and its reading come.

May import: boolattn.encoder.parser_head, boolattn.encoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boolattn.encoder import BoolBertModel, query_encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.encoder.parser_head import ParserHead, ParserLogits

QUERY = "query"
#: What an encoder takes; sentence-transformers puts its own notes among the features.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "operators")


def encode_and_parse(
    towers: SentenceTransformer, reader: ParserHead, features: dict[str, Any]
) -> tuple[Tensor, ParserLogits]:
    """Encode queries, and read them from the same states.

    Args:
        towers: Any model whose query tower is a transformer.
        reader: On that tower's states.
        features: What the tower takes, on its device.

    Returns:
        The vectors as the towers make them, ``(queries, dim)``, and what was read.
    """
    if reader.config.n_states == 1:
        output = towers({**features, "task": QUERY}, task=QUERY)
        layers: tuple[Tensor, ...] = (output["token_embeddings"],)
    else:
        # sentence-transformers hands on the last layer alone, so its first module is passed by.
        layers = encode_layers(towers, features)
        output = {**features, "task": QUERY, "token_embeddings": layers[-1]}
        for part in list(towers.children())[1:]:
            output = part(output)
    return output["sentence_embedding"], reader(layers, features["attention_mask"])


def encode_layers(towers: SentenceTransformer, features: dict[str, Any]) -> tuple[Tensor, ...]:
    """Return the query tower's states: what enters its first layer, then what leaves each."""
    encoder = query_encoder(towers)
    own = {name: features[name] for name in _INPUTS if name in features}
    if isinstance(encoder, BoolBertModel):
        own["task"] = QUERY
    layers: tuple[Tensor, ...] = encoder(**own, output_hidden_states=True).hidden_states
    return layers
