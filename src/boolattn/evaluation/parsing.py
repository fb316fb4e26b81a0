"""Comparison of parsed queries: the trees, and the words of their operands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from boolattn.query.tree import And, Atom, Not, QueryTree, signed_atoms

MEASURES = ("structure", "operands", "word_f1", "left_alone")  # of :func:`accuracy`


def structure(tree: QueryTree) -> str:
    """Return a tree without its operands, in an order of its own.

    >>> structure(And((Not(Atom("c")), Atom("a"), Atom("b"))))
    'and(_,_,not(_))'
    """
    match tree:
        case Atom():
            return "_"
        case Not(part):
            return f"not({structure(part)})"
    inner = ",".join(sorted(map(structure, tree.parts)))
    return f"{'and' if isinstance(tree, And) else 'or'}({inner})"


def word_f1(expected: QueryTree, parsed: QueryTree) -> float:
    """Return the F1 score of the words of the operands.

    Positive operands are matched with positive, negated with negated ones, greedily by overlap.

    >>> from boolattn.query.tree import Or
    >>> word_f1(Or((Atom("red moths"), Atom("ants"))), Or((Atom("moths"), Atom("red ants"))))
    0.6666666666666666
    """
    first, second = ([(s, Counter(w)) for s, w in _operands(tree)] for tree in (expected, parsed))
    pairs = [
        ((a & b).total() / max(1, (a | b).total()), (a & b).total(), i, j)
        for i, (sign, a) in enumerate(first)
        for j, (other, b) in enumerate(second)
        if sign == other
    ]
    shared, matched_first, matched_second = 0, set(), set()
    for _, n, i, j in sorted(pairs, reverse=True):
        if i not in matched_first and j not in matched_second:
            matched_first.add(i)
            matched_second.add(j)
            shared += n
    return 2 * shared / max(1, sum(words.total() for _, words in (*first, *second)))


def accuracy(pairs: Iterable[tuple[QueryTree, QueryTree]]) -> dict[str, float]:
    """Compare parses with what is expected; return shares of queries.

    ``structure``, the right tree; ``operands``, the right words too, for queries with operators,
    and ``word_f1``, the mean F1 of their operands' words; ``left_alone``, plain queries that are
    parsed as one operand, whose words do not matter.
    """
    rows: dict[str, list[float]] = {name: [] for name in MEASURES}
    for expected, parsed in pairs:
        is_same = structure(parsed) == structure(expected)
        rows["structure"].append(is_same)
        if isinstance(expected, Atom):
            rows["left_alone"].append(isinstance(parsed, Atom))
        else:
            rows["operands"].append(is_same and _operands(expected) == _operands(parsed))
            rows["word_f1"].append(word_f1(expected, parsed))
    means = {name: sum(values) / len(values) for name, values in rows.items() if values}
    return {"n": float(len(rows["structure"])), **means}


def _operands(tree: QueryTree) -> list[tuple[int, list[str]]]:
    """Return sign and words of each operand, sorted; punctuation does not count."""
    pairs = ((sign, atom.text.lower()) for atom, sign in signed_atoms(tree))
    return sorted((sign, re.findall(r"\w+", text)) for sign, text in pairs)
