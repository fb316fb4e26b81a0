"""Choosing the few numbers of the composition on validation queries.

Training meets far more excluded documents than a corpus holds, so the loss learns to exclude too
eagerly, and no loss knows the metric. Five numbers are therefore laid on a grid: how much sooner
an excluded operand is held to belong, how far it is held against what is wanted, and the whole
vector's weight under AND, OR and NOT.
May import: boolattn.composition, boolattn.logic, boolattn.training.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from boolattn.composition.scores import compose, leaned
from boolattn.errors import ConfigError
from boolattn.logic.operators import OPERATORS, Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from boolattn.composition.plan import Plan
    from boolattn.composition.retriever import Retriever

SHIFTS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2)
#: The last leaves to the whole vector all but what operands of equal similarity differ in.
WEIGHTS = (0.0, 0.1, 0.2, 0.35, 0.6, 1.0, 1.6, 3.0, 6.0, 20.0, 60.0)
#: More would suit these queries, but not exclusions as bare as "moths NOT Kenya".
LEANS = (0.0, 0.25, 0.5)
#: What a returned document that was excluded costs, in right documents: the place that it takes,
#: and that nobody wanted to see it.
LEAK_COST = 2.0


@dataclass(frozen=True)
class Judged:
    """A query's plan, and the places of its documents among those that are ranked."""

    plan: Plan
    gold: frozenset[int]
    excluded: frozenset[int]


class Tried(NamedTuple):
    """Numbers to try: the weights are AND's, OR's and NOT's."""

    shift: float
    lean: float
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Numbers:
    """What is chosen, and what it measured."""

    excluded_shift: float
    lean: float
    weights: tuple[float, float, float]
    r_precision: float
    leak: float


class Fitter:
    """Scores validation queries under given numbers.

    Args:
        retriever: Whose calibration is fitted.
        judged: Queries; those that are not composed are left out.
        documents: Vectors. Shape ``(documents, dim)``.
    """

    def __init__(self, retriever: Retriever, judged: Sequence[Judged], documents: Tensor) -> None:
        self.retriever = retriever
        self.judged = [one for one in judged if one.plan.is_composed]
        self.documents = documents
        self._similarities: dict[int, Tensor] = {}

    def measure(self, chosen: Sequence[int], tried: Tried) -> tuple[float, float]:
        """Return mean R-precision and leak of some queries; the leak 0 where none excludes."""
        [found] = self.measure_all(chosen, [tried])
        return found

    def measure_all(
        self, chosen: Sequence[int], tried: Sequence[Tried]
    ) -> list[tuple[float, float]]:
        """Do the same for several tries: a query is composed once for each shift and lean."""
        rows = [self._measure(place, tried) for place in chosen]
        precision = np.mean([row[0] for row in rows], axis=0)
        leaks = [row[1] for row in rows if row[1] is not None]
        leak = np.mean(leaks, axis=0) if leaks else np.zeros(len(tried))
        return list(zip(precision.tolist(), leak.tolist(), strict=True))

    @torch.inference_mode()
    def _measure(
        self, place: int, tried: Sequence[Tried]
    ) -> tuple[list[float], list[float] | None]:
        """Return R-precision and leak of one query, one number for each try."""
        one = self.judged[place]
        n_gold, n_drop = len(one.gold), len(one.excluded)
        whole = self._similarity(place)[-1] * self.retriever.calibration.log_alpha.exp()
        composed = {key: self._composed(place, *key) for key in {(t.shift, t.lean) for t in tried}}
        scores = torch.stack(
            [composed[t.shift, t.lean] + _weight(one.plan, t.weights) * whole for t in tried]
        )
        best = torch.topk(scores, min(n_gold + n_drop, len(self.documents))).indices
        precision = self._share(best[:, :n_gold], one.gold)
        return precision, self._share(best, one.excluded) if n_drop else None

    def _share(self, best: Tensor, wanted: frozenset[int]) -> list[float]:
        """Return how much of some documents stands in each row."""
        is_wanted = torch.zeros(len(self.documents), dtype=torch.float64, device=best.device)
        is_wanted[sorted(wanted)] = 1
        shares: list[float] = (is_wanted[best].sum(-1) / len(wanted)).tolist()
        return shares

    def _composed(self, place: int, shift: float, lean: float) -> Tensor:
        """Return the composed score without the whole vector's part."""
        plan = self.judged[place].plan
        vectors = torch.from_numpy(plan.vectors).to(self.documents)
        calibration = self.retriever.calibration
        excluded = torch.tensor(plan.is_excluded, dtype=torch.float32, device=vectors.device)
        middle = calibration.threshold + vectors[:-1] @ calibration.breadth - shift * excluded
        similarities = self._similarity(place)[:-1]
        logits = calibration.log_alpha.exp() * (similarities - middle[:, None])
        return compose(plan.tree, leaned(plan.tree, logits, lean), self.retriever.rule)

    def measure_plain(self, chosen: Sequence[int]) -> float:
        """Return the mean R-precision of some queries by the whole vector alone."""
        precision = []
        for place in chosen:
            gold = self.judged[place].gold
            best = torch.topk(self._similarity(place)[-1], len(gold)).indices.tolist()
            precision.append(len(gold.intersection(best)) / len(gold))
        return float(np.mean(precision))

    @torch.inference_mode()
    def _similarity(self, place: int) -> Tensor:
        if place not in self._similarities:
            vectors = torch.from_numpy(self.judged[place].plan.vectors).to(self.documents)
            self._similarities[place] = vectors @ self.documents.T
        return self._similarities[place]

    def with_operators(self, *operators: Operator) -> list[int]:
        """Return the queries that use just these operators."""
        return [
            place
            for place, one in enumerate(self.judged)
            if set(one.plan.operators) == set(operators)
        ]


