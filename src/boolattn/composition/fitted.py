r"""Scores of documents by a query's operands, from the statistics of the documents compared.

Nothing is learned. For each clause (:mod:`~boolattn.composition.clauses`) and document:

.. math::
    v = s_P + 0.1 \min_{i \in P}(s_i - t_i) \qquad z = (v - t_v) / \sigma_K(v)

:math:`s_P` is the similarity to the clause's own vector, :math:`s_i` to an operand, :math:`t` the
mean of the 10 highest values, and :math:`K` the shortlist: the 100 documents of highest :math:`v`.
A clause of one operand has :math:`v = s_i`. OR takes the highest :math:`z`. NOT lowers it by

.. math::
    0.7 \, \sigma_K(z) \max(0, y + 1)^2 \qquad y = \max_n \mathrm{standardised}_K(s_n - \beta_n z)

where :math:`\beta_n` is the regression of :math:`s_n` on :math:`z` over the shortlist: what a
negated operand shares with the positive part counts neither for nor against a document. A document
that fits the positive part, :math:`z > \bar z_K - \sigma_K(z)`, is never put below one that does
not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from boolattn.composition.clauses import Clause, clauses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.logic.tree import QueryTree

    Array = NDArray[np.float32]

#: Documents of the shortlist; of few documents a quarter, but at least :data:`BEST`.
SHORTLIST = 100
#: Documents whose mean is the level of a good match.
BEST = 10
#: Weight of the least matching operand under AND.
WEAKEST = 0.1
#: An alternative of less than this part of the largest spread is left out: what no document is
#: about must not fill half of the results.
LEAST_SPREAD = 0.1
#: Strength of NOT, and from how many standard deviations below the shortlist's mean it acts.
STRENGTH, ONSET = 0.7, 1.0
#: A document fits down to so many standard deviations below the shortlist's mean.
FIT = 1.0
#: A negated operand with a smaller share of variance of its own cannot be told apart.
_DISTINCT = 0.05
_TINY = 1e-9
_ROUNDING = np.finfo(np.float32).eps
#: Height of the step, in standard deviations, on which excluded documents keep their order.
_STEP = 1e-3


class Evidence(NamedTuple):
    """What was measured for documents; ``(operands, documents)`` and ``(documents,)``."""

    #: Rank by similarity to each operand among the documents compared, at most one more than the
    #: shortlist is long.
    ranks: NDArray[np.int64]
    #: For a negated operand, which share of the shortlist matches it less; else 0.
    exceeds: Array
    fits: NDArray[np.bool_]  # the positive part


@dataclass(frozen=True)
class _Positive:
    """The positive part of a clause: the row of its vector, its operands and their levels."""

    row: int
    operands: tuple[int, ...]
    levels: Array
    level: float
    spread: float

    def __call__(self, similarities: Array) -> Array:
        """Return ``z``."""
        values = _clause_values(similarities, self.row, self.operands, self.levels)
        z: Array = (values - np.float32(self.level)) / np.float32(self.spread)
        return z


@dataclass(frozen=True)
class _Negation:
    """Negated operands, and their statistics over the shortlist of what stands beside them."""

    operands: tuple[int, ...]  # those that can be told apart
    skipped: tuple[int, ...]  # the others
    slopes: Array
    means: Array
    spreads: Array
    shortlist: Array  # standings, sorted. Shape ``(operands, shortlist)``
    spread: float
    floor: float

    def standing(self, similarities: Array, positive: Array) -> Array:
        """Return ``y`` of each operand. Shape ``(operands, documents)``."""
        rest = similarities[list(self.operands)] - self.slopes[:, None] * positive
        y: Array = (rest - self.means[:, None]) / self.spreads[:, None]
        return y

    def __call__(self, similarities: Array, positive: Array) -> Array:
        """Return the scores of documents whose positive part has these values."""
        if not self.operands:
            return positive
        most = self.standing(similarities, positive).max(0)
        scores = positive - STRENGTH * self.spread * np.maximum(most + ONSET, 0) ** 2
        # Excluded documents stay before those that do not fit, in the order of their scores.
        step = self.floor + _STEP * self.spread / (1 + np.maximum(self.floor - scores, 0))
        least = np.minimum(np.maximum(scores, step), positive)
        found: Array = np.where(positive > self.floor, least, scores)
        return found


class _Values(NamedTuple):
    """Scores, values of the positive part, and those that the common negation is applied to."""

    scores: Array
    positive: Array
    joined: Array


@dataclass(frozen=True)
class Fitted:
    """A query's operands, with the statistics of the documents that were compared."""

    parts: tuple[tuple[_Positive | None, _Negation | None], ...]  # of each clause
    common: _Negation | None  # what every clause negates
    tops: Array  # highest similarities to each operand, descending
    floor: float  # a document of lower values does not fit the positive part
    n_documents: int

    @property
    def skipped(self) -> tuple[int, ...]:
        """Negated operands that cannot be told from the positive part; they lower nothing."""
        return tuple(sorted({place for one in self._negations() for place in one.skipped}))

    def score(self, similarities: Array) -> Array:
        """Score documents, the compared ones or others. Higher is better.

        Similarities have the shape ``(vectors, documents)``, as in :func:`fit`.
        """
        return self._values(similarities).scores.astype(np.float32)

    def evidence(self, similarities: Array) -> Evidence:
        """Return what was measured for documents; arguments as in :meth:`score`."""
        own = similarities[: len(self.tops)]
        # A product over other rows rounds differently: a document is not ranked below itself.
        ranks = 1 + (self.tops[:, :, None] > own[:, None] + _ROUNDING).sum(1)
        exceeds = np.zeros(own.shape, np.float32)
        values = self._values(similarities)
        for part, negation in (*self.parts, (None, self.common)):
            if negation is None or not negation.operands:
                continue
            beside = values.joined if negation is self.common else _part(part, similarities)
            standing = negation.standing(similarities, beside)
            for place, known, y in zip(
                negation.operands, negation.shortlist, standing, strict=True
            ):
                # A document of the shortlist is not compared with itself.
                share = np.minimum(np.searchsorted(known, y) / max(1, len(known) - 1), 1)
                exceeds[place] = np.maximum(exceeds[place], share)
        return Evidence(ranks, exceeds, values.positive > self.floor)

    def _negations(self) -> list[_Negation]:
        every = [negation for _, negation in self.parts] + [self.common]
        return [negation for negation in every if negation is not None]

    def _values(self, similarities: Array) -> _Values:
        found = [(_part(part, similarities), negation) for part, negation in self.parts]
        positive = np.max([z for z, _ in found], axis=0)
        joined = np.max([n(similarities, z) if n else z for z, n in found], axis=0)
        scores = self.common(similarities, joined) if self.common else joined
        return _Values(scores, positive, joined)


