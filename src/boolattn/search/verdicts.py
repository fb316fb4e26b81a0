"""Which operand counts against a result, compared with the results above it.

All probabilities are composed ones: those that the score is made of, not those that are displayed.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from boolattn.logic.structure import in_words
from boolattn.logic.tree import And, Atom, Not, Or

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from boolattn.logic.tree import QueryTree

KEPT, DOUBTFUL, RANKED_LOWER = "kept", "doubtful", "put down"
#: A document belongs to an operand from this probability on.
BELONGS = 0.5
#: A result is doubtful where the probability that it lacks a negated operand is at most this part
#: of what the results above it have. One threshold for all would not do: among relevant documents
#: probabilities differ from query to query.
_DOUBTFUL_SHARE = 1 / 5
#: Smaller probabilities are equal; their ratio would be noise.
_LEAST = 1e-4


def probability(tree: QueryTree, operands: Iterable[Any]) -> Any:  # noqa: ANN401 - see operands
    """Return how probably a tree holds.

    Its operands' probabilities, left to right, are numbers, or arrays over documents.

    >>> probability(And((Atom("a"), Not(Or((Atom("b"), Atom("c")))))), [0.5, 0.0, 0.5])
    0.25
    """
    values = iter(operands)

    def walk(node: QueryTree) -> Any:  # noqa: ANN401 - as above
        match node:
            case Atom():
                return next(values)
            case Not(part):
                return 1 - walk(part)
            case And(parts):
                return math.prod([walk(part) for part in parts])
            case Or(parts):
                return 1 - math.prod([1 - walk(part) for part in parts])

    return walk(tree)


def judge(
    tree: QueryTree, own: Sequence[float], above: Sequence[Sequence[float]]
) -> tuple[str, str]:
    """Return the verdict on a result, and which negated operand counts against it.

    >>> tree = And((Atom("moths"), Not(Atom("Sumatra"))))
    >>> above = [[0.4, 0.1], [0.4, 0.2]]
    >>> _, why = judge(tree, [0.1, 0.9], above)
    >>> why
    "counts more as the negated operand 'Sumatra' (.90) than the results above it (.15)"
    >>> judge(tree, [0.1, 0.3], above)
    ('kept', '')
    """
    reasons = [
        one.text
        for one in _compare(tree, own, above)
        if isinstance(one.part, Not)
        and one.own <= 1 - BELONGS
        and one.own < _DOUBTFUL_SHARE * one.usual
    ]
    return (DOUBTFUL, "; ".join(reasons)) if above and reasons else (KEPT, "")


def explain_lower_rank(
    tree: QueryTree, own: Sequence[float], above: Sequence[Sequence[float]]
) -> str:
    """Say which part of a query counts most against a document that is not among the results.

    >>> tree = And((Atom("moths"), Atom("Borneo"), Not(Atom("Java"))))
    >>> explain_lower_rank(tree, [0.3, 0.02, 0.1], [[0.3, 0.4, 0.1], [0.2, 0.5, 0.1]])
    "counts less as 'Borneo' (.02) than the results above it (.45)"
    """
    found = _compare(tree, own, above)
    worst = min(found, key=lambda one: max(one.own, _LEAST) / max(one.usual, _LEAST))
    return worst.text if worst.own < worst.usual else ""


class _Comparison(NamedTuple):
    """A part of an AND: its probability, the median of others, both as text."""

    part: QueryTree
    own: float
    usual: float
    text: str


def _compare(
    tree: QueryTree, own: Sequence[float], above: Sequence[Sequence[float]]
) -> Iterator[_Comparison]:
    rows = [iter(values) for values in (own, *above)]
    for part in tree.parts if isinstance(tree, And) else (tree,):
        mine, *others = (probability(part, values) for values in rows)
        usual = median(others or [1.0])
        yield _Comparison(part, mine, usual, _text(part, mine, usual))


def _text(part: QueryTree, own: float, usual: float) -> str:
    name, word = f"{in_words(part)!r}", "less"
    if isinstance(part, Not):
        name, word = f"the negated operand {in_words(part.part)!r}", "more"
        own, usual = 1 - own, 1 - usual
    mine, theirs = (f"{value:.2f}".removeprefix("0") for value in (own, usual))
    if mine == theirs:
        mine, theirs = f"{own:.1g}", f"{usual:.1g}"
    if mine == theirs:
        return ""
    return f"counts {word} as {name} ({mine}) than the results above it ({theirs})"