def _weight(plan: Plan, weights: tuple[float, ...]) -> float:
    """Return the whole vector's weight, by the same rule as the calibration's own."""
    named = dict(zip(OPERATORS, weights, strict=True))
    if Operator.NOT in plan.operators:
        return named[Operator.NOT]
    return sum(named[operator] for operator in plan.operators)


def fit_numbers(fitter: Fitter) -> Numbers:
    """Choose the numbers, write them into the calibration, and return them.

    AND and OR take the weight with the best R-precision. NOT takes, of the numbers that cost no
    R-precision against the whole vector, those with the most R-precision less the leak's cost; if
    all cost some, the best of all.
    """
    if not fitter.judged:
        raise ConfigError(
            "no validation query was read as Boolean, so there is nothing to choose the numbers by;"
            " train the reader longer, or set compose.fit_numbers=false"
        )
    joined = {operator: _best_weight(fitter, operator) for operator in (Operator.AND, Operator.OR)}
    drops = [
        place
        for place, one in enumerate(fitter.judged)
        if Operator.NOT in one.plan.operators and one.excluded
    ]
    others = (joined[Operator.AND], joined[Operator.OR])
    best = Tried(0.0, 0.0, (*others, 0.0))
    if drops:
        grid = [
            Tried(shift, lean, (*others, weight))
            for shift, lean, weight in product(SHIFTS, LEANS, WEIGHTS[:6])
        ]
        measured = dict(zip(grid, fitter.measure_all(drops, grid), strict=True))
        plain = fitter.measure_plain(drops)
        free = {tried: row for tried, row in measured.items() if row[0] >= plain} or measured
        best = max(free, key=lambda tried: free[tried][0] - LEAK_COST * free[tried][1])
    found = fitter.measure(range(len(fitter.judged)), best)
    _write(fitter.retriever, best)
    return Numbers(best.shift, best.lean, (*others, best.weights[-1]), *found)


def _best_weight(fitter: Fitter, operator: Operator) -> float:
    """Return the whole vector's weight with the best R-precision under one operator."""
    chosen = fitter.with_operators(operator)
    if not chosen:
        return 0.0
    tried = [Tried(0.0, 0.0, (weight, weight, 0.0)) for weight in WEIGHTS]
    found = fitter.measure_all(chosen, tried)
    precision = [row[0] for row in found]
    return WEIGHTS[precision.index(max(precision))]


def _write(retriever: Retriever, chosen: Tried) -> None:
    calibration = retriever.calibration
    with torch.no_grad():
        calibration.excluded_shift.fill_(chosen.shift)
        calibration.lean.fill_(chosen.lean)
        # The inverse of softplus; what is meant as 0 becomes 1e-4.
        wanted = torch.tensor(chosen.weights).clamp(min=1e-4)
        calibration.whole.copy_(torch.log(torch.expm1(wanted)))
