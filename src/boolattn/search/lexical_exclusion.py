"""Exclusion beyond a score: which documents a NOT forbids, by their vectors or by their words.

Operands that are wanted are taken as given; only what is excluded can forbid. So in
"(A NOT B) OR C" nothing is forbidden by B alone.
May import: boolattn.logic, boolattn.composition, boolattn.search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boolattn.composition.scores import signs
from boolattn.logic.tree import atoms
from boolattn.search.lexical import terms_of
from boolattn.search.verdicts import BELONGS, probability

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from numpy.typing import NDArray

    from boolattn.logic.tree import QueryTree


def keeps_by_vectors(tree: QueryTree, probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Say which documents no exclusion forbids.

    Args:
        tree: The query.
        probabilities: That each operand holds, as composed. Shape ``(operands, documents)``.
    """
    wanted = np.array(list(signs(tree))) > 0
    truths = wanted[:, None] | (probabilities >= BELONGS)
    return probability(tree, truths.astype(np.float32)) > 0


def distinguishing_terms(tree: QueryTree) -> list[frozenset[str]]:
    """Return for each operand the words that no wanted operand has; none for a wanted one.

    In "moths of Borneo NOT moths of Sumatra" it is Sumatra that tells the second apart.
    """
    own = [frozenset(terms_of(atom.text)) for atom in atoms(tree)]
    is_out = [sign < 0 for sign in signs(tree)]
    wanted = frozenset().union(*(terms for terms, out in zip(own, is_out, strict=True) if not out))
    return [terms - wanted if out else frozenset() for terms, out in zip(own, is_out, strict=True)]


def kept_by_words(tree: QueryTree) -> Callable[[Set[str]], bool]:
    """Return what says whether a document is free of the words that tell excluded operands apart.

    It takes the document's words, as :func:`~boolattn.search.lexical.terms_of` gives them.
    """
    telling = distinguishing_terms(tree)
    is_out = [sign < 0 for sign in signs(tree)]

    def is_kept(there: Set[str]) -> bool:
        truths = [
            not out or (bool(terms) and terms <= there)
            for terms, out in zip(telling, is_out, strict=True)
        ]
        return probability(tree, map(float, truths)) > 0

    return is_kept
