"""Queries with their reading marked: the words of each operand, and how the operands are joined.

A reading is a small form that covers QUEST's seven structures and more: some operands are kept,
joined by AND or by OR, and every other operand is excluded. Words that several operands share
belong to each, so "moths of Borneo or Java that fly by day" is an OR of two whole operands.
May import: boolattn.data, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.logic.operators import Operator
from boolattn.logic.templates import template_tree
from boolattn.logic.tree import And, Atom, Not, Or

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.logic.tree import QueryTree

Span = tuple[int, int]
Spans = tuple[Span, ...]

#: Words marked with the operands they belong to: "<01|moths> <0|of Borneo> or <1|of Java>".
MARK = re.compile(r"<(\d+)\|([^<>|]+)>")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """How a query is to be read.

    Attributes:
        kept: The spans of each operand that is wanted, in the order of the text.
        excluded: The spans of each operand that is not.
        joiner: AND or OR, between the kept operands; AND where there is only one.
    """

    positive: tuple[Spans, ...]
    negated: tuple[Spans, ...] = ()
    joiner: Operator = Operator.AND

    @property
    def is_plain(self) -> bool:
        """Whether the query is one operand, so that nothing is to be composed."""
        return len(self.positive) == 1 and not self.negated

    @property
    def form(self) -> tuple[int, int, str]:
        """What is right or wrong about a structure: how many kept, how many not, and the joiner."""
        return len(self.positive), len(self.negated), self.joiner.value

    def tree(self, text: str) -> QueryTree:
        """Return the tree of the operands, each with its own words of a text.

        >>> text = "moths of Borneo but not Sumatra"
        >>> ParsedQuery((((0, 15),),), (((0, 8), (24, 31)),)).tree(text)
        And(parts=(Atom(text='moths of Borneo'), Not(part=Atom(text='moths of Sumatra'))))
        """
        kept = tuple(Atom(words(text, spans)) for spans in self.positive)
        drop = tuple(Not(Atom(words(text, spans))) for spans in self.negated)
        if len(kept) == 1:
            return And((*kept, *drop)) if drop else kept[0]
        if self.joiner is Operator.OR:
            return And((Or(kept), *drop)) if drop else Or(kept)
        return And((*kept, *drop))


def words(text: str, spans: Sequence[Span]) -> str:
    """Return the words of some spans, one space between them.

    >>> words("moths of Borneo but not Sumatra", [(0, 8), (24, 31)])
    'moths of Sumatra'
    """
    return " ".join(part for start, end in spans if (part := text[start:end].strip(" ,;:.?!")))


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A text and its reading."""

    text: str
    parsed: ParsedQuery


def label_template(text: str, template: str, operands: Sequence[Spans]) -> LabelledQuery | None:
    """Mark a text that was made after one of QUEST's templates.

    Args:
        text: The query.
        template: Its structure.
        operands: The spans of each operand, in the template's order.

    Returns:
        ``None`` where an operand's words are not known.
    """
    if not template or not all(operands):
        return None
    tree = template_tree(template, [str(place) for place in range(len(operands))])
    parts = tree.parts if isinstance(tree, And | Or) else (tree,)
    kept = [operands[int(part.text)] for part in parts if isinstance(part, Atom)]
    drop = [
        operands[int(part.part.text)]
        for part in parts
        if isinstance(part, Not) and isinstance(part.part, Atom)
    ]
    joiner = Operator.OR if isinstance(tree, Or) else Operator.AND
    return LabelledQuery(
        text, ParsedQuery(in_text_order(kept, operands), in_text_order(drop, operands), joiner)
    )


def in_text_order(chosen: Sequence[Spans], operands: Sequence[Spans]) -> tuple[Spans, ...]:
    """Sort operands by where the first word stands that is theirs alone."""
    owners: dict[int, int] = {}
    for spans in operands:
        for start, end in spans:
            for place in range(start, end):
                owners[place] = owners.get(place, 0) + 1

    def key(spans: Spans) -> tuple[int, int]:
        own = [p for start, end in spans for p in range(start, end) if owners[p] == 1]
        return (own[0] if own else spans[0][0]), spans[0][0]

    return tuple(sorted(chosen, key=key))


def parse_labelled(marked: str) -> tuple[str, list[Spans]]:
    """Take the marks out of a text, and return it with the spans of each operand.

    >>> parse_labelled("<01|moths> <0|of Borneo> or <1|of Java>")
    ('moths of Borneo or of Java', [((0, 5), (6, 15)), ((0, 5), (19, 26))])
    """
    text, after = "", 0
    owned: dict[int, list[Span]] = {}
    for match in MARK.finditer(marked):
        text += marked[after : match.start()]
        span = (len(text), len(text) + len(match[2]))
        for digit in match[1]:
            owned.setdefault(int(digit), []).append(span)
        text += match[2]
        after = match.end()
    count = max(owned, default=-1) + 1
    return text + marked[after:], [tuple(owned.get(place, ())) for place in range(count)]
