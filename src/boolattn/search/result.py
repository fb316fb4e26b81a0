"""What a search returns.

May import: boolattn.composition, boolattn.logic.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from boolattn.composition.scores import in_words
from boolattn.logic.tree import And, Atom, Not, Or

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from boolattn.logic.tree import QueryTree

KEPT, DOUBTFUL, PUT_DOWN = "kept", "doubtful", "put down"
#: What is excluded speaks against a result where its probability is over the first, and the chance
#: that it does not belong at most this part of what the results before it have. A probability alone
#: says little: among right documents it differs from query to query.
BELONGS, _PART = 0.5, 1 / 5
#: Below it a probability is nothing, and its logarithm would be all.
_LEAST = 1e-4


class Chances(NamedTuple):
    """How probably a document belongs to each operand: as it is composed, and as it is shown."""

    composed: Sequence[float]
    shown: Sequence[float] | None = None

    @property
    def seen(self) -> Sequence[float]:
        """What is shown: where nothing else is said, what is composed."""
        return self.composed if self.shown is None else self.shown


@dataclass(frozen=True)
class Hit:
    """One document that was found.

    Attributes:
        id: Of the document.
        title: Of the document.
        text: All of it.
        metadata: Of the document.
        score: Higher is better: the composed score where operands are scored apart, a similarity
            where not, a fused rank in hybrid search.
        probabilities: That the document belongs to each operand; empty where not composed. They
            order documents: compare them with those of other documents for the same operand.
        composed: The same as they were composed, what is excluded held against what is wanted:
            verdicts go by these.
        verdict: ``kept``; ``doubtful`` where it is much more like what is excluded than the
            results before it; ``put down`` where it is not among the results.
        why: What speaks against it, beside the results before it; empty where nothing does.
        branches: Its rank in each branch of a hybrid search, from 1.
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any]
    score: float
    probabilities: tuple[float, ...] = ()
    composed: tuple[float, ...] = ()
    verdict: str = KEPT
    why: str = ""
    branches: Mapping[str, int] = field(default_factory=dict)

    @property
    def chances(self) -> Chances:
        """Both kinds of probabilities."""
        return Chances(self.composed, self.probabilities)


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The answer to one query, and how the query was read.

    Attributes:
        query: As it was typed.
        tree: What was searched, in explicit syntax.
        operands: Left to right.
        excluded: Which operands stand under a NOT.
        spans: For each operand its characters in the query; empty where not known.
        confidence: Of the reading.
        is_composed: Whether operands were scored apart.
        reading: The tree that was read, also where it was not trusted.
        hits: Best first.
        put_down: When explained: what the query's one vector would have found among the first,
            and composing put down.
        warnings: What the caller should know.
        took: Milliseconds by step.
    """

    query: str
    tree: str
    operands: tuple[str, ...]
    excluded: tuple[bool, ...]
    spans: tuple[tuple[tuple[int, int], ...], ...]
    confidence: float
    is_composed: bool
    reading: str
    hits: tuple[Hit, ...]
    put_down: tuple[Hit, ...] = ()
    warnings: tuple[str, ...] = ()
    took: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def judge(tree: QueryTree, own: Chances, before: Sequence[Chances]) -> tuple[str, str]:
    """Say whether what is excluded speaks against a result, beside those before it.

    Args:
        tree: Of the query.
        own: That the document belongs to each operand.
        before: The same of the results that stand before it.

    >>> tree = And((Atom("moths"), Not(Atom("Sumatra"))))
    >>> judge(tree, Chances([0.1, 0.9]), [Chances([0.4, 0.1]), Chances([0.3, 0.2])])
    ('doubtful', "more like 'Sumatra' (.90) than those before it (.15), and that is excluded")
    >>> judge(tree, Chances([0.1, 0.8]), [Chances([0.4, 0.6]), Chances([0.3, 0.7])])
    ('kept', '')
    """
    said = [
        row.told
        for row in _rows(tree, own, before)
        if isinstance(row.part, Not) and row.own <= 1 - BELONGS and row.own < _PART * row.usual
    ]
    return (DOUBTFUL, "; ".join(said)) if before and said else (KEPT, "")


def against(tree: QueryTree, own: Chances, before: Sequence[Chances]) -> str:
    """Say what speaks most against a document that is not among the results.

    Args:
        tree: Of the query.
        own: That the document belongs to each operand.
        before: The same of the results.

    >>> tree = And((Atom("moths"), Atom("Borneo"), Not(Atom("Java"))))
    >>> before = [Chances([0.3, 0.4, 0.1]), Chances([0.2, 0.5, 0.1])]
    >>> against(tree, Chances([0.3, 0.02, 0.1]), before)
    "less like 'Borneo' (.02) than those before it (.45)"
    """
    rows = _rows(tree, own, before)
    worst = min(rows, key=lambda row: max(row.own, _LEAST) / max(row.usual, _LEAST))
    return worst.told if worst.own < worst.usual else ""


class _Row(NamedTuple):
    """What must hold, how probably it does as composed, the middle of others, and that in words."""

    part: QueryTree
    own: float
    usual: float
    told: str


def _rows(tree: QueryTree, own: Chances, before: Sequence[Chances]) -> list[_Row]:
    parts = tree.parts if isinstance(tree, And) else (tree,)
    composed = _beside(parts, own.composed, [one.composed for one in before])
    shown = _beside(parts, own.seen, [one.seen for one in before])
    return [
        _Row(part, *mine, _compared(part, *seen))
        for part, mine, seen in zip(parts, composed, shown, strict=True)
    ]


def _beside(
    parts: Sequence[QueryTree], own: Sequence[float], before: Sequence[Sequence[float]]
) -> list[tuple[float, float]]:
    """Return how probably each part holds, and the middle of what others have."""
    rows = [_chances(parts, row) for row in before] or [[1.0] * len(parts)]
    usual = [median(column) for column in zip(*rows, strict=True)]
    return list(zip(_chances(parts, own), usual, strict=True))


def _compared(part: QueryTree, own: float, usual: float) -> str:
    is_out = isinstance(part, Not)
    if isinstance(part, Not):
        part, own, usual = part.part, 1 - own, 1 - usual
    mine, theirs = _shown(own), _shown(usual)
    if mine == theirs:
        mine, theirs = f"{own:.1g}", f"{usual:.1g}"
    if mine == theirs:
        return ""
    told = f"{in_words(part)!r} ({mine}) than those before it ({theirs})"
    return f"more like {told}, and that is excluded" if is_out else f"less like {told}"


def _shown(p: float) -> str:
    return f"{p:.2f}".removeprefix("0")


def _chances(parts: Sequence[QueryTree], probabilities: Sequence[float]) -> list[float]:
    """Return how probably each of some parts holds."""
    values = iter(probabilities)
    return [_chance(part, values) for part in parts]


def _chance(tree: QueryTree, values: Iterator[float]) -> float:
    match tree:
        case Atom():
            return next(values)
        case Not(part):
            return 1 - _chance(part, values)
        case And(parts):
            return math.prod([_chance(part, values) for part in parts])
        case Or(parts):
            return 1 - math.prod([1 - _chance(part, values) for part in parts])


def holds(tree: QueryTree, truths: Sequence[bool]) -> bool:
    """Evaluate a tree.

    Args:
        tree: The tree.
        truths: One for each operand, left to right.
    """
    values = iter(truths)

    def walk(node: QueryTree) -> bool:
        match node:
            case Atom():
                return next(values)
            case Not(part):
                return not walk(part)
            case And(parts) | Or(parts):
                # All at once, because every operand must take its value from the row.
                found = [walk(part) for part in parts]
                return all(found) if isinstance(node, And) else any(found)

    return walk(tree)
