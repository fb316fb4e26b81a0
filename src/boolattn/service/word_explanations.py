"""What BoolAttn does at each word of a query: the explanation's tokens laid over the text.

May import: boolattn.plugin.explain, boolattn.encoder, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.encoder import BoolBertModel, query_encoder
from boolattn.errors import ConfigError
from boolattn.plugin.explain import explain

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from boolattn.plugin.explain import Explanation


@dataclass(frozen=True)
class Word:
    """One word of a text; values by operator, layers averaged."""

    text: str
    start: int
    end: int
    cue: dict[str, float]
    scope: dict[str, float]
    bias: dict[str, float]
    attention_change: float


@dataclass(frozen=True)
class Words:
    """A text's words, and the experts that were open."""

    gate: dict[str, bool]
    words: tuple[Word, ...]


NOTHING = Words({}, ())


def words_of(towers: SentenceTransformer, text: str) -> Words:
    """Explain a text word by word; a model without BoolAttn has nothing to say."""
    try:
        encoder = query_encoder(towers)
    except ConfigError:
        return NOTHING  # another library's model, with one tower
    if not isinstance(encoder, BoolBertModel):
        return NOTHING
    tokenizer: Any = towers.tokenizer
    explanation = explain(encoder, tokenizer, text)
    n_tokens = len(explanation.tokens)
    places = tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=n_tokens)
    groups: dict[int, list[int]] = {}
    for token, word in enumerate(places.word_ids()):
        if word is not None:
            groups.setdefault(word, []).append(token)
    offsets = places["offset_mapping"]
    return Words(
        explanation.gate,
        tuple(_word(explanation, tokens, offsets) for tokens in groups.values()),
    )


def _word(explanation: Explanation, tokens: list[int], offsets: list[tuple[int, int]]) -> Word:
    """Join the pieces of a word: the strongest of each value, and all the attention it gets."""
    start, end = offsets[tokens[0]][0], offsets[tokens[-1]][1]
    scope, bias = explanation.scope.mean(0), explanation.bias.mean(0)

    def strongest(values: NDArray[np.float32]) -> dict[str, float]:
        own = values[:, tokens]
        best = own[np.arange(len(own)), np.abs(own).argmax(1)]
        return {
            name: round(float(value), 4)
            for name, value in zip(explanation.operators, best, strict=True)
        }

    return Word(
        explanation.text[start:end],
        start,
        end,
        strongest(explanation.cue),
        strongest(scope),
        strongest(bias),
        round(float(explanation.attention_change[:, tokens].mean(0).sum()), 5),
    )
