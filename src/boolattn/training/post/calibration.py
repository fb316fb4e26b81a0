"""Hyper-parameters and displayed probabilities, fitted to a validation split.

A training batch holds a larger share of excluded documents than a corpus, so training excludes too
much; and no loss is the metric. So five numbers are selected on a grid: the negation offset, the
negation margin, and the whole-query weights of AND, OR and NOT.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from boolattn.composition.exact import top_k
from boolattn.composition.plan import operand_logits as plan_logits
from boolattn.composition.scores import compose, with_negation_margin
from boolattn.encoder.operand_logits import operand_logits, sample_operands
from boolattn.errors import ConfigError
from boolattn.evaluation.metrics import JudgedRanking, leak, r_precision, recall
from boolattn.evaluation.reliability import fit_scale
from boolattn.logic.operators import OPERATORS, Operator
from boolattn.training.validation import DEPTH, encode, sample_queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from boolattn.composition.plan import Plan
    from boolattn.data.records import Query
    from boolattn.encoder.retriever import Retriever
    from boolattn.training.corpus import Corpus
    from boolattn.training.settings import Preset

    Array = NDArray[np.float64]

OFFSETS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2)
#: Larger ones would suit these queries, but not elided operands as in "moths NOT Kenya".
MARGINS = (0.0, 0.25, 0.5)
#: With the last, operands decide only between documents of equal whole-query similarity.
WEIGHTS = (0.0, 0.1, 0.2, 0.35, 0.6, 1.0, 1.6, 3.0, 6.0, 20.0, 60.0)
#: Cost of a returned excluded document, in relevant documents: the rank that it takes, and the
#: harm of showing it.
LEAK_COST = 2.0
_AT_ONCE = 128

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class JudgedPlan:
    """A query's plan, and the rows of its relevant and excluded documents."""

    plan: Plan
    gold: frozenset[int]
    excluded: frozenset[int]


class Candidate(NamedTuple):
    """One choice of hyper-parameters; the weights are those of AND, OR and NOT."""

    offset: float
    margin: float
    weights: tuple[float, ...]


class Measured(NamedTuple):
    """Metrics by query and candidate, each ``(queries, candidates)``."""

    r_precision: Array
    recall: Array
    leak: Array  # 0 where a query excludes nothing

    @property
    def quality(self) -> Array:
        """The mean of R-precision and Recall@100."""
        return (self.r_precision + self.recall) / 2


@dataclass(frozen=True)
class Selection:
    """The selected hyper-parameters, and their metrics."""

    negation_offset: float
    negation_margin: float
    weights: tuple[float, ...]
    r_precision: float
    leak: float


