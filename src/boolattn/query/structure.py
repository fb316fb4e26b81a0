"""Templates: names of the trees that queries of data sets have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.errors import QueryError
from boolattn.query.tree import And, Atom, Not, Operator, Or, QueryTree, operators_of, signed_atoms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
    """Yield 1 for each positive operand of a tree and -1 for each negated one, left to right."""
    return (sign for _, sign in signed_atoms(tree))


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
