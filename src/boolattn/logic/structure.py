"""Facts about a query tree that do not depend on its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.logic.tree import And, Atom, Not, Or, QueryTree, signed_atoms

if TYPE_CHECKING:
    from collections.abc import Iterator


def operand_signs(tree: QueryTree) -> Iterator[int]:
    """Yield 1 for each positive operand and -1 for each negated one, left to right.

    >>> list(operand_signs(And((Atom("a"), Not(Or((Atom("b"), Atom("c"))))))))
    [1, -1, -1]
    """
    return (sign for _, sign in signed_atoms(tree))


def negated_atoms(tree: QueryTree) -> Iterator[Atom]:
    """Yield the operands under an odd number of ``Not``."""
    return (atom for atom, sign in signed_atoms(tree) if sign < 0)


def in_words(tree: QueryTree) -> str:
    """Write a tree in plain language.

    >>> in_words(And((Atom("moths"), Or((Atom("Borneo"), Atom("Java"))), Not(Atom("Sumatra")))))
    'moths and Borneo or Java but not Sumatra'
    """
    match tree:
        case Atom(text):
            return text
        case Not(part):
            return f"not {in_words(part)}"
        case Or(parts):
            return " or ".join(map(in_words, parts))
        case And(parts):
            positive = " and ".join(in_words(part) for part in parts if not isinstance(part, Not))
            negated = " and ".join(in_words(part) for part in parts if isinstance(part, Not))
            return f"{positive} but {negated}" if positive and negated else positive or negated


def structure(tree: QueryTree) -> str:
    """Write a tree without its operands; trees of equal structure are composed alike.

    >>> structure(And((Atom("a"), Or((Atom("b"), Atom("c"))), Not(Atom("d")))))
    'and(_,or(_,_),not(_))'
    """
    match tree:
        case Atom():
            return "_"
        case Not(part):
            return f"not({structure(part)})"
        case And(parts) | Or(parts):
            inner = ",".join(map(structure, parts))
            return f"{'and' if isinstance(tree, And) else 'or'}({inner})"
