"""Ranking documents for plans: candidates near the positive operands, then exact composition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boolattn.composition.exact import Ranked
from boolattn.logic.operators import Operator
from boolattn.search.engines.base import best
from boolattn.search.engines.flat import Flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.composition.plan import Plan
    from boolattn.embedding.base import BaseRetriever
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

    For OR each positive operand; for AND their mean, whose neighbours belong to several; for both
    operators all of these. With negated operands also the mean less theirs, so that not all
    candidates are near them. Last the whole-query vector, where it is not the one positive operand
    itself. Each probe costs a search.
    """
    positive = plan.operand_vectors[~np.array(plan.is_negated, bool)]
    is_any = Operator.OR in plan.operators
    found = [positive] if is_any or len(positive) == 1 else []
    if len(positive) > 1 and (not is_any or Operator.AND in plan.operators):
        found.append(positive.mean(0, keepdims=True))
    if any(plan.is_negated):
        found.append(plan.single_vector[None])
    if len(positive) != 1 or not any(plan.is_negated):
        found.append(plan.vectors[-1:])
    return np.concatenate(found).astype(np.float32, copy=False)


def rank(
    engine: Engine,
    retriever: BaseRetriever,
    plans: Sequence[Plan],
    depth: int,
    selection: Selection,
) -> list[Ranked]:
    """Rank documents for each plan, at most ``depth``: their numbers and scores."""
    if isinstance(engine, Flat):
        # It compares every row anyway, and composing all costs less than choosing candidates.
        return list(_rank_all(engine, retriever, plans, depth, selection))
    # Apart: a single-vector query needs few neighbours, a composed one many candidates.
    single = [plan for plan in plans if not plan.is_composed]
    ranks = iter(_rank_single(engine, single, depth, selection))
    composed = [plan for plan in plans if plan.is_composed]
    others = iter(_rank_composed(engine, retriever, composed, depth, selection))
    return [next(others if plan.is_composed else ranks) for plan in plans]


def _rank_single(
    engine: Engine, plans: Sequence[Plan], depth: int, selection: Selection
) -> Iterator[Ranked]:
    if not plans:
        return
    yield from engine.nearest(np.stack([plan.vectors[0] for plan in plans]), depth, selection)


def _rank_composed(
    engine: Engine,
    retriever: BaseRetriever,
    plans: Sequence[Plan],
    depth: int,
    selection: Selection,
) -> Iterator[Ranked]:
    if not plans:
        return
    every = [probes(plan) for plan in plans]
    found = iter(engine.nearest(np.concatenate(every), n_candidates(depth), selection))
    for plan, probed in zip(plans, every, strict=True):
        candidates = np.unique(np.concatenate([next(found).rows for _ in probed]))
        own = engine.similarities(plan.vectors, candidates)
        chosen, scores = _best(retriever.score(plan, own), depth)
        yield Ranked(candidates[chosen], scores)


def _rank_all(
    flat: Flat, retriever: BaseRetriever, plans: Sequence[Plan], depth: int, selection: Selection
) -> Iterator[Ranked]:
    """Score every selected document for each plan."""
    size = max(1, flat.n_queries // max((len(plan.vectors) for plan in plans), default=1))
    for start in range(0, len(plans), size):
        group = plans[start : start + size]
        found = flat.document_scores(np.concatenate([plan.vectors for plan in group]))
        ends = np.cumsum([len(plan.vectors) for plan in group])
        for plan, own in zip(group, np.split(found, ends[:-1]), strict=True):
            # A copy: the score of a single vector is its similarity itself.
            scores = np.array(retriever.score(plan, own), np.float32)
            if selection.documents is not None:
                scores[~selection.documents] = -np.inf
            yield _best(scores, depth)


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
