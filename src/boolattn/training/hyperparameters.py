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

from boolattn.composition.scores import compose, with_negation_margin
from boolattn.errors import ConfigError
from boolattn.logic.operators import OPERATORS, Operator
from boolattn.training.validation import DEPTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from boolattn.composition.plan import Plan
    from boolattn.encoder.retriever import Retriever

    Array = NDArray[np.float64]

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


class Measured(NamedTuple):
    """What tries measured, query by query. Shapes ``(queries, tries)``.

    Attributes:
        precision: R-precision.
        recall: Recall@100.
        leak: 0 where a query excludes nothing.
    """

    precision: Array
    recall: Array
    leak: Array

    @property
    def worth(self) -> Array:
        """How good a ranking is: how much stands in front, and how much is found at all."""
        return (self.precision + self.recall) / 2


@dataclass(frozen=True)
class Numbers:
    """What is chosen, and what it measured."""

    negation_offset: float
    lean: float
    weights: tuple[float, ...]
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

    def measure(self, chosen: Sequence[int], tried: Sequence[Tried]) -> Measured:
        """Measure some queries; each is composed once for each shift and lean that is tried."""
        return _stacked([self._measure(place, tried) for place in chosen])

    @torch.inference_mode()
    def _measure(self, place: int, tried: Sequence[Tried]) -> Measured:
        plan = self.judged[place].plan
        whole = self._similarity(place)[-1] * self.retriever.calibration.log_alpha.exp()
        composed = {key: self._composed(place, *key) for key in {(t.shift, t.lean) for t in tried}}
        scores = [composed[t.shift, t.lean] + _weight(plan, t.weights) * whole for t in tried]
        return self._judge(place, torch.stack(scores))

    @torch.inference_mode()
    def measure_plain(self, chosen: Sequence[int]) -> Measured:
        """Measure some queries by the text's one vector."""
        rows = []
        for place in chosen:
            vector = torch.from_numpy(self.judged[place].plan.plain).to(self.documents)
            rows.append(self._judge(place, (self.documents @ vector)[None]))
        return _stacked(rows)

    def _judge(self, place: int, scores: Tensor) -> Measured:
        """Measure rankings of one query. Scores ``(tries, documents)``, results ``(tries,)``."""
        one = self.judged[place]
        n_gold, n_drop = len(one.gold), len(one.excluded)
        depth = min(max(DEPTH, n_gold + n_drop), len(self.documents))
        best = torch.topk(scores, depth).indices
        return Measured(
            self._share(best[:, :n_gold], one.gold),
            self._share(best[:, :DEPTH], one.gold),
            self._share(best[:, : n_gold + n_drop], one.excluded),
        )

    def _share(self, best: Tensor, known: frozenset[int]) -> Array:
        """Return how much of some documents stands in each row; of none, nothing."""
        is_known = torch.zeros(len(self.documents), dtype=torch.float64, device=best.device)
        is_known[sorted(known)] = 1
        shares: Array = (is_known[best].sum(-1) / max(1, len(known))).cpu().numpy()
        return shares

    def _composed(self, place: int, shift: float, lean: float) -> Tensor:
        """Return the composed score without the whole vector's part."""
        plan = self.judged[place].plan
        vectors = torch.from_numpy(plan.vectors).to(self.documents)
        calibration = self.retriever.calibration
        excluded = torch.tensor(plan.is_negated, dtype=torch.float32, device=vectors.device)
        middle = calibration.threshold + vectors[:-1] @ calibration.breadth - shift * excluded
        similarities = self._similarity(place)[:-1]
        logits = calibration.log_alpha.exp() * (similarities - middle[:, None])
        scores: Tensor = compose(plan.tree, with_negation_margin(plan.tree, logits, lean))
        return scores

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


def _stacked(rows: Sequence[Measured]) -> Measured:
    return Measured(*(np.stack(column) for column in zip(*rows, strict=True)))