def fit(tree: QueryTree, similarities: Array) -> Fitted:
    """Gather the statistics of documents for a query.

    Args:
        tree: The query.
        similarities: Of the documents to each operand, left to right, then to the vector of each
            of :func:`conjunctions`. Shape ``(vectors, documents)``.
    """
    alternatives = clauses(tree)
    n_operands = 1 + max(place for clause in alternatives for part in clause for place in part)
    rows = {own: n_operands + row for row, own in enumerate(conjunctions(alternatives))}
    common = set.intersection(*(set(clause.negated) for clause in alternatives))
    fitted = [_fit_positive(clause.positive, rows, similarities) for clause in alternatives]
    least = LEAST_SPREAD * max((part.spread for part in fitted if part), default=0.0)
    parts, scored, positive = [], [], []
    for clause, part in zip(alternatives, fitted, strict=True):
        if part and part.spread < least:
            continue
        z = _part(part, similarities)
        rest = tuple(place for place in clause.negated if place not in common)
        negation = _fit_negation(rest, z, similarities) if rest else None
        parts.append((part, negation))
        positive.append(z)
        scored.append(negation(similarities, z) if negation else z)
    joined, fitting = np.max(scored, axis=0), np.max(positive, axis=0)
    return Fitted(
        parts=tuple(parts),
        common=_fit_negation(tuple(sorted(common)), joined, similarities) if common else None,
        tops=-np.partition(-similarities[:n_operands], (k := _size(similarities.shape[1])) - 1)[
            :, :k
        ],
        floor=_floor(fitting[_shortlist(fitting)]),
        n_documents=similarities.shape[1],
    )


