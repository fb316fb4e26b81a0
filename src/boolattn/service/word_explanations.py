"""What BoolAttn does at each word of a query: its explanation by token, joined to words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError
from boolattn.service.schemas import WordReply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from boolattn.plugin.explain import Explanation


def explain_words(
    towers: SentenceTransformer, text: str
) -> tuple[dict[str, bool], list[WordReply]]:
    """Return the open gates and the words of a text; both empty for a model without BoolAttn."""
    from boolattn.encoder import BoolBertModel, query_encoder
    from boolattn.plugin.explain import explain

    try:
        encoder = query_encoder(towers)
    except ConfigError:
        return {}, []  # a model with one tower
    if not isinstance(encoder, BoolBertModel):
        return {}, []
    tokenizer: Any = towers.tokenizer
    explanation = explain(encoder, tokenizer, text)
    n_tokens = len(explanation.tokens)
    encoding = tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=n_tokens)
    groups: dict[int, list[int]] = {}
    for token, word in enumerate(encoding.word_ids()):
        if word is not None:
            groups.setdefault(word, []).append(token)
    offsets = encoding["offset_mapping"]
    words = [_word(explanation, tokens, offsets) for tokens in groups.values()]
    return explanation.gate, words


def _word(explanation: Explanation, tokens: list[int], offsets: list[tuple[int, int]]) -> WordReply:
    """Join the tokens of a word: the largest of each value, and the sum of attention change."""
    start, end = offsets[tokens[0]][0], offsets[tokens[-1]][1]

    def largest(values: NDArray[np.float32]) -> dict[str, float]:
        best = (max(map(float, row), key=abs) for row in values[:, tokens])
        return {
            name: round(value, 4) for name, value in zip(explanation.operators, best, strict=True)
        }

    return WordReply(
        text=explanation.text[start:end],
        start=start,
        end=end,
        cue=largest(explanation.cue),
        scope=largest(explanation.scope.mean(0)),
        bias=largest(explanation.bias.mean(0)),
        attention_change=round(float(explanation.attention_change[:, tokens].mean(0).sum()), 5),
    )
