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

from boolattn.query.structure import conjunctions
from boolattn.query.tree import atoms
from boolattn.scoring.exact import Ranked
from boolattn.scoring.shortlist import shortlist_size, shortlist_spread
from boolattn.stores.analysis import operand_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.query.plan import Plan
    from boolattn.stores.base import Array, Keys, Reader
    from boolattn.stores.filters import Filter

#: Relative error of scores.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class LexicalEvidence:
    """What the words of a plan's vectors find, and how much a score adds to a similarity."""

    answers: tuple[Ranked, ...]  # for each vector, sorted by key
    factors: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, reader: Reader, plan: Plan, where: Filter, tags: Sequence[Sequence[str]]
    ) -> LexicalEvidence:
        """Search the best documents of each of a plan's vectors; ``tags`` are of its operands."""
        return cls.of_terms(reader, list(_terms(plan, tags)), where)

    @classmethod
    def of_terms(
        cls, reader: Reader, terms: Sequence[Sequence[str]], where: Filter
    ) -> LexicalEvidence:
        """Search the best documents of lists of terms."""
        n, answers = reader.max_words, []
        for keys, scores in reader.words(terms, n, where):
            order = np.argsort(keys)
            # Others may have as much as the last one: only what is above it is known to be more.
            floor = scores.min() if len(keys) >= n else 0
            answers.append(Ranked(keys[order], scores[order] - floor))
        return cls(tuple(answers))

    def best(self, plan: Plan, n: int) -> Keys:
        """Return the ``n`` best documents of each vector that is not a negated operand's."""
        negated = [*plan.is_negated, *[False] * (len(self.answers) - len(plan.atoms))]
        keys = (
            answer.rows[np.argsort(-answer.scores)[:n]]
            for answer, is_negated in zip(self.answers, negated, strict=True)
            if not is_negated
        )
        return np.unique(np.concatenate([*keys, np.zeros(0, np.int64)]))

    def negated_keys(self, plan: Plan) -> Keys:
        """Return the documents with words of negated operands."""
        pairs = zip(self.answers, plan.is_negated, strict=False)
        return np.concatenate([answer.rows for answer, is_negated in pairs if is_negated])

    def fit(self, keys: Keys, similarities: Array) -> tuple[LexicalEvidence, Array]:
        """Measure the spread of both over the documents that are compared.

        Similarities have the shape ``(vectors, keys)``; they are returned with the evidence added.
        """
        scores, factors = self._scores(keys), []
        for values, row in zip(similarities, scores, strict=True):
            spread = _spread(row)
            factors.append(shortlist_spread(values) / spread if spread else 0.0)
        fitted = replace(self, factors=tuple(factors))
        return fitted, similarities + fitted._weights * scores

    def add(self, keys: Keys, similarities: Array) -> Array:
        """Return similarities with the evidence of these documents added."""
        total: Array = similarities + self._weights * self._scores(keys)
        return total

    @property
    def _weights(self) -> Array:
        return np.array(self.factors, np.float32)[:, None]

    def _scores(self, keys: Keys) -> Array:
        scores = np.zeros((len(self.answers), len(keys)), np.float32)
        order = np.argsort(keys, kind="stable")  # cheap where they are sorted, as a rule
        ordered = keys[order]
        for row, (known, values) in zip(scores, self.answers, strict=True):
            if len(known) and len(keys):
                # Few documents have the words: they are looked up among the keys.
                nearest = np.minimum(np.searchsorted(ordered, known), len(keys) - 1)
                is_there = ordered[nearest] == known
                row[order[nearest[is_there]]] = values[is_there]
        return scores


def _spread(scores: Array) -> float:
    """Return the spread of the shortlist; as a rule more documents than it holds have words."""
    positive, size = scores[scores > 0], shortlist_size(len(scores))
    is_short = len(positive) < size
    spread = shortlist_spread(scores) if is_short else shortlist_spread(positive, size)
    # Of equal scores it is the error of rounding, and says nothing.
    return spread if spread > _ROUNDING * scores.max(initial=0.0) else 0.0


def _terms(plan: Plan, tags: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the words and kinds of each of a plan's vectors."""
    named = (operand_terms(atom.words) for atom in atoms(plan.tree))
    terms = [[*words, *kinds] for words, kinds in zip(named, tags, strict=True)]
    positive = [not is_negated for is_negated in plan.is_negated]
    shared = frozenset().union(*compress(terms, positive))
    for words, is_positive in zip(terms, positive, strict=True):
        yield words if is_positive else [term for term in words if term not in shared]
    for operands in conjunctions(plan.clauses) if plan.is_composed else ():
        yield list(dict.fromkeys(term for operand in operands for term in terms[operand]))
