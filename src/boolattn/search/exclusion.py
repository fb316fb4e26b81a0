"""Lexical exclusion filter: which documents a NOT excludes by their words.

Positive operands count as true, so only negated ones can exclude a document: in "(A NOT B) OR C"
B alone excludes nothing. Words that the document itself negates do not count: an advertisement
that says "no driving licence needed" is not one for people with a driving licence.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from boolattn.query.structure import operand_signs, truth
from boolattn.query.tree import atoms
from boolattn.stores.analysis import terms_of
from boolattn.stores.base import Claim

if TYPE_CHECKING:
    from boolattn.query.clauses import Clause
    from boolattn.query.tree import QueryTree
    from boolattn.stores.base import Keys, Mask, Reader


class Exclusion:
    """Tests documents for the distinguishing words of a query's negated operands.

    No positive operand has these: in "moths of Borneo NOT moths of Sumatra" Sumatra distinguishes
    the second operand.
    """

    def __init__(self, tree: QueryTree) -> None:
        terms = [terms_of(atom.words) for atom in atoms(tree)]
        is_positive = [sign > 0 for sign in operand_signs(tree)]
        shared = frozenset().union(*compress(terms, is_positive))
        self._tree = tree
        #: For each operand its distinguishing terms; ``None`` for a positive one.
        self._terms = [
            None if positive else tuple(term for term in words if term not in shared)
            for words, positive in zip(terms, is_positive, strict=True)
        ]

    def lacking(self, clause: Clause) -> tuple[tuple[str, ...], ...]:
        """Return the groups of terms that a document of a clause must not assert."""
        return tuple(terms for operand in clause.negated if (terms := self._terms[operand]))

    def keeps(self, reader: Reader, keys: Keys) -> Mask:
        """Return which documents are not excluded."""
        return self._allowed(reader, keys, Claim.ASSERTED)

    def denies(self, reader: Reader, keys: Keys) -> Mask:
        """Return which documents are kept only because they negate the words themselves."""
        return self.keeps(reader, keys) & ~self._allowed(reader, keys, Claim.DENIED)

    def _allowed(self, reader: Reader, keys: Keys, least: Claim) -> Mask:
        """Return which documents satisfy the tree if claims from ``least`` on count as true."""
        truths = []
        for terms in self._terms:
            if terms is None:
                truths.append(np.ones(len(keys)))
            elif not terms:
                truths.append(np.zeros(len(keys)))
            else:
                truths.append((reader.claims(terms, keys) >= least).astype(float))
        return np.asarray(truth(self._tree, truths), bool)
