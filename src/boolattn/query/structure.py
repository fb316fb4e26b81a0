"""Templates: names of the trees that queries of data sets have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.errors import QueryError
from boolattn.query.syntax import parse
from boolattn.query.tree import Operator, QueryTree, map_words, operators_of, signed_atoms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Template name -> tree, in explicit syntax.
TEMPLATES = {
    "_": "_",
    "_ or _": "_ OR _",
    "_ or _ or _": "_ OR _ OR _",
    "_ that are also _": "_ AND _",
    "_ that are also both _ and _": "_ AND _ AND _",
    "_ that are not _": "_ NOT _",
    "_ that are also _ but not _": "_ AND _ NOT _",
}
#: Longer templates, in the same form; QUEST has none of them.
LONGER = {
    "_ or _ or _ or _": "_ OR _ OR _ OR _",
    "_ or _ or _ or _ or _": "_ OR _ OR _ OR _ OR _",
    "_ that are also _ and _ and _": "_ AND _ AND _ AND _",
    "_ or _ but not _": "(_ OR _) NOT _",
    "_ but neither _ nor _": "_ NOT _ NOT _",
}


def operand_signs(tree: QueryTree) -> Iterator[int]:
    """Yield 1 for each positive operand of a tree and -1 for each negated one, left to right."""
    return (sign for _, sign in signed_atoms(tree))


def template_tree(template: str, operands: Sequence[str]) -> QueryTree:
    """Return the tree of a template with operands.

    >>> template_tree("_ that are not _", ["moths", "moths of Sumatra"])
    And(parts=(Atom(text='moths'), Not(part=Atom(text='moths of Sumatra'))))
    """
    known = TEMPLATES | LONGER
    if template not in known:
        raise QueryError(f"unknown template {template!r}; known: {', '.join(known)}")
    if (n := len(operands)) != template.count("_"):
        raise QueryError(f"template {template!r} takes {template.count('_')} operands, got {n}")
    texts = iter(operands)
    return map_words(parse(known[template]), lambda _: next(texts))


def template_operators(template: str) -> tuple[Operator, ...]:
    """Return the operators of a template, as the paper's oracle labels have them.

    >>> [op.value for op in template_operators("_ that are also _ but not _")]
    ['and', 'not']
    """
    return operators_of(template_tree(template, ["_"] * template.count("_")))
