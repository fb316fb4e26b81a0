"""Parsed queries: the words of each operand, and how the operands are joined.

The form covers QUEST's seven templates and more: positive operands joined by AND or by OR, and
negated operands. Shared words belong to each of their operands: "moths of Borneo or Java that fly
by day" is an OR of two full operands.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.logic.operators import Operator
from boolattn.logic.templates import template_tree
from boolattn.logic.tree import And, Atom, Not, Or, operators_of, signed_atoms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.logic.tree import QueryTree

Span = tuple[int, int]
Spans = tuple[Span, ...]

#: Words labelled with their operands: "<01|moths> <0|of Borneo> or <1|of Java>".
LABEL = re.compile(r"<(\d+)\|([^<>|]+)>")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The parse of a query."""

    positive: tuple[Spans, ...]  # the spans of each positive operand, in text order
    negated: tuple[Spans, ...] = ()  # the spans of each negated operand
    joiner: Operator = Operator.AND  # AND or OR of the positive operands; AND for only one

    @property
    def is_plain(self) -> bool:
        """Whether the query is one operand, without operators."""
        return len(self.positive) == 1 and not self.negated

    @property
    def form(self) -> tuple[int, int, str]:
        """The structure: numbers of positive and negated operands, and the joiner."""
        return len(self.positive), len(self.negated), self.joiner.value

    def tree(self, text: str) -> QueryTree:
        """Return the tree of the operands, with their words in a text.

        >>> text = "moths of Borneo but not Sumatra"
        >>> ParsedQuery((((0, 15),),), (((0, 8), (24, 31)),)).tree(text)
        And(parts=(Atom(text='moths of Borneo'), Not(part=Atom(text='moths of Sumatra'))))
        """
        positive: tuple[QueryTree, ...]
        positive = tuple(Atom(words(text, spans)) for spans in self.positive)
        negated = tuple(Not(Atom(words(text, spans))) for spans in self.negated)
        if self.joiner is Operator.OR and len(positive) > 1:
            positive = (Or(positive),)
        return And((*positive, *negated)) if len(positive) + len(negated) > 1 else positive[0]


def words(text: str, spans: Sequence[Span]) -> str:
    """Return the words of spans, separated by one space.

    >>> words("moths of Borneo but not Sumatra", [(0, 8), (24, 31)])
    'moths of Sumatra'
    """
    return " ".join(part for start, end in spans if (part := text[start:end].strip(" ,;:.?!")))


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A text and its parse."""

    text: str
    parsed: ParsedQuery


def label_template(text: str, template: str, operands: Sequence[Spans]) -> LabelledQuery | None:
    """Label a text of one of QUEST's templates; ``None`` where an operand's spans are unknown.

    ``operands`` has the spans of each operand, in the template's order.
    """
    if not template or not all(operands):
        return None
    tree = template_tree(template, [str(index) for index in range(len(operands))])
    signed = [(operands[int(atom.text)], sign) for atom, sign in signed_atoms(tree)]
    positive, negated = (
        in_text_order([spans for spans, own in signed if own == sign], operands) for sign in (1, -1)
    )
    joiner = Operator.OR if Operator.OR in operators_of(tree) else Operator.AND
    return LabelledQuery(text, ParsedQuery(positive, negated, joiner))


def in_text_order(chosen: Sequence[Spans], operands: Sequence[Spans]) -> tuple[Spans, ...]:
    """Sort operands by the position of the first word that no other operand has."""
    owners = Counter(place for spans in operands for span in spans for place in range(*span))

    def key(spans: Spans) -> tuple[int, int]:
        own = [p for start, end in spans for p in range(start, end) if owners[p] == 1]
        return (own[0] if own else spans[0][0]), spans[0][0]

    return tuple(sorted(chosen, key=key))


def parse_labelled(markup: str) -> tuple[str, list[Spans]]:
    """Return a labelled text without its labels, and the spans of each operand.

    >>> parse_labelled("<01|moths> <0|of Borneo> or <1|of Java>")
    ('moths of Borneo or of Java', [((0, 5), (6, 15)), ((0, 5), (19, 26))])
    """
    text, after = "", 0
    owned: dict[int, list[Span]] = {}
    for match in LABEL.finditer(markup):
        text += markup[after : match.start()]
        span = (len(text), len(text) + len(match[2]))
        for digit in match[1]:
            owned.setdefault(int(digit), []).append(span)
        text += match[2]
        after = match.end()
    count = max(owned, default=-1) + 1
    return text + markup[after:], [tuple(owned.get(place, ())) for place in range(count)]
