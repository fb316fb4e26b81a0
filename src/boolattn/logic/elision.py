"""Queries with operands as bare as people type them.

Where A lies within B, "A and not (B and C)" is "A and not C", and "A and (B and C)" is "A and C":
what the first operand says need not be said again, and who writes "moths of Borneo NOT Sumatra"
does not say it again. May import: boolattn.data, boolattn.logic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.logic.templates import TEMPLATES, template_tree
from boolattn.logic.tree import And

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.data.records import Query
    from boolattn.logic.tree import QueryTree

#: What a name may begin with when its shared words are gone.
_SMALL = frozenset(
    ("a", "about", "an", "by", "from", "in", "of", "on", "or", "set", "species", "the", "with")
)


def elided_names(names: Sequence[str]) -> list[str]:
    """Leave to each name after the first the words that the first does not hold.

    >>> elided_names(["moths of Borneo", "moths of the Congo", "Beetles"])
    ['moths of Borneo', 'Congo', 'Beetles']
    """
    first, *others = names
    known = set(first.lower().split())
    found = [first]
    for name in others:
        own = [word for word in name.split() if word.lower() not in known]
        while own and own[0].lower() in _SMALL:
            own.pop(0)
        found.append(" ".join(own) or name)
    return found


def elided_tree(query: Query) -> QueryTree | None:
    """Return a query with bare operands; ``None`` where that says something else, or the same.

    "Moths of Borneo or of Java" would become all that lives in Java, so OR stays as it is.
    """
    names = [operand.text for operand in query.operands]
    if query.template not in TEMPLATES or len(names) != query.template.count("_"):
        return None
    bare = elided_names(names)
    tree = template_tree(query.template, bare)
    return tree if isinstance(tree, And) and bare != names else None
