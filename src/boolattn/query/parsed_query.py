"""Parsed queries: the words of each operand, and the tree that joins the operands.

Operands stand in the order of the text. Between two neighbours stands a gap: the operator that
joins them and its level, 1 at the root of the tree. Shared words belong to each of their
operands: "moths of Borneo or Java that fly by day" is an OR of two full operands.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from boolattn.query.structure import structure, template_tree
from boolattn.query.tree import And, Atom, Not, Operator, Or, QueryTree, operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Span = tuple[int, int]
Spans = tuple[Span, ...]

#: Words labelled with their operands: "<01|moths> <0|of Borneo> or <1|of Java>".
LABEL = re.compile(r"<(\d+)\|([^<>|]+)>")
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
    """The parse of a query.

    Attributes:
        operands: The spans of each operand, in text order.
        is_negated: Which operands are negated.
        gaps: One fewer than operands.
    """

    operands: tuple[Spans, ...]
    is_negated: tuple[bool, ...] = (False,)
    gaps: tuple[Gap, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the query is one operand, without operators."""
        return self.is_negated == (False,)

    @property
    def structure(self) -> str:
        """The tree without its operands.

        >>> ParsedQuery((((0, 1),), ((4, 5),)), (False, True), (Gap(Operator.AND),)).structure
        'and(_,not(_))'
        """
        return structure(self._tree([Atom("")] * len(self.operands)))

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
    kind = Or if gaps[cuts[0]].operator is Operator.OR else And
    starts, ends = [0, *(at + 1 for at in cuts)], [*(at + 1 for at in cuts), len(nodes)]
    children: list[QueryTree] = []
    for start, end in zip(starts, ends, strict=True):
        child = _joined(nodes[start:end], gaps[start : end - 1])
        children += child.parts if isinstance(child, kind) else [child]
    return kind(tuple(children))


def words(text: str, spans: Sequence[Span]) -> str:
    """Return the words of spans, separated by one space.

    >>> words("moths of Borneo but not Sumatra", [(0, 8), (24, 31)])
    'moths of Sumatra'
    """
    pieces = (" ".join(text[start:end].split()).strip(" ,;:.?!") for start, end in spans)
    return _LAST_CUE.sub("", " ".join(filter(None, pieces)))


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A text and its parse."""

    text: str
    parsed: ParsedQuery


def label_tree(text: str, tree: QueryTree, operands: Sequence[Spans]) -> LabelledQuery | None:
    """Label a text by a tree whose operands are numbers of span lists.

    ``None`` where spans are empty or equal, where the tree is deeper than three levels, or where
    another operand stands between those that a node joins.

    >>> tree = And((Atom("0"), Not(Or((Atom("1"), Atom("2"))))))
    >>> label_tree("a not b or c", tree, [((0, 1),), ((6, 7),), ((11, 12),)]).parsed.structure
    'and(_,not(_),not(_))'
    """
    if not all(operands) or len(set(operands)) < len(operands):
        return None
    ordered = in_text_order(operands)
    positions = {spans: at for at, spans in enumerate(ordered)}
    is_negated = [False] * len(operands)
    gaps: dict[int, Gap] = {}

    def walk(node: QueryTree, level: int, *, negated: bool = False) -> list[int]:
        """Fill the gaps below a node; return the places of its operands."""
        match node:
            case Atom(name):
                is_negated[at := positions[operands[int(name)]]] = negated
                return [at]
            case Not(part):
                return walk(part, level, negated=True)
        operator = Operator.OR if isinstance(node, Or) else Operator.AND
        owned = sorted(sorted(walk(part, level + 1)) for part in node.parts)
        gaps.update((group[-1], Gap(operator, level)) for group in owned[:-1])
        return [at for group in owned for at in group]

    order = walk(_normal(tree), 1)
    is_deep = any(gap.level > MAX_LEVEL for gap in gaps.values())
    joined = tuple(gap for _, gap in sorted(gaps.items()))
    parsed = ParsedQuery(ordered, tuple(is_negated), joined)
    # Nodes whose operands are not neighbours come back in another order, or as another tree.
    if is_deep or order != sorted(order) or len(joined) != len(ordered) - 1:
        return None
    return LabelledQuery(text, parsed)


def _normal(node: QueryTree, *, negated: bool = False) -> QueryTree:
    """Move NOT to the operands, and merge nodes of one kind: not (a and b) is not a or not b."""
    match node:
        case Atom():
            return Not(node) if negated else node
        case Not(part):
            return _normal(part, negated=not negated)
    kind = And if isinstance(node, And) != negated else Or
    children: list[QueryTree] = []
    for part in node.parts:
        child = _normal(part, negated=negated)
        children += child.parts if isinstance(child, kind) else [child]
    return kind(tuple(children))


def form_tree(n_positive: int, n_negated: int, joiner: Operator = Operator.AND) -> QueryTree:
    """Return the tree of numbered operands, the positive ones first and joined by one operator.

    >>> form_tree(2, 1, Operator.OR)
    And(parts=(Or(parts=(Atom(text='0'), Atom(text='1'))), Not(part=Atom(text='2'))))
    """
    numbers = [Atom(str(number)) for number in range(n_positive + n_negated)]
    positive: list[QueryTree] = [*numbers[:n_positive]]
    if joiner is Operator.OR and n_positive > 1:
        positive = [Or(tuple(positive))]
    nodes = (*positive, *map(Not, numbers[n_positive:]))
    return And(nodes) if len(nodes) > 1 else nodes[0]


def label_template(text: str, template: str, operands: Sequence[Spans]) -> LabelledQuery | None:
    """Label a text of one of QUEST's templates; ``None`` where an operand's spans are unknown.

    ``operands`` has the spans of each operand, in the template's order.
    """
    if not template or not all(operands):
        return None
    names = [str(number) for number in range(len(operands))]
    return label_tree(text, template_tree(template, names), operands)


def in_text_order(operands: Sequence[Spans]) -> tuple[Spans, ...]:
    """Sort operands by the position of the first word that no other operand has."""
    owners = Counter(position for spans in operands for span in spans for position in range(*span))

    def key(spans: Spans) -> tuple[int, int]:
        unshared = [p for start, end in spans for p in range(start, end) if owners[p] == 1]
        return (unshared[0] if unshared else spans[0][0]), spans[0][0]

    return tuple(sorted(operands, key=key))


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
    return text + markup[after:], [tuple(owned.get(number, ())) for number in range(count)]


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
