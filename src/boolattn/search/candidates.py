"""Ranking documents for plans: candidates near the positive operands, then exact composition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from boolattn.composition.exact import Ranked
from boolattn.composition.fitted import fit
from boolattn.search.engines.base import best
from boolattn.search.engines.flat import Flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.composition.fitted import Fitted
    from boolattn.composition.plan import Plan
    from boolattn.search.engines.base import Engine, Selection
    from boolattn.search.storage.segments import Array, RowNumbers

#: Fewest candidates for each probe of a composed query.
MIN_CANDIDATES = 500
CANDIDATES_PER_RESULT = 10


def n_candidates(depth: int) -> int:
    """Return how many candidates each probe finds for so many results."""
    return max(CANDIDATES_PER_RESULT * depth, MIN_CANDIDATES)


def probes(plan: Plan) -> Array:
    """Return the vectors whose neighbours are candidates. Shape ``(probes, dim)``.

    For each clause its conjunction, or its one positive operand. With negated operands also that
    less half their mean, so that not all candidates are near them. Each probe costs a search.
    """
    found = []
    for (positive, negated), own in zip(plan.clauses, plan.clause_vectors, strict=True):
        if positive:
            found.append(own)
        if negated:
            found.append(own - 0.5 * plan.vectors[list(negated)].mean(0))
    return np.unique(np.array(found, np.float32), axis=0)


class PlanRanking(NamedTuple):
    """The ranking of one plan, and the statistics that it was composed with."""

    ranked: Ranked
    fitted: Fitted | None = None


def rank(
    engine: Engine, plans: Sequence[Plan], depth: int, selection: Selection
) -> list[PlanRanking]:
    """Rank documents for each plan, at most ``depth``: their numbers and scores."""
    if isinstance(engine, Flat):
        # It compares every row anyway, and composing all costs less than choosing candidates.
        return list(_rank_all(engine, plans, depth, selection))
    # Apart: a single-vector query needs few neighbours, a composed one many candidates.
    single = [plan for plan in plans if not plan.is_composed]
    ranks = iter(_rank_single(engine, single, depth, selection))
    composed = [plan for plan in plans if plan.is_composed]
    others = iter(_rank_composed(engine, composed, depth, selection))
    return [next(others if plan.is_composed else ranks) for plan in plans]


def _rank_single(
    engine: Engine, plans: Sequence[Plan], depth: int, selection: Selection
) -> Iterator[PlanRanking]:
    if not plans:
        return
    found = engine.nearest(np.stack([plan.vectors[0] for plan in plans]), depth, selection)
    yield from map(PlanRanking, found)


def _rank_composed(
    engine: Engine, plans: Sequence[Plan], depth: int, selection: Selection
) -> Iterator[PlanRanking]:
    if not plans:
        return
    every = [probes(plan) for plan in plans]
    found = iter(engine.nearest(np.concatenate(every), n_candidates(depth), selection))
    for plan, probed in zip(plans, every, strict=True):
        candidates = np.unique(np.concatenate([next(found).rows for _ in probed]))
        yield _compose(plan, candidates, engine.similarities(plan.vectors, candidates), depth)


def _rank_all(
    flat: Flat, plans: Sequence[Plan], depth: int, selection: Selection
) -> Iterator[PlanRanking]:
    """Score every selected document for each plan."""
    allowed = selection.documents
    chosen = None if allowed is None else np.flatnonzero(allowed)
    size = max(1, flat.n_queries // max((len(plan.vectors) for plan in plans), default=1))
    for start in range(0, len(plans), size):
        group = plans[start : start + size]
        found = flat.document_scores(np.concatenate([plan.vectors for plan in group]))
        ends = np.cumsum([len(plan.vectors) for plan in group])
        for plan, own in zip(group, np.split(found, ends[:-1]), strict=True):
            # Statistics are of the selected documents.
            yield _compose(plan, chosen, own if chosen is None else own[:, chosen], depth)


def _compose(plan: Plan, rows: RowNumbers | None, own: Array, depth: int) -> PlanRanking:
    """Rank documents, by default all, by the similarities of a plan's vectors to them."""
    fitted = fit(plan.tree, own) if plan.is_composed and own.shape[1] else None
    found = _best(own[0] if fitted is None else fitted.score(own), depth)
    return PlanRanking(found if rows is None else Ranked(rows[found.rows], found.scores), fitted)


def _best(scores: Array, depth: int) -> Ranked:
    rows, own = (part[0] for part in best(np.asarray(scores, np.float32)[None], depth))
    return Ranked(rows[rows >= 0], own[rows >= 0])


def fuse(branches: Sequence[RowNumbers], depth: int, constant: int = 60) -> Ranked:
    r"""Fuse rankings by reciprocal rank: a row's score is :math:`\sum_b 1 / (c + rank_b)`.

    >>> fuse([np.array([7, 8]), np.array([8, 9])], 3).rows.tolist()
    [8, 7, 9]
    """
    scores: dict[int, float] = {}
    for rows in branches:
        for place, row in enumerate(rows.tolist(), start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (constant + place)
    order = sorted(scores, key=lambda row: (-scores[row], row))[:depth]
    return Ranked(np.array(order, np.int64), np.array([scores[row] for row in order], np.float32))
