"""Lexical exclusion filter: which documents a NOT excludes by their words.

Positive operands count as true, so only negated ones can exclude a document: in "(A NOT B) OR C"
B alone excludes nothing.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from boolattn.logic.structure import operand_signs
from boolattn.logic.tree import atoms
from boolattn.search.lexical import terms_of
from boolattn.search.verdicts import truth

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from boolattn.logic.tree import QueryTree


def allowed_by_terms(tree: QueryTree) -> Callable[[Set[str]], bool]:
    """Return a test of a document: that it lacks the distinguishing words of negated operands.

    No positive operand has these: in "moths of Borneo NOT moths of Sumatra" Sumatra distinguishes
    the second operand. The test takes the document's words, as
    :func:`~boolattn.search.lexical.terms_of` gives them.
    """
    terms = [frozenset(terms_of(atom.text)) for atom in atoms(tree)]
    is_positive = [sign > 0 for sign in operand_signs(tree)]
    others = frozenset().union(*compress(terms, is_positive))

    def is_allowed(words: Set[str]) -> bool:
        truths = [
            positive or (bool(own - others) and own - others <= words)
            for own, positive in zip(terms, is_positive, strict=True)
        ]
        return bool(truth(tree, map(float, truths)))

    return is_allowed
