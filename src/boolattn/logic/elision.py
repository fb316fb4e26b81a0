"""Elided operands: names without the words that the first operand has already.

Where A lies within B, "A and not (B and C)" is "A and not C": people write "moths of Borneo NOT
Sumatra" and mean the moths of Sumatra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.logic.templates import TEMPLATES, template_tree
from boolattn.logic.tree import And

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.logic.tree import QueryTree

#: Words that an elided name does not begin with.
_FUNCTION_WORDS = frozenset(
    ("a", "about", "an", "by", "from", "in", "of", "on", "or", "set", "species", "the", "with")
)


def elided_names(names: Sequence[str]) -> list[str]:
    """Remove from each name after the first the words that the first has.

    >>> elided_names(["moths of Borneo", "moths of the Congo", "Beetles"])
    ['moths of Borneo', 'Congo', 'Beetles']
    """
    first, *others = names
    known = set(first.lower().split())
    found = [first]
    for name in others:
        own = [word for word in name.split() if word.lower() not in known]
        while own and own[0].lower() in _FUNCTION_WORDS:
            own.pop(0)
        found.append(" ".join(own) or name)
    return found


def elided_tree(template: str, names: Sequence[str]) -> QueryTree | None:
    """Return a template's tree with elided operands; ``None`` where that is not equivalent.

    "Moths of Borneo or of Java" would become everything in Java, so OR is not elided. ``None``
    also where nothing can be elided.
    """
    if template not in TEMPLATES or len(names) != template.count("_"):
        return None
    elided = elided_names(names)
    tree = template_tree(template, elided)
    return tree if isinstance(tree, And) and elided != list(names) else None
