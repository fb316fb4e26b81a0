"""From the logits of the query parser to a parsed query.

A slot is one operand, in the order of the text. A word may belong to several slots: in "moths of
Borneo but not Sumatra" the word "moths" belongs to both operands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boolattn.arrays import to_numpy
from boolattn.query.lexicon import find_cues
from boolattn.query.parsed_query import MAX_LEVEL, Gap, ParsedQuery
from boolattn.query.tree import Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from boolattn.query.parsed_query import Span, Spans

    Array = NDArray[np.float32]

#: Roles of a slot.
ABSENT, POSITIVE, NEGATED = 0, 1, 2
#: Classes of a gap.
GAPS = tuple(
    Gap(operator, level)
    for operator in (Operator.AND, Operator.OR)
    for level in range(1, MAX_LEVEL + 1)
)


_SIGNS = {"AND": "&&&", "OR": "||", "NOT": "!!!"}
_OPERATOR = re.compile(r"(?<!\S)(?:AND|OR|NOT)(?!\S)")


class ParserLogits(NamedTuple):
    """Output of the parser for a batch, as arrays or tensors.

    Attributes:
        tags: Whether a token belongs to a slot. Shape ``(batch, tokens, slots)``.
        roles: Whether a slot is absent, positive or negated. Shape ``(batch, slots, 3)``.
        gaps: What joins a slot and the next. Shape ``(batch, slots - 1, gaps)``.
    """

    tags: Any
    roles: Any
    gaps: Any


@dataclass(frozen=True)
class ParserOutput:
    """The parse of one text."""

    parsed: ParsedQuery | None = None  # ``None`` for a text that cannot be parsed
    confidence: float = 1.0  # probability of the tree; 0 where words are missing
    reason: str = ""  # why a text with cue words is one operand; empty where it is not, or has none


def mark_operators(text: str) -> str:
    """Replace upper-case operators by signs of equal length, for tokenizers without capitals.

    >>> mark_operators("file and directory names AND logs NOT folders")
    'file and directory names &&& logs !!! folders'
    """
    if not any(sign.islower() for sign in text):
        return text
    return _OPERATOR.sub(lambda match: _SIGNS[match[0]], text)


def decode(logits: ParserLogits, text: str, offsets: Sequence[Span], row: int) -> ParserOutput:
    """Turn the logits of one text into a parse.

    Tags are decided word by word, so that no operand begins inside a word.

    Args:
        logits: Of the batch.
        text: The query.
        offsets: Characters of each of its tokens.
        row: Of the text in the batch.

    Returns:
        Without a parsed query where an operand has no words, where no operand is positive, or where
        a negated operand has no word of its own: "beetles of Spain, but no beetles" is misparsed.
    """
    tags, roles, gaps = (to_numpy(part[row]).astype(np.float32) for part in logits)
    roles, gaps = _softmax(roles), _softmax(gaps)
    best = roles.argmax(-1)
    present = [slot for slot in range(len(best)) if best[slot] != ABSENT]
    gap_kinds = gaps.argmax(-1)
    joins = [int(slot) for slot in present[:-1]]
    confidence = float(roles.max(-1).prod() * gaps.max(-1)[joins].prod())
    is_negated = tuple(bool(best[slot] == NEGATED) for slot in present)
    if all(is_negated):
        return ParserOutput(None, 0.0, "no operand is positive")
    spans = word_spans(tags, text, offsets, present)
    parsed = ParsedQuery(tuple(spans), is_negated, tuple(GAPS[gap_kinds[slot]] for slot in joins))
    if parsed.is_plain:
        reason = "it was read as one phrase" if find_cues(text) else ""
        return ParserOutput(parsed, confidence, reason)
    if not all(spans) or _negates_a_positive(parsed):
        return ParserOutput(None, 0.0, "an operand has no words of its own")
    return ParserOutput(parsed, confidence)


def _softmax(logits: Array) -> Array:
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: Array = shares / shares.sum(-1, keepdims=True)
    return probabilities


def _negates_a_positive(parsed: ParsedQuery) -> bool:
    """Tell whether a negated operand has only words of positive ones."""
    owned = [{at for span in spans for at in range(*span)} for spans in parsed.operands]
    signed = list(zip(owned, parsed.is_negated, strict=True))
    inside = set().union(*(positions for positions, negated in signed if not negated))
    return any(positions <= inside for positions, negated in signed if negated)


def word_spans(
    tags: Array, text: str, offsets: Sequence[Span], slots: Sequence[int]
) -> list[Spans]:
    """Return each slot's spans, adjacent words joined."""
    words: list[tuple[int, int, Array]] = []
    for token, (start, end) in enumerate(offsets):
        if start == end:
            continue
        if words and words[-1][1] == start and text[start - 1].isalnum() and text[start].isalnum():
            first, _, total = words[-1]
            words[-1] = (first, end, np.maximum(total, tags[token]))
        else:
            words.append((start, end, tags[token]))
    slot_spans: list[Spans] = []
    for slot in slots:
        spans: list[Span] = []
        for start, end, values in words:
            if values[slot] <= 0:  # a probability of one half
                continue
            if spans and not text[spans[-1][1] : start].strip():
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        slot_spans.append(tuple(spans))
    return slot_spans