class HyperparameterSearch:
    """Measures validation queries, those that are composed, under given hyper-parameters."""

    def __init__(
        self, retriever: Retriever, judged: Sequence[JudgedPlan], documents: Tensor
    ) -> None:
        self.retriever = retriever
        self.judged = [one for one in judged if one.plan.is_composed]
        self.documents = documents
        self._similarities: dict[int, Tensor] = {}

    @torch.inference_mode()
    def measure(self, queries: Sequence[int], candidates: Sequence[Candidate]) -> Measured:
        """Measure some queries; each is composed once for each offset and margin."""
        rows = []
        for query in queries:
            plan = self.judged[query].plan
            whole = self._similarity(query)[-1] * self.retriever.calibration.log_alpha.exp()
            composed = {key: self._composed(query, *key) for key in {one[:2] for one in candidates}}
            scores = [composed[one[:2]] + _weight(plan, one.weights) * whole for one in candidates]
            rows.append(self._evaluate(query, torch.stack(scores)))
        return _stacked(rows)

    @torch.inference_mode()
    def measure_plain(self, queries: Sequence[int]) -> Measured:
        """Measure some queries ranked by the plain vector of the text."""
        rows = []
        for query in queries:
            vector = torch.from_numpy(self.judged[query].plan.plain).to(self.documents)
            rows.append(self._evaluate(query, (self.documents @ vector)[None]))
        return _stacked(rows)

    def _evaluate(self, query: int, scores: Tensor) -> Measured:
        """Evaluate rankings of one query. Scores ``(candidates, documents)``."""
        one = self.judged[query]
        rows = top_k(scores, max(DEPTH, len(one.gold) + len(one.excluded))).rows
        judged = JudgedRanking.of_query(rows, one.gold, one.excluded)
        return Measured(r_precision(judged), recall(judged, DEPTH), np.nan_to_num(leak(judged)))

    def _composed(self, query: int, offset: float, margin: float) -> Tensor:
        """Return the composed score without the whole-query term."""
        plan = self.judged[query].plan
        calibration = replace(self.retriever.calibration.values(), negation_offset=offset)
        logits = plan_logits(plan, self._similarity(query), calibration)
        scores: Tensor = compose(plan.tree, with_negation_margin(plan.tree, logits, margin))
        return scores

    @torch.inference_mode()
    def _similarity(self, query: int) -> Tensor:
        if query not in self._similarities:
            vectors = torch.from_numpy(self.judged[query].plan.vectors).to(self.documents)
            self._similarities[query] = vectors @ self.documents.T
        return self._similarities[query]


def _stacked(rows: Sequence[Measured]) -> Measured:
    return Measured(*(np.stack(column) for column in zip(*rows, strict=True)))


def _weight(plan: Plan, weights: tuple[float, ...]) -> float:
    """Return the whole-query weight, by the same rule as the calibration's own."""
    named = dict(zip(OPERATORS, weights, strict=True))
    if Operator.NOT in plan.operators:
        return named[Operator.NOT]
    return sum(named[operator] for operator in plan.operators)


def select_hyperparameters(search: HyperparameterSearch) -> Selection:
    """Select the hyper-parameters, write them into the calibration, and return them.

    Quality is the mean of R-precision and Recall@100. AND and OR take the largest weight up to
    which all are within one standard error of the best. NOT takes, of the candidates no worse
    than the plain vector, the one with the best quality less the cost of its leak; of all
    candidates, if none is. Operators that no query uses keep their trained values.
    """
    if not search.judged:
        raise ConfigError(
            "no validation query was parsed as Boolean, so no hyper-parameter can be selected; "
            "train the parser longer, or set compose.select_hyperparameters=false"
        )
    own = search.retriever.calibration
    weights = tuple(own.values().whole_query_weights.tolist())
    trained = Candidate(own.negation_offset.item(), own.negation_margin.item(), weights)
    others = tuple(
        _largest_weight(search, operator, weight)
        for operator, weight in zip((Operator.AND, Operator.OR), trained.weights, strict=False)
    )
    best = trained._replace(weights=(*others, trained.weights[-1]))
    negated = [
        query
        for query, one in enumerate(search.judged)
        if Operator.NOT in one.plan.operators and one.excluded
    ]
    if negated:
        grid = [
            Candidate(offset, margin, (*others, weight))
            for offset, margin, weight in product(OFFSETS, MARGINS, WEIGHTS)
        ]
        found = search.measure(negated, grid)
        quality = found.quality.mean(0)
        is_allowed = quality >= search.measure_plain(negated).quality.mean()
        gain = quality - LEAK_COST * found.leak.mean(0)
        best = grid[int(np.where(is_allowed | ~is_allowed.any(), gain, -np.inf).argmax())]
    everything = search.measure(range(len(search.judged)), [best])
    is_excluding = [bool(one.excluded) for one in search.judged]
    leak = float(everything.leak[is_excluding].mean()) if any(is_excluding) else 0.0
    with torch.no_grad():
        own.negation_offset.fill_(best.offset)
        own.negation_margin.fill_(best.margin)
        own.set_whole_query_weights(best.weights)
    return Selection(*best, float(everything.r_precision.mean()), leak)


