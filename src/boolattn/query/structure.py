"""Facts about a query tree: its alternatives, its words, whether it can be satisfied; templates."""

from __future__ import annotations

import math
from itertools import count, product
from typing import TYPE_CHECKING, Any, NamedTuple

from boolattn.errors import QueryError
from boolattn.query.tree import (
    And,
    Atom,
    Everything,
    Like,
    Not,
    Operator,
    Or,
    QueryTree,
    Where,
    operators_of,
    signed_atoms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


#: A tree of more alternatives, and more than it has operands, is not composed.
MAX_CLAUSES = 16
#: A tree with more distinct operands is not checked for contradictions: 2^n cases.
_MAX_CHECKED = 12
#: Template name -> (number of operands, tree of the operands).
TEMPLATES: Mapping[str, tuple[int, Callable[[Sequence[QueryTree]], QueryTree]]] = {
    "_": (1, lambda part: part[0]),
    "_ or _": (2, lambda part: Or(tuple(part))),
    "_ or _ or _": (3, lambda part: Or(tuple(part))),
    "_ that are also _": (2, lambda part: And(tuple(part))),
    "_ that are also both _ and _": (3, lambda part: And(tuple(part))),
    "_ that are not _": (2, lambda part: And((part[0], Not(part[1])))),
    "_ that are also _ but not _": (3, lambda part: And((part[0], part[1], Not(part[2])))),
}

#: Longer templates, in the same form; QUEST has none of them.
LONGER: Mapping[str, tuple[int, Callable[[Sequence[QueryTree]], QueryTree]]] = {
    "_ or _ or _ or _": (4, lambda part: Or(tuple(part))),
    "_ or _ or _ or _ or _": (5, lambda part: Or(tuple(part))),
    "_ that are also _ and _ and _": (4, lambda part: And(tuple(part))),
    "_ or _ but not _": (3, lambda part: And((Or(tuple(part[:2])), Not(part[2])))),
    "_ but neither _ nor _": (3, lambda part: And((part[0], Not(part[1]), Not(part[2])))),
}


def operand_signs(tree: QueryTree) -> Iterator[int]:
    """Yield 1 for each positive operand and -1 for each negated one, left to right.

    >>> list(operand_signs(And((Atom("a"), Not(Or((Atom("b"), Atom("c"))))))))
    [1, -1, -1]
    """
    return (sign for _, sign in signed_atoms(tree))


def in_words(tree: QueryTree) -> str:
    """Write a tree in plain language; operands without words are left out.

    >>> in_words(And((Atom("moths"), Or((Atom("Borneo"), Atom("Java"))), Not(Atom("Sumatra")))))
    'moths and Borneo or Java but not Sumatra'
    """
    match tree:
        case Atom():
            return tree.words
        case Not(part):
            return f"not {inner}" if (inner := in_words(part)) else ""
        case Or(parts):
            return " or ".join(filter(None, map(in_words, parts)))
        case And(parts):
            signed = [(isinstance(part, Not), text) for part in parts if (text := in_words(part))]
            positive = " and ".join(text for is_negated, text in signed if not is_negated)
            negated = " and ".join(text for is_negated, text in signed if is_negated)
            return f"{positive} but {negated}" if positive and negated else positive or negated


def truth(tree: QueryTree, operands: Iterable[Any]) -> Any:  # noqa: ANN401 - see operands
    """Return whether a tree holds, as 1 or 0.

    The truths of its operands, left to right, are numbers, or arrays over documents.

    >>> truth(And((Atom("a"), Not(Or((Atom("b"), Atom("c")))))), [1, 0, 0])
    1
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


def is_contradiction(tree: QueryTree) -> bool:
    """Return whether no document can satisfy a tree, as in "A AND NOT A"."""
    signed = [(_key(atom), sign) for atom, sign in signed_atoms(tree)]
    names = [name for name, _ in signed]
    if not set(names) & {name for name, sign in signed if sign < 0}:
        return False
    different = sorted(set(names))
    if len(different) == len(names) or len(different) > _MAX_CHECKED:
        return False
    for values in product((1.0, 0.0), repeat=len(different)):
        known = dict(zip(different, values, strict=True))
        if truth(tree, [known[name] for name in names]):
            return False
    return True


def _key(atom: Atom) -> str:
    """Return what is the same for equal operands; ids keep their case."""
    return atom.name if isinstance(atom, Like) else atom.name.casefold()


def template_tree(template: str, operands: Sequence[str]) -> QueryTree:
    """Return the tree of a template with operands.

    >>> template_tree("_ that are not _", ["moths", "moths of Sumatra"])
    And(parts=(Atom(text='moths'), Not(part=Atom(text='moths of Sumatra'))))
    """
    known = {**TEMPLATES, **LONGER}
    if template not in known:
        raise QueryError(f"unknown template {template!r}; known: {', '.join(known)}")
    n_operands, build = known[template]
    if len(operands) != n_operands:
        raise QueryError(f"template {template!r} takes {n_operands} operands, got {len(operands)}")
    return build([Atom(text) for text in operands])


def template_operators(template: str) -> tuple[Operator, ...]:
    """Return the operators of a template, as the paper's oracle labels have them.

    >>> [op.value for op in template_operators("_ that are also _ but not _")]
    ['and', 'not']
    """
    return operators_of(template_tree(template, ["_"] * template.count("_")))


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
            return math.prod(counts) if isinstance(tree, And) != is_negated else sum(counts)


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
