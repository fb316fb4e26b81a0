"""What a search returns.

May import: boolattn.composition, boolattn.logic.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from boolattn.composition.scores import signs
from boolattn.logic.tree import And, Atom, Not, Or, atoms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.logic.tree import Query

KEPT, PUT_DOWN = "kept", "put down"


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
        probabilities: That the document belongs to each operand; empty where not composed.
        verdict: ``kept`` where the operands' probabilities satisfy the query, else ``put down``.
        why: The operands that speak against it.
        branches: Its rank in each branch of a hybrid search, from 1.
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any]
    score: float
    probabilities: tuple[float, ...] = ()
    verdict: str = KEPT
    why: str = ""
    branches: Mapping[str, int] = field(default_factory=dict)


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


def judge(tree: Query, probabilities: Sequence[float]) -> tuple[str, str]:
    """Say whether a document satisfies a query, and what speaks against it.

    >>> judge(And((Atom("moths"), Not(Atom("Sumatra")))), [0.9, 0.8])
    ('put down', "belongs to 'Sumatra' (.80), which is excluded")
    """
    verdict = KEPT if holds(tree, [p >= 0.5 for p in probabilities]) else PUT_DOWN
    reasons = []
    for atom, sign, p in zip(atoms(tree), signs(tree), probabilities, strict=True):
        is_out = sign < 0
        if is_out == (p >= 0.5):
            shown = f"{p:.2f}".removeprefix("0")
            reasons.append(
                f"belongs to {atom.text!r} ({shown}), which is excluded"
                if is_out
                else f"hardly belongs to {atom.text!r} ({shown})"
            )
    return verdict, "; ".join(reasons)


def holds(tree: Query, truths: Sequence[bool]) -> bool:
    """Evaluate a tree.

    Args:
        tree: The tree.
        truths: One for each operand, left to right.
    """
    values = iter(truths)

    def walk(node: Query) -> bool:
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
