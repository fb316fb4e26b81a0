"""Scores of documents by a query's operands, from the statistics of the documents compared.

Nothing is learned. The formulas are in ``docs/composition.md``, whose names are used here: ``v`` is
the value of a clause for a document, ``z`` the same in standard deviations of the shortlist, ``y``
how much a negated operand has beside the positive part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from boolattn.query.plan import check_budget
from boolattn.query.tree import Clause, QueryTree, atoms, clauses, conjunctions
from boolattn.scoring.exact import level, shortlist, shortlist_size, shortlist_spread

Array = NDArray[np.float32]

#: Weight of the least matching operand under AND.
WEAKEST = 0.2
#: An alternative of less than this part of the largest spread is left out: no document has it.
LEAST_SPREAD = 0.1
#: Strength of NOT, and from how many standard deviations below the shortlist's mean it acts.
STRENGTH, ONSET = 0.7, 1.0
#: The lowest score that NOT may give to a document with a higher one: so many standard deviations
#: below the shortlist's mean.
FIT = 1.0
#: A result with less than this part of the best value does not fit.
_SHARE = 0.5
#: A negated operand with a smaller share of variance of its own cannot be told apart.
_DISTINCT = 0.05
_TINY = 1e-9
#: Errors of similarities, and of standings, which are their differences in standard deviations.
_ROUNDING, _SAME = np.finfo(np.float32).eps, 1e-4
#: Height of the step, in standard deviations, on which excluded documents keep their order.
_STEP = 1e-3
#: Value of a clause for a document that its conditions leave out.
_OUT = np.float32(-1e6)


@dataclass(frozen=True)
class _Negation:
    """Negated operands, and their statistics over the shortlist of what stands beside them."""

    operands: tuple[int, ...]  # those that can be told apart
    skipped: tuple[int, ...]  # the others
    slopes: Array
    means: Array
    spreads: Array
    weights: Array
    shortlist: Array  # standings, sorted. Shape ``(operands, shortlist)``
    spread: float
    floor: float

    def standing(self, similarities: Array, positive: Array) -> Array:
        """Return ``y`` of each operand. Shape ``(operands, documents)``."""
        rest = similarities[list(self.operands)] - self.slopes[:, None] * positive
        return (rest - self.means[:, None]) / self.spreads[:, None]

    def __call__(self, similarities: Array, positive: Array) -> Array:
        """Return the scores of documents whose positive part has these values."""
        if not self.operands:
            return positive
        over = np.maximum(self.standing(similarities, positive) + ONSET, 0) ** 2
        most = (self.weights[:, None] * over).max(0)
        scores = positive - STRENGTH * self.spread * most
        # Excluded documents stay before those that do not fit, in the order of their scores.
        step = self.floor + _STEP * self.spread / (1 + np.maximum(self.floor - scores, 0))
        least = np.minimum(np.maximum(scores, step), positive)
        limited: Array = np.where(positive > self.floor, least, scores)
        return limited


#: Nothing is negated.
_EMPTY = np.zeros(0, np.float32)
_NONE = _Negation((), (), _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, spread=1.0, floor=-np.inf)


@dataclass(frozen=True)
class _FittedClause:
    """A clause: the row of its vector, its positive operands, and what it alone negates."""

    row: int
    operands: tuple[int, ...]
    levels: Array
    weights: Array
    conditions: tuple[tuple[int, bool], ...]
    level: float = 0.0
    spread: float = 1.0
    least: float = -np.inf  # ``z`` at that share of the best ``v``
    negation: _Negation = _NONE

    def values(self, similarities: Array) -> Array:
        """Return ``v``."""
        values: Array = similarities[self.row]
        n = len(self.operands)
        if n < 2:
            return values
        centred = similarities[list(self.operands)] - self.levels[:, None]
        if (self.weights != 1).any():
            values = values + ((self.weights - 1) @ centred / np.float32(n)).astype(np.float32)
            centred = np.where(centred < 0, self.weights[:, None] * centred, centred)
        return np.asarray(values + np.float32(WEAKEST) * centred.min(0), np.float32)

    def z(self, similarities: Array) -> Array:
        """Return ``z``; where nothing is positive, every document fits alike."""
        if not self.operands:
            return np.zeros(similarities.shape[1], np.float32)
        return (self.values(similarities) - np.float32(self.level)) / np.float32(self.spread)


@dataclass(frozen=True)
class Fitted:
    """A query's operands, with the statistics of the documents that were compared."""

    clauses: tuple[_FittedClause, ...]
    common: _Negation  # what every clause negates
    tops: Array  # highest similarities to each operand, descending
    floor: float  # a document of lower values does not fit the positive part
    n_documents: int

    @property
    def skipped(self) -> tuple[int, ...]:
        """Negated operands that cannot be told from the positive part; they lower nothing."""
        negations = [self.common, *(part.negation for part in self.clauses)]
        return tuple(sorted({operand for n in negations for operand in n.skipped}))

    def score(self, similarities: Array) -> Array:
        """Score documents, the compared ones or others. Higher is better.

        Similarities have the shape ``(vectors, documents)``, as in :func:`fit`.
        """
        return self.common(similarities, self._best(similarities)).astype(np.float32)

    def positive(self, similarities: Array) -> Array:
        """Return the scores that documents would have if nothing was negated."""
        return self._best(similarities, is_lowered=False).astype(np.float32)

    def is_complete(self, similarities: Array, limits: Array, n: int) -> bool:
        """Return whether documents below some limits could not change the ``n`` best of others.

        Limits have the shape ``(vectors, 1)``; ``n`` is no less than the shortlist's length.
        """
        joined, most = self._best(similarities), self.positive(limits)
        pairs = [(part.z(similarities), part.z(limits)) for part in self.clauses]
        pairs += [(joined, most), (self.common(similarities, joined), most)]
        return all(len(row) >= n and np.partition(row, -n)[-n] >= limit for row, limit in pairs)

    def ranks(self, similarities: Array) -> NDArray[np.int64]:
        """Return the rank of documents for each operand among those compared.

        It is at most one more than the shortlist is long. Shape ``(operands, documents)``.
        """
        # A product over other rows rounds differently: a document is not ranked below itself.
        values = similarities[: len(self.tops)] + _ROUNDING
        return np.asarray(1 + (self.tops[:, :, None] > values[:, None]).sum(1), np.int64)

    def exceeds(self, similarities: Array) -> Array:
        """Return which share of the shortlist matches a negated operand less; else 0.

        Shape ``(operands, documents)``.
        """
        exceeds = np.zeros(similarities[: len(self.tops)].shape, np.float32)
        negations = [(part.negation, part.z(similarities)) for part in self.clauses]
        for negation, beside in [*negations, (self.common, self._best(similarities))]:
            standing = negation.standing(similarities, beside)
            rows = zip(negation.operands, negation.shortlist, standing, strict=True)
            for operand, known, y in rows:
                # A document of the shortlist is not compared with itself.
                share = np.searchsorted(known, y - _SAME) / max(1, len(known) - 1)
                exceeds[operand] = np.maximum(exceeds[operand], np.minimum(share, 1))
        return exceeds

    def fits(self, similarities: Array) -> NDArray[np.bool_]:
        """Return which documents fit the positive part."""
        return np.asarray(self.positive(similarities) >= self.floor, bool)

    def _best(self, similarities: Array, *, is_lowered: bool = True) -> Array:
        """Return the values of the best clause, lowered by what it alone negates."""
        rows = []
        for part in self.clauses:
            z = part.z(similarities)
            values = part.negation(similarities, z) if is_lowered else z
            # Documents that do not meet the conditions have the lowest value.
            rows.append(np.where(_meets(part.conditions, similarities), values, _OUT))
        best: Array = np.max(rows, axis=0)
        return best


