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
            own = [(isinstance(part, Not), text) for part in parts if (text := in_words(part))]
            positive = " and ".join(text for is_negated, text in own if not is_negated)
            negated = " and ".join(text for is_negated, text in own if is_negated)
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