def _largest_weight(search: HyperparameterSearch, operator: Operator, trained: float) -> float:
    """Return the largest weight under an operator up to which all are near the best."""
    queries = [i for i, one in enumerate(search.judged) if {*one.plan.operators} == {operator}]
    if not queries:
        return trained
    candidates = [Candidate(0.0, 0.0, (weight, weight, 0.0)) for weight in WEIGHTS]
    quality = search.measure(queries, candidates).quality
    best = int(quality.mean(0).argmax())
    behind = quality[:, [best]] - quality
    # One query has no standard error. Where one query of several differs, mean and error are
    # equal, so rounding must not decide.
    error = behind.std(0, ddof=1) / np.sqrt(len(queries)) if len(queries) > 1 else np.inf
    is_near = behind.mean(0) <= error * (1 + 1e-9) + 1e-12
    last = best
    while last + 1 < len(WEIGHTS) and is_near[last + 1]:
        last += 1
    return WEIGHTS[last]


def calibrate(retriever: Retriever, preset: Preset, corpus: Corpus) -> dict[str, float]:
    """Select hyper-parameters on the validation split, over all documents; return the metrics too.

    Over a sample of the documents, an excluded set is a larger share of what competes, and
    exclusion looks better than it is: selected over 20,000 of 219,002 documents, it cost a third
    of the R-precision of NOT queries.
    """
    settings, queries = preset.train, corpus.split(preset.data.validation)
    chosen = sample_queries(queries, corpus.rows, settings.n_validation_queries, settings.seed)
    everything = range(len(corpus.documents))
    logger.info("calibrating on %d queries and %d documents", len(chosen), len(everything))
    with torch.inference_mode():
        documents = encode(retriever.towers, corpus.documents, everything, "document", _AT_ONCE)
    texts = [query.text for query in chosen]
    plans = [
        plan
        for start in range(0, len(texts), _AT_ONCE)
        for plan in retriever.plan(texts[start : start + _AT_ONCE])
    ]
    judged = [
        JudgedPlan(plan, frozenset(query.gold), frozenset(query.excluded))
        for plan, query in zip(plans, chosen, strict=True)
    ]
    search = HyperparameterSearch(retriever, judged, documents)
    if not search.judged:
        # Not an error: a long training would be lost.
        logger.warning(
            "no validation query was parsed as Boolean: hyper-parameters stay as trained"
        )
        return {}
    found = select_hyperparameters(search)
    fit_displayed_probabilities(retriever, queries, documents, corpus.rows)
    return {
        "negation_offset": found.negation_offset,
        "negation_margin": found.negation_margin,
        **{f"whole_{name}": w for name, w in zip(OPERATORS, found.weights, strict=True)},
        "composed_r_precision": found.r_precision,
        "composed_leak": found.leak,
    }


def fit_displayed_probabilities(
    retriever: Retriever, queries: Sequence[Query], documents: Tensor, rows: Mapping[str, int]
) -> None:
    """Fit the displayed probabilities to the known members of some queries' operands.

    Rankings do not change. Where no members are known, the composed probability is displayed. The
    retriever has its final hyper-parameters; the queries are neither trained on nor reported.
    """
    retriever.calibration.reset_display()
    operands = sample_operands(queries, rows)
    if not operands:
        return
    logits, is_true = operand_logits(retriever, operands, documents)
    is_negated = np.array([operand.is_negated for operand in operands])
    for row, chosen in enumerate((~is_negated, is_negated)):
        is_known = ~np.isnan(logits[chosen])
        if is_true[chosen][is_known].any():
            own = fit_scale(logits[chosen][is_known], is_true[chosen][is_known])
            retriever.calibration.display_scale[row] = torch.tensor(own)
            kind = ("positive", "negated")[row]
            logger.info("displayed probabilities of %s operands: %.2f z %+.2f", kind, *own)
