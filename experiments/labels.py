"""Labels of queries for training a parser: trees over spans, and markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from boolattn.data.sentences import LabelledQuery
from boolattn.jsonl import write_jsonl
from boolattn.query.parsed_query import MAX_LEVEL, Gap, ParsedQuery, Span, Spans
from boolattn.query.syntax import template_tree
from boolattn.query.tree import And, Atom, Not, Operator, Or, QueryTree, join_all

#: Words labelled with their operands: "<01|moths> <0|of Borneo> or <1|of Java>".
LABEL = re.compile(r"<(\d+)\|([^<>|]+)>")


def write_labelled_queries(path: Path, rows: Iterable[tuple[str, LabelledQuery]]) -> int:
    """Write labelled queries, each with the name of its source; return how many."""
    lines = (
        {
            "text": query.text,
            "operands": query.parsed.operands,
            "negated": [at for at, is_not in enumerate(query.parsed.is_negated) if is_not],
            "gaps": [f"{gap.operator.value}{gap.level}" for gap in query.parsed.gaps],
            "source": source,
        }
        for source, query in rows
    )
    return write_jsonl(path, lines)


def label_tree(text: str, tree: QueryTree, operands: Sequence[Spans]) -> LabelledQuery | None:
    """Label a text by a tree whose operands are numbers of span lists.

    ``None`` where spans are empty or equal, where the tree is deeper than three levels, or where
    another operand stands between those that a node joins.

    >>> tree = And((Atom("0"), Not(Or((Atom("1"), Atom("2"))))))
    >>> label_tree("a not b or c", tree, [((0, 1),), ((6, 7),), ((11, 12),)]).parsed.structure
    '_ NOT _ NOT _'
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
    return join_all([_normal(part, negated=negated) for part in node.parts], kind)


def form_tree(n_positive: int, n_negated: int, joiner: Operator = Operator.AND) -> QueryTree:
    """Return the tree of numbered operands, the positive ones first and joined by one operator.

    >>> form_tree(2, 1, Operator.OR)
    And(parts=(Or(parts=(Atom(text='0'), Atom(text='1'))), Not(part=Atom(text='2'))))
    """
    numbers = [Atom(str(number)) for number in range(n_positive + n_negated)]
    positive = join_all(numbers[:n_positive], Or if joiner is Operator.OR else And)
    return join_all([positive, *map(Not, numbers[n_positive:])])


def label_template(text: str, template: str, operands: Sequence[Spans]) -> LabelledQuery | None:
    """Label a text of one of QUEST's templates; ``None`` where an operand's spans are unknown."""
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
