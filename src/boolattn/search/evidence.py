"""What words say for documents: the lexical evidence.

It is the BM25+ score of each operand's words, added to its similarity. BM25 rewards a
word that is repeated and a short text. Neither says much about whether a document belongs to a set,
so that having a word at all counts most (``DELTA``). Evidence and similarity are measured in
standard deviations over their own shortlists, and count alike. A negated operand has only the words
that no positive one has: in "moths of Borneo NOT moths of Sumatra" a document is not excluded for
the word "moths". A document that is an operand, ``like:ID``, has no words: its vector alone counts.
A document with a value that an operand names ("soup" of a category) ranks above the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from boolattn.kinds.lexicon import VALUE, is_tag
from boolattn.scoring.exact import Ranked, shortlist_size, shortlist_spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.query.plan import Plan
    from boolattn.stores.base import Array, Keys, Reader
    from boolattn.stores.filters import Filter

#: The most that words count, in their standard deviations: of nearly equal scores it is small.
_MAX_SPREADS = 10
#: Relative error of scores.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class LexicalEvidence:
    """What the words of a plan's vectors find, and how much a score adds to a similarity."""

    #: For each vector, sorted by key; then for each the documents with a value that it names.
    answers: tuple[Ranked, ...]
    #: One for each answer, when it is fitted. Shape ``(answers, 1)``.
    factors: Array = field(default_factory=lambda: np.zeros((0, 1), np.float32))

    @classmethod
    def of(cls, reader: Reader, terms: Iterable[Sequence[str]], where: Filter) -> LexicalEvidence:
        """Search the best documents of the terms of each vector."""
        lists, n, answers = list(terms), reader.max_word_hits, []
        words = [[term for term in listed if not term.startswith(VALUE)] for listed in lists]
        tags = [t for t in dict.fromkeys(chain.from_iterable(lists)) if t.startswith(VALUE)]
        known = [tag for tag, number in zip(tags, reader.frequencies(tags), strict=True) if number]
        for keys, scores in reader.words([*words, *([tag] for tag in known)], n, where):
            order = np.argsort(keys)
            # Others may have as much as the last one: only what is above it is known to be more.
            floor = scores.min() if len(keys) >= n else 0
            answers.append(Ranked(keys[order], scores[order] - floor))
        with_value = dict(zip(known, answers[len(lists) :], strict=True))
        named = (_with_values(listed, with_value) for listed in lists)
        return cls((*answers[: len(lists)], *named))

    def best(self, plan: Plan, n: int) -> Keys:
        """Return the ``n`` best documents of each vector that is not a negated operand's."""
        negated = [*plan.is_negated, *[False] * (len(self.answers) // 2 - len(plan.atoms))]
        keys = (
            answer.rows[np.argsort(-answer.scores)[:n]]
            for answer, is_negated in zip(self.answers, 2 * negated, strict=True)
            if not is_negated
        )
        return np.unique(np.concatenate([*keys, np.zeros(0, np.int64)]))

    def fit(self, keys: Keys, similarities: Array) -> tuple[LexicalEvidence, Array]:
        """Measure the spread of both over the documents that are compared.

        Similarities have the shape ``(vectors, keys)``; they are returned with the evidence added.
        """
        scores, factors = self._scores(keys), np.zeros((len(self.answers), 1), np.float32)
        n = len(similarities)
        for row, values in enumerate(similarities):
            if spread := _spread(scores[row]):
                spread = max(spread, scores[row].max() / _MAX_SPREADS)
                factors[row] = shortlist_spread(values) / spread
            if scores[row + n].any():
                factors[row + n] = np.ptp(values + factors[row] * scores[row])
        words, named = np.split(factors * scores, 2)
        return replace(self, factors=factors), similarities + words + named

    def add(self, keys: Keys, similarities: Array) -> Array:
        """Return similarities with the evidence of these documents added."""
        words, values = np.split(self.factors * self._scores(keys), 2)
        return np.asarray(similarities + words + values, np.float32)

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


def _with_values(terms: Sequence[str], documents: Mapping[str, Ranked]) -> Ranked:
    """Return the documents with a value among an operand's terms: the share of its words."""
    n_words = max(1, sum(not is_tag(term) for term in terms))
    tags = [term for term in terms if term in documents]
    rows = [documents[tag].rows[documents[tag].scores > 0] for tag in tags]
    shares = np.repeat([len(tag.split()) / n_words for tag in tags], [*map(len, rows)])
    keys, inverse = np.unique(np.concatenate([*rows, np.zeros(0, np.int64)]), return_inverse=True)
    return Ranked(keys, np.minimum(np.bincount(inverse, shares, len(keys)), 1))


def _spread(scores: Array) -> float:
    """Return the spread of the shortlist; as a rule more documents than it holds have words."""
    positive, size = scores[scores > 0], shortlist_size(len(scores))
    spread = shortlist_spread(*((scores,) if len(positive) < size else (positive, size)))
    # Of equal scores it is the error of rounding, and says nothing.
    return spread if spread > _ROUNDING * scores.max(initial=0.0) else 0.0
