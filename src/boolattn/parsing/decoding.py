"""From the logits of the parser head to a parsed query.

A slot is one operand, in the order of the text. A word may belong to several slots: in "moths of
Borneo but not Sumatra" the word "moths" belongs to both operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boolattn.composition.arrays import sigmoid, to_numpy
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import form_tree, label_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from boolattn.logic.parsed_query import ParsedQuery, Span, Spans

#: Roles of a slot.
ABSENT, POSITIVE, NEGATED = 0, 1, 2


class ParserLogits(NamedTuple):
    """Output of the parser head for a batch, as arrays or tensors.

    Attributes:
        tags: Whether a token belongs to a slot. Shape ``(batch, tokens, slots)``.
        roles: Whether a slot is absent, positive or negated. Shape ``(batch, slots, 3)``.
        joiner: Whether OR joins the positive operands, rather than AND. Shape ``(batch,)``.
    """

    tags: Any
    roles: Any
    joiner: Any


@dataclass(frozen=True)
class ParserOutput:
    """The parse of one text.

    Attributes:
        parsed: ``None`` for a text that is one operand, or that cannot be parsed.
        structure: Probability of the structure.
        words: Probability of the least certain word; 0 where an operand has no words.
    """

    parsed: ParsedQuery | None = None
    structure: float = 1.0
    words: float = 1.0

    @property
    def confidence(self) -> float:
        """The probability of the structure; 0 where words are missing.

        The least certain word says little: it is nearly always a small one, such as "of".
        """
        return self.structure if self.words else 0.0


def is_boolean(logits: ParserLogits) -> NDArray[np.bool_]:
    """Return which texts of a batch have several operands or a negated one."""
    roles = logits.roles.argmax(-1)
    found: NDArray[np.bool_] = ((roles != ABSENT).sum(-1) > 1) | (roles == NEGATED).any(-1)
    return found


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
    tag_logits, raw, joint = (to_numpy(part[row]).astype(np.float32) for part in logits)
    roles = np.exp(raw - raw.max(-1, keepdims=True))
    roles /= roles.sum(-1, keepdims=True)
    best = roles.argmax(-1)
    present = [slot for slot in range(len(best)) if best[slot] != ABSENT]
    structure = float(roles.max(-1).prod())
    is_or = float(sigmoid(joint))
    n_positive = sum(int(best[slot]) == POSITIVE for slot in present)
    if n_positive > 1:
        structure *= max(is_or, 1 - is_or)
    if not n_positive:
        return ParserOutput(None, structure, 0.0)
    spans, certainty = word_spans(sigmoid(tag_logits), text, offsets, present)
    named = [(int(best[slot]), own) for slot, own in zip(present, spans, strict=True)]
    if (len(present) > 1 and not all(spans)) or _negates_a_positive(named):
        return ParserOutput(None, structure, 0.0)
    operands = [own for wanted in (POSITIVE, NEGATED) for role, own in named if role == wanted]
    joiner = Operator.OR if n_positive > 1 and is_or > 0.5 else Operator.AND
    labelled = label_tree(text, form_tree(n_positive, len(named) - n_positive, joiner), operands)
    if labelled is None:
        return ParserOutput(None, structure, 0.0)
    return ParserOutput(labelled.parsed, structure, certainty)


def _negates_a_positive(named: Sequence[tuple[int, Spans]]) -> bool:
    """Tell whether a negated operand has only words of positive ones."""
    inside = {
        p for role, spans in named if role == POSITIVE for span in spans for p in range(*span)
    }
    return any(
        all(place in inside for span in spans for place in range(*span))
        for role, spans in named
        if role == NEGATED
    )


def word_spans(
    probabilities: NDArray[np.float32], text: str, offsets: Sequence[Span], slots: Sequence[int]
) -> tuple[list[Spans], float]:
    """Return each slot's spans, adjacent words joined, and the least certain word's probability."""
    words: list[tuple[int, int, NDArray[np.float32]]] = []
    for place, (start, end) in enumerate(offsets):
        if start == end:
            continue
        if words and words[-1][1] == start and text[start - 1].isalnum() and text[start].isalnum():
            first, _, total = words[-1]
            words[-1] = (first, end, np.maximum(total, probabilities[place]))
        else:
            words.append((start, end, probabilities[place]))
    found: list[Spans] = []
    certainty = 1.0
    for slot in slots:
        spans: list[Span] = []
        for start, end, values in words:
            p = float(values[slot])
            certainty = min(certainty, max(p, 1 - p))
            if p <= 0.5:
                continue
            if spans and not text[spans[-1][1] : start].strip():
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        found.append(tuple(spans))
    return found, certainty
