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
        precision, leak = [], []
        for place in chosen:
            one = self.judged[place]
            n_gold, n_drop = len(one.gold), len(one.excluded)
            depth = min(n_gold + n_drop, len(self.documents))
            best = torch.topk(self._score(place, shift, weights), depth).indices.tolist()
            precision.append(len(one.gold.intersection(best[:n_gold])) / n_gold)
            if n_drop:
                leak.append(len(one.excluded.intersection(best)) / n_drop)
        return float(np.mean(precision)), float(np.mean(leak)) if leak else 0.0

    @torch.inference_mode()
    def _score(self, place: int, shift: float, weights: tuple[float, ...]) -> Tensor:
        plan = self.judged[place].plan
        vectors = torch.from_numpy(plan.vectors).to(self.documents)
        similarities = self._similarity(place)
        calibration = self.retriever.calibration
        alpha = calibration.log_alpha.exp()
        excluded = torch.tensor(plan.is_excluded, dtype=torch.float32, device=vectors.device)
        middle = calibration.threshold + vectors[:-1] @ calibration.breadth - shift * excluded
        logits = alpha * (similarities[:-1] - middle[:, None])
        weight = _weight(plan, weights)
        whole = alpha * weight * similarities[-1]
        return compose(plan.tree, logits, self.retriever.rule) + whole

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
    joined = {
        operator: max(
            WEIGHTS, key=lambda weight: fitter.measure(chosen, 0.0, (weight, weight, 0.0))[0]
        )
        if (chosen := fitter.with_operators(operator))
        else 0.0
        for operator in (Operator.AND, Operator.OR)
    }
    drops = [
        place
        for place, one in enumerate(fitter.judged)
        if Operator.NOT in one.plan.operators and one.excluded
    ]
    weight, shift = 0.0, 0.0
    if drops:
        tried = {
            (w, s): fitter.measure(drops, s, (joined[Operator.AND], joined[Operator.OR], w))
            for w, s in product(WEIGHTS[:6], SHIFTS)
        }
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


def _write(retriever: Retriever, shift: float, weights: tuple[float, ...]) -> None:
    calibration = retriever.calibration
    with torch.no_grad():
        calibration.excluded_shift.fill_(shift)
        # The inverse of softplus; what is meant as 0 becomes 1e-4.
        wanted = torch.tensor(weights).clamp(min=1e-4)
        calibration.whole.copy_(torch.log(torch.expm1(wanted)))