def fit(tree: QueryTree, similarities: Array, size: int | None = None) -> Fitted:
    """Gather the statistics of documents for a query.

    Similarities are to each operand, left to right, then to the vector of each of
    :func:`conjunctions`; 1 or 0 for a condition. Shape ``(vectors, documents)``. ``size`` is that
    of the shortlist, where the documents are the best of more; else it is theirs.
    """
    check_budget()
    n_documents = similarities.shape[1]
    size = shortlist_size(n_documents) if size is None else min(size, n_documents)
    alternatives = clauses(tree)
    weights = np.array([atom.weight for atom in atoms(tree)], np.float32)
    n_operands = len(weights)
    rows = {c: n_operands + row for row, c in enumerate(conjunctions(alternatives))}
    common = set.intersection(*(set(clause.negated) for clause in alternatives))
    # An alternative that no document may satisfy by its conditions has no part.
    left = [c for c in alternatives if _meets(c.conditions, similarities).any()]
    fitted = [_fit_clause(clause, rows, similarities, weights, size) for clause in left]
    least = LEAST_SPREAD * max((part.spread for part in fitted if part.operands), default=0.0)
    fitted_clauses = []
    for clause, part in zip(left, fitted, strict=True):
        if part.operands and part.spread < least and not part.conditions:
            continue
        rest = tuple(operand for operand in clause.negated if operand not in common)
        negation = _fit_negation(rest, part.z(similarities), similarities, weights, size)
        fitted_clauses.append(replace(part, negation=negation))
    statistics = Fitted(
        clauses=tuple(fitted_clauses),
        common=_NONE,
        tops=-np.partition(-similarities[:n_operands], size - 1)[:, :size],
        floor=min(part.least for part in fitted_clauses),
        n_documents=n_documents,
    )
    joined = statistics._best(similarities)
    negation = _fit_negation(tuple(sorted(common)), joined, similarities, weights, size)
    return replace(statistics, common=negation)


