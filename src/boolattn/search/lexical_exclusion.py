"""Lexical exclusion filter: which documents a NOT excludes, by their vectors or by their words.

Positive operands count as true, so only negated ones can exclude a document: in "(A NOT B) OR C"
B alone excludes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boolattn.logic.structure import operand_signs
from boolattn.logic.tree import atoms
from boolattn.search.lexical import terms_of
from boolattn.search.verdicts import BELONGS, probability

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from numpy.typing import NDArray

    from boolattn.logic.tree import QueryTree


def allowed_by_vectors(tree: QueryTree, probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which documents no negated operand excludes.

    Probabilities are composed ones, of shape ``(operands, documents)``.
    """
    is_positive = np.array(list(operand_signs(tree))) > 0
    truths = is_positive[:, None] | (probabilities >= BELONGS)
    allowed: NDArray[np.bool_] = probability(tree, truths.astype(np.float32)) > 0
    return allowed


def distinguishing_terms(tree: QueryTree) -> list[frozenset[str]]:
    """Return for each negated operand the words that no positive operand has; else nothing.

    In "moths of Borneo NOT moths of Sumatra" Sumatra distinguishes the second operand.
    """
    own = [
        (frozenset(terms_of(a.text)), sign < 0)
        for a, sign in zip(atoms(tree), operand_signs(tree), strict=True)
    ]
    positive = frozenset().union(*(terms for terms, is_negated in own if not is_negated))
    return [terms - positive if is_negated else frozenset() for terms, is_negated in own]


def allowed_by_terms(tree: QueryTree) -> Callable[[Set[str]], bool]:
    """Return a test of a document: that it lacks the distinguishing words of negated operands.

    The test takes the document's words, as :func:`~boolattn.search.lexical.terms_of` gives them.
    """
    terms = distinguishing_terms(tree)
    is_positive = [sign > 0 for sign in operand_signs(tree)]

    def is_allowed(words: Set[str]) -> bool:
        truths = [
            positive or (bool(own) and own <= words)
            for own, positive in zip(terms, is_positive, strict=True)
        ]
        return bool(probability(tree, map(float, truths)))

    return is_allowed
