"""Choosing the few numbers of the composition on validation queries.

Training meets far more excluded documents than a corpus holds, so the loss learns to exclude too
eagerly, and no loss knows the metric. Four numbers are therefore laid on a grid: how much sooner
an excluded operand is held to belong, and the whole vector's weight under AND, OR and NOT.
May import: boolattn.composition, boolattn.logic, boolattn.training.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.composition.scores import compose
from boolattn.errors import ConfigError
from boolattn.logic.operators import OPERATORS, Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from boolattn.composition.retriever import Plan, Retriever

SHIFTS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2)
#: The last leaves to the whole vector all but what operands of equal similarity differ in.
WEIGHTS = (0.0, 0.1, 0.2, 0.35, 0.6, 1.0, 1.6, 3.0, 6.0, 20.0, 60.0)


@dataclass(frozen=True)
class Judged:
    """A query's plan, and the places of its documents among those that are ranked."""

    plan: Plan
    gold: frozenset[int]
    excluded: frozenset[int]


@dataclass(frozen=True)
class Numbers:
    """What is chosen, and what it measured."""

    excluded_shift: float
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

    def measure(
        self, chosen: Sequence[int], shift: float, weights: tuple[float, ...]
    ) -> tuple[float, float]:
        """Return mean R-precision and leak of some queries; the leak 0 where none excludes."""
        [found] = self.measure_all(chosen, [(shift, weights)])
        return found

    def measure_all(
        self, chosen: Sequence[int], tried: Sequence[tuple[float, tuple[float, ...]]]
    ) -> list[tuple[float, float]]:
        """Do the same for several shifts and weights: a query is composed once for each shift."""
        rows = [self._measure(place, tried) for place in chosen]
        precision = np.mean([row[0] for row in rows], axis=0)
        leaks = [row[1] for row in rows if row[1] is not None]
        leak = np.mean(leaks, axis=0) if leaks else np.zeros(len(tried))
        return list(zip(precision.tolist(), leak.tolist(), strict=True))

    @torch.inference_mode()
    def _measure(
        self, place: int, tried: Sequence[tuple[float, tuple[float, ...]]]
    ) -> tuple[list[float], list[float] | None]:
        """Return R-precision and leak of one query, one number for each try."""
        one = self.judged[place]
        n_gold, n_drop = len(one.gold), len(one.excluded)
        whole = self._similarity(place)[-1] * self.retriever.calibration.log_alpha.exp()
        composed = {shift: self._composed(place, shift) for shift in {shift for shift, _ in tried}}
        scores = torch.stack(
            [composed[shift] + _weight(one.plan, weights) * whole for shift, weights in tried]
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

    def _composed(self, place: int, shift: float) -> Tensor:
        """Return the composed score without the whole vector's part."""
        plan = self.judged[place].plan
        vectors = torch.from_numpy(plan.vectors).to(self.documents)
        calibration = self.retriever.calibration
        excluded = torch.tensor(plan.is_excluded, dtype=torch.float32, device=vectors.device)
        middle = calibration.threshold + vectors[:-1] @ calibration.breadth - shift * excluded
        similarities = self._similarity(place)[:-1]
        logits = calibration.log_alpha.exp() * (similarities - middle[:, None])
        return compose(plan.tree, logits, self.retriever.rule)

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

    AND and OR take the weight with the best R-precision. NOT takes the weight and the shift that
    leak least among those that cost no R-precision against the whole vector; if all do, those
    with the best R-precision minus leak.
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
    weight, shift = 0.0, 0.0
    if drops:
        grid = list(product(WEIGHTS[:6], SHIFTS))
        others = (joined[Operator.AND], joined[Operator.OR])
        measured_all = fitter.measure_all(drops, [(s, (*others, w)) for w, s in grid])
        tried = dict(zip(grid, measured_all, strict=True))
        plain = fitter.measure_plain(drops)
        free = {key: leak for key, (precision, leak) in tried.items() if precision >= plain}
        weight, shift = (
            min(free, key=lambda key: (free[key], -tried[key][0]))
            if free
            else max(tried, key=lambda key: tried[key][0] - tried[key][1])
        )
    weights = (joined[Operator.AND], joined[Operator.OR], weight)
    everything = range(len(fitter.judged))
    measured = fitter.measure(everything, shift, weights)
    _write(fitter.retriever, shift, weights)
    return Numbers(shift, weights, *measured)


def _best_weight(fitter: Fitter, operator: Operator) -> float:
    """Return the whole vector's weight with the best R-precision under one operator."""
    chosen = fitter.with_operators(operator)
    if not chosen:
        return 0.0
    found = fitter.measure_all(chosen, [(0.0, (weight, weight, 0.0)) for weight in WEIGHTS])
    precision = [row[0] for row in found]
    return WEIGHTS[precision.index(max(precision))]


def _write(retriever: Retriever, shift: float, weights: tuple[float, ...]) -> None:
    calibration = retriever.calibration
    with torch.no_grad():
        calibration.excluded_shift.fill_(shift)
        # The inverse of softplus; what is meant as 0 becomes 1e-4.
        wanted = torch.tensor(weights).clamp(min=1e-4)
        calibration.whole.copy_(torch.log(torch.expm1(wanted)))
