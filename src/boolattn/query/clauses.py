"""A query tree as alternatives: each all of some operands, and none of others."""

from __future__ import annotations

from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from boolattn.query.tree import And, Atom, Everything, Not, Or, QueryTree, Where

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: A tree of more alternatives, and more than it has operands, is not composed.
MAX_CLAUSES = 16


class Clause(NamedTuple):
    """Places of the operands that a document must match, and of those that it must not."""

    positive: tuple[int, ...]
    negated: tuple[int, ...]
    conditions: tuple[tuple[int, bool], ...] = ()  # places, and whether each must hold


def clauses(tree: QueryTree) -> tuple[Clause, ...]:
    """Return the alternatives of a tree (its disjunctive normal form); operands left to right.

    >>> tree = And((Atom("moths"), Or((Atom("Borneo"), Atom("Java"))), Not(Atom("large"))))
    >>> [(clause.positive, clause.negated) for clause in clauses(tree)]
    [((0, 1), (3,)), ((0, 2), (3,))]
    """
    alternatives = (
        Clause(*map(_sorted, clause)) for clause in _walk(tree, count(), is_negated=False)
    )
    return tuple(dict.fromkeys(alternatives))


def n_clauses(tree: QueryTree, *, is_negated: bool = False) -> int:
    """Count the alternatives, some of which may be equal, without making them."""
    match tree:
        case Atom():
            return 1
        case Not(part):
            return n_clauses(part, is_negated=not is_negated)
        case And(parts) | Or(parts):
            counts = [n_clauses(part, is_negated=is_negated) for part in parts]
            return prod(counts) if isinstance(tree, And) != is_negated else sum(counts)


def conjunctions(alternatives: Sequence[Clause]) -> tuple[tuple[int, ...], ...]:
    """Return the operands of each clause of several positive ones, which has a vector of its own.

    >>> conjunctions([Clause((0, 1), ()), Clause((2,), ()), Clause((0, 1), (3,))])
    ((0, 1),)
    """
    several = (clause.positive for clause in alternatives if len(clause.positive) > 1)
    return tuple(dict.fromkeys(several))


def _walk(node: QueryTree, places: Iterator[int], *, is_negated: bool) -> list[Clause]:
    match node:
        case Where():
            return [Clause((), (), ((next(places), not is_negated),))]
        case Everything() if not is_negated:
            next(places)
            return [Clause((), ())]
        case Atom():
            position = (next(places),)
            return [Clause((), position) if is_negated else Clause(position, ())]
        case Not(part):
            return _walk(part, places, is_negated=not is_negated)
        case And(parts) | Or(parts):
            lists = [_walk(part, places, is_negated=is_negated) for part in parts]
    # De Morgan: not (a or b) is (not a) and (not b).
    if isinstance(node, And) == is_negated:
        return [clause for alternatives in lists for clause in alternatives]
    joined = [Clause((), ())]
    for alternatives in lists:
        pairs = ((a, b) for a in joined for b in alternatives)
        joined = [
            Clause(a.positive + b.positive, a.negated + b.negated, a.conditions + b.conditions)
            for a, b in pairs
        ]
    return joined


def _sorted(places: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(set(places)))