def _weight(plan: Plan, weights: tuple[float, ...]) -> float:
    """Return the whole vector's weight, by the same rule as the calibration's own."""
    named = dict(zip(OPERATORS, weights, strict=True))
    if Operator.NOT in plan.operators:
        return named[Operator.NOT]
    return sum(named[operator] for operator in plan.operators)


def fit_numbers(fitter: Fitter) -> Numbers:
    """Choose the numbers, write them into the calibration, and return them.

    A ranking is worth the mean of its R-precision and its Recall@100. AND and OR take the largest
    weight up to which none can be told from the best: what few queries cannot show is left to the
    whole vector. NOT takes, of the numbers whose rankings are worth no less than those of the
    text's one vector, those with the most worth less the leak's cost; if none is, the best of all.
    What no query asks for stays as it was learned.
    """
    if not fitter.judged:
        raise ConfigError(
            "no validation query was read as Boolean, so there is nothing to choose the numbers by;"
            " train the reader longer, or set compose.fit_numbers=false"
        )
    learned = _learned(fitter.retriever)
    others = tuple(
        _steady_weight(fitter, operator, weight)
        for operator, weight in zip((Operator.AND, Operator.OR), learned.weights, strict=False)
    )
    best = learned._replace(weights=(*others, learned.weights[-1]))
    drops = [
        place
        for place, one in enumerate(fitter.judged)
        if Operator.NOT in one.plan.operators and one.excluded
    ]
    if drops:
        grid = [
            Tried(shift, lean, (*others, weight))
            for shift, lean, weight in product(SHIFTS, LEANS, WEIGHTS)
        ]
        found = fitter.measure(drops, grid)
        worth = found.worth.mean(0)
        is_free = worth >= fitter.measure_plain(drops).worth.mean()
        gain = worth - LEAK_COST * found.leak.mean(0)
        best = grid[int(np.where(is_free | ~is_free.any(), gain, -np.inf).argmax())]
    everything = fitter.measure(range(len(fitter.judged)), [best])
    is_excluding = [bool(one.excluded) for one in fitter.judged]
    leak = float(everything.leak[is_excluding].mean()) if any(is_excluding) else 0.0
    _write(fitter.retriever, best)
    return Numbers(best.shift, best.lean, best.weights, float(everything.precision.mean()), leak)


def _learned(retriever: Retriever) -> Tried:
    """Return the numbers as they were learned: they stay where no query asks for others."""
    calibration = retriever.calibration
    weights = torch.nn.functional.softplus(calibration.whole_query.detach()).tolist()
    return Tried(
        calibration.negation_offset.item(), calibration.negation_margin.item(), tuple(weights)
    )


def _steady_weight(fitter: Fitter, operator: Operator, learned: float) -> float:
    """Return the largest weight under one operator up to which none is told from the best."""
    chosen = fitter.with_operators(operator)
    if not chosen:
        return learned
    worth = fitter.measure(
        chosen, [Tried(0.0, 0.0, (weight, weight, 0.0)) for weight in WEIGHTS]
    ).worth
    best = int(worth.mean(0).argmax())
    behind = worth[:, [best]] - worth
    # A standard error of one query is not known. Where one query of several differs, mean and
    # error are the same number, so rounding must not decide.
    error = behind.std(0, ddof=1) / np.sqrt(len(chosen)) if len(chosen) > 1 else np.inf
    is_near = behind.mean(0) <= error * (1 + 1e-9) + 1e-12
    last = best
    while last + 1 < len(WEIGHTS) and is_near[last + 1]:
        last += 1
    return WEIGHTS[last]


def _write(retriever: Retriever, chosen: Tried) -> None:
    calibration = retriever.calibration
    with torch.no_grad():
        calibration.negation_offset.fill_(chosen.shift)
        calibration.negation_margin.fill_(chosen.lean)
        calibration.set_whole_query_weights(chosen.weights)
