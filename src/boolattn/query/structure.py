"""Facts about a query tree that do not depend on its documents; the templates of QUEST as trees."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

from boolattn.errors import QueryError
from boolattn.query.tree import And, Atom, Like, Not, Or, QueryTree, operators_of, signed_atoms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from boolattn.query.tree import Operator

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