def _meets(conditions: Sequence[tuple[int, bool]], similarities: Array) -> NDArray[np.bool_]:
    """Return which documents meet conditions."""
    held = [(similarities[row] > 0) == must for row, must in conditions]
    return np.asarray(np.all(held, axis=0), bool)


def _fit_clause(
    clause: Clause,
    rows: Mapping[tuple[int, ...], int],
    similarities: Array,
    weights: Array,
    size: int,
) -> _FittedClause:
    operands, chosen = clause.positive, weights[list(clause.positive)]
    levels = np.array([level(similarities[operand]) for operand in operands], np.float32)
    row = rows.get(operands, operands[0] if operands else 0)
    fitted = _FittedClause(row, operands, levels, chosen, clause.conditions)
    if not operands:
        return fitted
    values = fitted.values(similarities)
    spread, good, best = max(shortlist_spread(values, size), _TINY), level(values), values.max()
    if len(operands) == 1:
        good -= spread * float(np.log(chosen[0]))
    least = float(best - (1 - _SHARE) * abs(best) - good) / spread
    return replace(fitted, level=good, spread=spread, least=least)


def _fit_negation(
    operands: tuple[int, ...], beside: Array, similarities: Array, weights: Array, size: int
) -> _Negation:
    if not operands:
        return _NONE
    rows = shortlist(beside, size)
    z = beside[rows].astype(np.float64)
    spread = float(z.std())
    least = float(z.mean() - FIT * z.std())
    # Few documents may fit: those that do not must not set the standard.
    rows, z = rows[z >= least], z[z >= least]
    values = similarities[list(operands)][:, rows].astype(np.float64)
    centred = values - values.mean(1, keepdims=True)
    slopes = np.maximum((centred * (z - z.mean())).mean(1) / max(z.var(), _TINY), 0)
    rest = values - slopes[:, None] * z
    means, spreads = rest.mean(1), rest.std(1)
    is_apart = spreads**2 > _DISTINCT * values.var(1) + _TINY**2
    # In double precision rounding alone has a spread.
    is_apart &= spreads > 1e-6
    chosen = np.flatnonzero(is_apart)
    standing = (rest[chosen] - means[chosen, None]) / spreads[chosen, None]
    return _Negation(
        operands=tuple(operands[index] for index in chosen),
        skipped=tuple(operands[index] for index in np.flatnonzero(~is_apart)),
        slopes=slopes[chosen].astype(np.float32),
        means=means[chosen].astype(np.float32),
        spreads=spreads[chosen].astype(np.float32),
        weights=weights[list(operands)][chosen],
        shortlist=np.sort(standing, axis=1).astype(np.float32),
        # Where nothing is positive, all documents fit alike.
        spread=spread or 1.0,
        floor=least if spread else -np.inf,
    )
