"""Lexical evidence: the BM25+ score of each operand's words, added to its similarity.

BM25 rewards a word that is repeated and a short text. Neither says much about whether a document
belongs to a set, so that having a word at all counts most (``DELTA``). Evidence and similarity are
measured in standard deviations over their own shortlists, and count alike. A negated operand has
only the words that no positive one has: in "moths of Borneo NOT moths of Sumatra" a document is not
excluded for the word "moths". A document that is an operand, ``like:ID``, has no words: its vector
alone counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from boolattn.query.clauses import conjunctions
from boolattn.query.tree import atoms
from boolattn.scoring.exact import Ranked
from boolattn.scoring.shortlist import shortlist_spread
from boolattn.search.lexical import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from boolattn.query.plan import Plan
    from boolattn.search.lexical import Lexical
    from boolattn.search.storage.segments import Array, Mask, RowNumbers

#: Of BM25+: what having a word counts, beside at most 2.2 for how often in how short a text. Chosen
#: on validation data (docs/composition.md).
DELTA = 2.0


@dataclass(frozen=True)
class LexicalEvidence:
    """What the words of a plan's vectors find, and how much a score adds to a similarity."""

    found: tuple[Ranked, ...]  # for each vector, sorted by row
    factors: tuple[float, ...] = ()

    @classmethod
    def of(cls, lexical: Lexical, plan: Plan, n: int, allowed: Mask | None) -> LexicalEvidence:
        """Search the ``n`` best documents of each of a plan's vectors."""
        found = []
        for terms in _terms(plan):
            rows, scores = lexical.search(terms, n, allowed, delta=DELTA)
            order = np.argsort(rows)
            # Others may have as much as the last one: only what is above it is known to be more.
            floor = scores.min() if len(rows) == n else 0
            found.append(Ranked(rows[order], scores[order] - floor))
        return cls(tuple(found))

    def rows(self, plan: Plan, n: int) -> RowNumbers:
        """Return the ``n`` best documents of each vector that is not a negated operand's."""
        negated = [*plan.is_negated, *[False] * (len(self.found) - len(plan.atoms))]
        own = (
            one.rows[np.argsort(-one.scores)[:n]]
            for one, is_negated in zip(self.found, negated, strict=True)
            if not is_negated
        )
        return np.unique(np.concatenate([*own, np.zeros(0, np.int64)]))

    def fit(self, rows: RowNumbers, similarities: Array) -> LexicalEvidence:
        """Measure the spread of both over the documents that are compared.

        Similarities have the shape ``(vectors, rows)``.
        """
        factors = []
        for own, scores in zip(similarities, self._scores(rows), strict=True):
            spread = shortlist_spread(scores)
            factors.append(shortlist_spread(own) / spread if spread else 0.0)
        return replace(self, factors=tuple(factors))

    def add(self, rows: RowNumbers, similarities: Array) -> Array:
        """Return similarities with the evidence of these documents added."""
        factors = np.array(self.factors, np.float32)[:, None]
        total: Array = similarities + factors * self._scores(rows)
        return total

    def _scores(self, rows: RowNumbers) -> Array:
        scores = np.zeros((len(self.found), len(rows)), np.float32)
        for own, (known, values) in zip(scores, self.found, strict=True):
            if len(known):
                places = np.minimum(np.searchsorted(known, rows), len(known) - 1)
                own[:] = np.where(known[places] == rows, values[places], 0)
        return scores


def _terms(plan: Plan) -> Iterator[list[str]]:
    """Yield the words of each of a plan's vectors."""
    terms = [terms_of(atom.words) for atom in atoms(plan.tree)]
    positive = [not is_negated for is_negated in plan.is_negated]
    others = frozenset().union(*compress(terms, positive))
    for own, is_positive in zip(terms, positive, strict=True):
        yield own if is_positive else [term for term in own if term not in others]
    for places in conjunctions(plan.clauses) if plan.is_composed else ():
        yield list(dict.fromkeys(term for place in places for term in terms[place]))
