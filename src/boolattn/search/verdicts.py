"""Which operand counts against a result, compared with the results above it."""

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


class Probabilities(NamedTuple):
    """How probably a document belongs to each operand: as composed, and as displayed."""

    composed: Sequence[float]
    displayed: Sequence[float]


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


def judge(tree: QueryTree, own: Probabilities, above: Sequence[Probabilities]) -> tuple[str, str]:
    """Return the verdict on a result, and which negated operand counts against it.

    The negation margin raises a negated operand's composed probability where the positive operands
    do not match. That alone is no reason: the displayed probability must be higher, too.

    >>> tree = And((Atom("moths"), Not(Atom("Sumatra"))))
    >>> above = [Probabilities([0.4, p], [0.4, p]) for p in (0.1, 0.2)]
    >>> judge(tree, Probabilities([0.1, 0.9], [0.1, 0.9]), above)
    ('doubtful', "matches the negated operand 'Sumatra' more (.90) than the results above it (.15)")
    >>> judge(tree, Probabilities([0.1, 0.3], [0.1, 0.3]), above)
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


def explain_lower_rank(tree: QueryTree, own: Probabilities, above: Sequence[Probabilities]) -> str:
    """Say which part of a query counts most against a document that is not among the results.

    As in :func:`judge`, only a part that the displayed probabilities say the same of.

    >>> tree = And((Atom("moths"), Atom("Borneo"), Not(Atom("Java"))))
    >>> above = [Probabilities(p, p) for p in ([0.3, 0.4, 0.1], [0.2, 0.5, 0.1])]
    >>> explain_lower_rank(tree, Probabilities([0.3, 0.02, 0.1], [0.3, 0.02, 0.1]), above)
    "matches 'Borneo' less (.02) than the results above it (.45)"
    """
    found = [one for one in _compare(tree, own, above) if one.own < one.usual]
    ratios = [max(one.own, _LEAST) / max(one.usual, _LEAST) for one in found]
    return found[ratios.index(min(ratios))].text if found else ""


class _Comparison(NamedTuple):
    """A part of an AND that is displayed as less probable than in others.

    Its composed probability, the median of others, and both as displayed, in words.
    """

    part: QueryTree
    own: float
    usual: float
    text: str


def _compare(
    tree: QueryTree, own: Probabilities, above: Sequence[Probabilities]
) -> Iterator[_Comparison]:
    composed, displayed = ([iter(p) for p in one] for one in zip(own, *above, strict=True))
    for part in tree.parts if isinstance(tree, And) else (tree,):
        shown, usually_shown = _with_median(part, displayed)
        own_value, usual = _with_median(part, composed)
        if shown < usually_shown and (text := _text(part, shown, usually_shown)):
            yield _Comparison(part, own_value, usual, text)


def _with_median(part: QueryTree, rows: Sequence[Iterator[float]]) -> tuple[float, float]:
    """Return the probability of a part in the first row, and the median of the others."""
    own, *others = (probability(part, values) for values in rows)
    return own, median(others or [1.0])


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
    return f"matches {name} {word} ({mine}) than the results above it ({theirs})"