def conjunctions(alternatives: Sequence[Clause]) -> tuple[tuple[int, ...], ...]:
    """Return the operands of each clause of several positive ones, which has a vector of its own.

    >>> conjunctions([Clause((0, 1), ()), Clause((2,), ()), Clause((0, 1), (3,))])
    ((0, 1),)
    """
    several = (clause.positive for clause in alternatives if len(clause.positive) > 1)
    return tuple(dict.fromkeys(several))


def _part(part: _Positive | None, similarities: Array) -> Array:
    """Return ``z``; where nothing is positive, every document fits alike."""
    return np.zeros(similarities.shape[1], np.float32) if part is None else part(similarities)


def _fit_positive(
    operands: tuple[int, ...], rows: Mapping[tuple[int, ...], int], similarities: Array
) -> _Positive | None:
    if not operands:
        return None
    row = rows.get(operands, operands[0])
    levels = np.array([_level(similarities[place]) for place in operands], np.float32)
    values = _clause_values(similarities, row, operands, levels)
    spread = max(shortlist_spread(values), _TINY)
    return _Positive(row, operands, levels, _level(values), spread)


def _clause_values(
    similarities: Array, row: int, operands: tuple[int, ...], levels: Array
) -> Array:
    """Return ``v``."""
    values: Array = similarities[row]
    if len(operands) < 2:
        return values
    centred = similarities[list(operands)] - levels[:, None]
    total: Array = values + np.float32(WEAKEST) * centred.min(0)
    return total


def _fit_negation(operands: tuple[int, ...], beside: Array, similarities: Array) -> _Negation:
    rows = _shortlist(beside)
    z = beside[rows].astype(np.float64)
    spread, floor = float(z.std()), _floor(z)
    # Few documents may fit: those that do not must not set the standard.
    rows, z = rows[z >= floor], z[z >= floor]
    own = similarities[list(operands)][:, rows].astype(np.float64)
    centred = own - own.mean(1, keepdims=True)
    slopes = np.maximum((centred * (z - z.mean())).mean(1) / max(z.var(), _TINY), 0)
    rest = own - slopes[:, None] * z
    means, spreads = rest.mean(1), rest.std(1)
    is_apart = spreads**2 > _DISTINCT * own.var(1) + _TINY**2
    # In double precision rounding alone has a spread.
    is_apart &= spreads > 1e-6
    chosen = np.flatnonzero(is_apart)
    standing = (rest[chosen] - means[chosen, None]) / spreads[chosen, None]
    return _Negation(
        operands=tuple(operands[place] for place in chosen),
        skipped=tuple(
            place for place, is_used in zip(operands, is_apart, strict=True) if not is_used
        ),
        slopes=slopes[chosen].astype(np.float32),
        means=means[chosen].astype(np.float32),
        spreads=spreads[chosen].astype(np.float32),
        shortlist=np.sort(standing, axis=1).astype(np.float32),
        # Where nothing is positive, all documents fit alike.
        spread=spread or 1.0,
        floor=floor if spread else -np.inf,
    )


def shortlist_spread(values: Array) -> float:
    """Return the standard deviation of the shortlist's values."""
    return float(values[_shortlist(values)].std()) if len(values) else 0.0


def _size(n_documents: int) -> int:
    """Return the length of the shortlist."""
    return min(SHORTLIST, max(BEST, n_documents // 4), n_documents)


def _shortlist(values: Array) -> NDArray[np.int64]:
    """Return the places of the highest values; all places where the values are equal."""
    if not len(values) or values.max() == values.min():
        return np.arange(len(values))
    size = _size(len(values))
    return np.argpartition(-values, size - 1)[:size]


def _level(values: Array) -> float:
    """Return the mean of the highest values."""
    n = min(BEST, len(values))
    return float(np.partition(values, -n)[-n:].mean())


def _floor(shortlist: NDArray[np.floating]) -> float:
    return float(shortlist.mean() - FIT * shortlist.std())
