"""One pass of the query tower that gives both the query's vector and its parse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boolattn.encoder.bool_bert import QUERY, BoolBertModel
from boolattn.encoder.towers import query_encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.encoder.parser_head import ParserHead
    from boolattn.parsing.decoding import ParserLogits

#: What an encoder takes; sentence-transformers adds keys of its own to the features.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "operators")


def encode_and_parse(
    towers: SentenceTransformer, parser: ParserHead, features: dict[str, Any]
) -> tuple[Tensor, ParserLogits]:
    """Encode queries, and parse them from the same states.

    Returns the towers' vectors, ``(queries, dim)``, and the parser's logits.
    """
    if parser.config.n_states == 1:
        output = towers({**features, "task": QUERY}, task=QUERY)
        layers: tuple[Tensor, ...] = (output["token_embeddings"],)
    else:
        # sentence-transformers returns the last layer only, so its first module is bypassed.
        layers = encode_layers(towers, features)
        output = {**features, "task": QUERY, "token_embeddings": layers[-1]}
        for part in list(towers.children())[1:]:
            output = part(output)
    return output["sentence_embedding"], parser(layers, features["attention_mask"])


def encode_layers(towers: SentenceTransformer, features: dict[str, Any]) -> tuple[Tensor, ...]:
    """Return the query tower's states: the embeddings, then each layer's output."""
    encoder = query_encoder(towers)
    own = {name: features[name] for name in _INPUTS if name in features}
    if isinstance(encoder, BoolBertModel):
        own["task"] = QUERY
    layers: tuple[Tensor, ...] = encoder(**own, output_hidden_states=True).hidden_states
    return layers
