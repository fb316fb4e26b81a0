"""Parsed queries: the words of each operand, and the tree that joins the operands.

Operands stand in the order of the text. Between two neighbours stands a gap: the operator that
joins them and its level, 1 at the root of the tree. Shared words belong to each of their
operands: "moths of Borneo or Java that fly by day" is an OR of two full operands.

The parser's logits are of slots: one for each operand, in the order of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from boolattn.query.syntax import unparse
from boolattn.query.tokens import WORDS, any_of, find_cues, phrases_of
from boolattn.query.tree import And, Atom, Not, Operator, Or, QueryTree, join_all, operand

Array = NDArray[np.float32]

Span = tuple[int, int]
Spans = tuple[Span, ...]

#: A word that joins operands and belongs to none.
_LAST_CUE = re.compile(
    r"(?<=\w)\s+(?:and|apart from|but|except(?: for)?|not?|n?or|rather|without)$", re.IGNORECASE
)
_FIRST_CUE = re.compile(r"^(?:no|not|without)\s+(?=\w)", re.IGNORECASE)
#: Deepest level of a tree.
MAX_LEVEL = 3


class Gap(NamedTuple):
    """What joins two neighbouring operands."""

    operator: Operator  # AND or OR
    level: int = 1  # of the node that joins them, 1 at the root


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The parse of a query."""

    operands: tuple[Spans, ...]  # the spans of each operand, in text order
    is_negated: tuple[bool, ...] = (False,)  # which operands are negated
    gaps: tuple[Gap, ...] = ()  # one fewer than operands

    @property
    def is_plain(self) -> bool:
        """Whether the query is one operand, without operators."""
        return self.is_negated == (False,)

    @property
    def structure(self) -> str:
        """The tree without its operands, in explicit syntax.

        >>> ParsedQuery((((0, 1),), ((4, 5),)), (False, True), (Gap(Operator.AND),)).structure
        '_ NOT _'
        """
        return unparse(self._tree([Atom("_")] * len(self.operands)))

    def tree(self, text: str) -> QueryTree:
        """Return the tree of the operands, with their words in a text.

        >>> text = "moths of Borneo but not Sumatra"
        >>> spans = (((0, 15),), ((0, 8), (24, 31)))
        >>> ParsedQuery(spans, (False, True), (Gap(Operator.AND),)).tree(text)
        And(parts=(Atom(text='moths of Borneo'), Not(part=Atom(text='moths of Sumatra'))))
        """
        named = [words(text, spans) or "everything" for spans in self.operands]
        for row, is_negated in enumerate(self.is_negated):
            named[row] = _FIRST_CUE.sub("", named[row]) if is_negated else named[row]
        return self._tree([operand(name) for name in named])

    def _tree(self, leaves: Sequence[Atom]) -> QueryTree:
        signed: list[QueryTree] = [
            Not(leaf) if negated else leaf
            for leaf, negated in zip(leaves, self.is_negated, strict=True)
        ]
        return _joined(signed, self.gaps)


def _joined(nodes: Sequence[QueryTree], gaps: Sequence[Gap]) -> QueryTree:
    """Build a tree by splitting at the gaps of the lowest level."""
    if not gaps:
        return nodes[0]
    level = min(gap.level for gap in gaps)
    cuts = [at for at, gap in enumerate(gaps) if gap.level == level]
    ends = [0, *(at + 1 for at in cuts), len(nodes)]
    joined = [_joined(nodes[a:b], gaps[a : b - 1]) for a, b in pairwise(ends)]
    return join_all(joined, Or if gaps[cuts[0]].operator is Operator.OR else And)


def words(text: str, spans: Sequence[Span]) -> str:
    """Return the words of spans, separated by one space.

    >>> words("moths of Borneo but not Sumatra", [(0, 8), (24, 31)])
    'moths of Sumatra'
    """
    pieces = (" ".join(text[start:end].split()).strip(' ,;:.?!"') for start, end in spans)
    return _LAST_CUE.sub("", " ".join(filter(None, pieces)))


def span_labels(
    spans: Iterable[tuple[int, int]], offsets: Sequence[tuple[int, int]], text: str = ""
) -> list[bool]:
    """Label the tokens that overlap any of the character spans.

    Special tokens have the empty offset ``(0, 0)`` and never overlap. Byte-level tokenizers count
    the space before a word as part of its token; with ``text`` that space is ignored.

    >>> span_labels([(6, 9)], [(0, 0), (0, 5), (6, 9), (9, 12), (0, 0)])
    [False, False, True, False, False]
    """
    spans = list(spans)
    labels = []
    for start, end in offsets:
        while start < end <= len(text) and text[start].isspace():
            start += 1
        labels.append(any(start < right and left < end for left, right in spans))
    return labels


#: Roles of a slot.
ABSENT, POSITIVE, NEGATED = 0, 1, 2
#: Classes of a gap.
GAPS = tuple(
    Gap(operator, level)
    for operator in (Operator.AND, Operator.OR)
    for level in range(1, MAX_LEVEL + 1)
)


