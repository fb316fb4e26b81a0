"""Parsed queries: the words of each operand, and the tree that joins the operands.

Operands stand in the order of the text. Between two neighbours stands a gap: the operator that
joins them and its level, 1 at the root of the tree. Shared words belong to each of their
operands: "moths of Borneo or Java that fly by day" is an OR of two full operands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from boolattn.query.syntax import unparse
from boolattn.query.tree import Atom, Not, Operator, QueryTree, join_all, join_any, operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Span = tuple[int, int]
Spans = tuple[Span, ...]

#: A word that joins operands and belongs to none.
_LAST_CUE = re.compile(r"(?<=\w)\s+(?:and|n?or|but)$", re.IGNORECASE)
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
        return self._tree([operand(words(text, s) or "everything") for s in self.operands])

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
    join = join_any if gaps[cuts[0]].operator is Operator.OR else join_all
    ends = [0, *(at + 1 for at in cuts), len(nodes)]
    return join([_joined(nodes[a:b], gaps[a : b - 1]) for a, b in pairwise(ends)])


def words(text: str, spans: Sequence[Span]) -> str:
    """Return the words of spans, separated by one space.

    >>> words("moths of Borneo but not Sumatra", [(0, 8), (24, 31)])
    'moths of Sumatra'
    """
    pieces = (" ".join(text[start:end].split()).strip(" ,;:.?!") for start, end in spans)
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