#: In lower case IT and US would be pronouns.
_SIGNS = {"AND": "&&&", "OR": "||", "NOT": "!!!", "IT": "PC", "US": "UK"}
_OPERATOR = re.compile(r"(?<![^\s(,])(?:AND|OR|NOT|IT|US)(?![^\s),.?!])")
#: A parser without these would take "not gluten-free" for gluten.
_FREE = re.compile(rf"\b({any_of(WORDS['lacked'])}) free\b(?! of\b)", re.IGNORECASE)
_EQUALS = re.compile(r"(?<![!<>])=")  # it was read as a NOT
_NOT_FREE = re.compile(rf"(\b(?:{any_of(WORDS['not'])}|\w+nt)[ -][^\W\d_]+)-free\b", re.IGNORECASE)
_NEUTRAL = frozenset(phrases_of(WORDS["neutral"]))
#: A dash too, before a word.
_NEGATION = re.compile(
    rf"\b(?:{any_of(WORDS['not'] + ', ' + WORDS['excludes'])})\b|(?<!\w)[–−](?=\w)", re.IGNORECASE
)


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
    """Replace words in capitals, for tokenizers without, "free" and "=", by others of equal length.

    >>> mark_operators("dog and cat food AND toys NOT balls"), mark_operators("not smoke free")
    ('dog and cat food &&& toys !!! balls', 'not smokebased')
    """
    text = _EQUALS.sub(":", text)
    if any(sign.islower() for sign in text):
        text = _OPERATOR.sub(lambda match: _SIGNS[match[0]], text)
    return _NOT_FREE.sub(r"\1based", _FREE.sub(r"\1-free", text))


def decode(logits: ParserLogits, text: str, offsets: Sequence[Span], row: int) -> ParserOutput:
    """Turn the logits of one text, a row of a batch, into a parse.

    Tags are decided word by word, so that no operand begins inside a word. Where all operands are
    negated, the first is empty and positive. There is no parsed query where another has no words,
    or a negated one no word of its own: "beetles of Spain, but no beetles" is misparsed.
    """
    tags, roles, gaps = (np.asarray(part[row], np.float32) for part in logits)
    roles, gaps = _softmax(roles), _softmax(gaps)
    best = roles.argmax(-1)
    present = np.flatnonzero(best != ABSENT).tolist()
    gaps = gaps[present[:-1]]
    confidence = float(roles.max(-1).prod() * gaps.max(-1).prod())
    is_negated = tuple((best[present] == NEGATED).tolist())
    spans = _word_spans(tags, text, offsets, present)
    if not _may_negate(text, spans):
        is_negated = (False,) * len(spans)
    joints = tuple(GAPS[kind] for kind in gaps.argmax(-1))
    parsed = ParsedQuery(tuple(spans), is_negated, joints)
    if parsed.is_plain:
        reason = "it was read as one phrase" if find_cues(text) else ""
        return ParserOutput(parsed, confidence, reason)
    if not spans or not all(spans) or _negates_a_positive(parsed):
        return ParserOutput(None, 0.0, "an operand has no words of its own")
    if all(is_negated):
        parsed = ParsedQuery(((), *spans), (False, *is_negated), (Gap(Operator.AND), *joints))
    return ParserOutput(parsed, confidence)


def _may_negate(text: str, operands: Sequence[Spans]) -> bool:
    """Tell whether a word or a sign may negate: "with pool, pets" was read as "pets NOT pool"."""
    outside = list(text)
    for start, end in chain.from_iterable(operands):
        outside[start:end] = " " * (end - start)
    words = set(re.findall(r"[^\W_]+|[!\\≠]", "".join(outside).lower().rstrip("!")))
    return not words <= _NEUTRAL or _NEGATION.search(text) is not None


def _softmax(logits: Array) -> Array:
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shares / shares.sum(-1, keepdims=True), np.float32)


def _negates_a_positive(parsed: ParsedQuery) -> bool:
    owned = [{at for span in spans for at in range(*span)} for spans in parsed.operands]
    signed = list(zip(owned, parsed.is_negated, strict=True))
    inside = set().union(*(positions for positions, negated in signed if not negated))
    return any(positions <= inside for positions, negated in signed if negated)


def _word_spans(
    tags: Array, text: str, offsets: Sequence[Span], slots: Sequence[int]
) -> list[Spans]:
    """Return each slot's spans, adjacent words joined."""
    words: list[tuple[int, int, Array]] = []
    for values, (start, end) in zip(tags, offsets, strict=False):
        if start == end:
            continue
        if words and words[-1][1] == start and text[start - 1].isalnum() and text[start].isalnum():
            first, _, total = words.pop()
            words.append((first, end, np.maximum(total, values)))
        else:
            words.append((start, end, values))
    slot_spans = []
    for slot in slots:
        spans: list[Span] = []
        for start, end, values in words:
            if values[slot] > 0:  # a probability of more than one half
                is_next = spans and not text[spans[-1][1] : start].strip()
                spans.append((spans.pop()[0] if is_next else start, end))
        if spans and (cue := _LAST_CUE.search(text, *spans[-1])):
            spans[-1] = spans[-1][0], cue.start()
        slot_spans.append(tuple(spans))
    return slot_spans
