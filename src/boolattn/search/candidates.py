"""Ranking rows for plans: candidates from the operands that are wanted, then exact composition.

May import: boolattn.composition, boolattn.search, boolattn.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from boolattn.composition.exact import single_vector
from boolattn.logic.operators import Operator
from boolattn.search.engines.base import Flat, best

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from boolattn.composition.plan import Plan
    from boolattn.encoder.retriever import Retriever
    from boolattn.search.engines.base import Engine, Selection

    Array = NDArray[np.float32]

#: Fewest candidates that each vector of a composed query brings.
MIN_CANDIDATES = 500
CANDIDATES_PER_RESULT = 10


class Ranked(NamedTuple):
    """Rows, best first, with their scores."""

    rows: NDArray[np.int64]
    scores: Array


def n_candidates(depth: int) -> int:
    """Return how many candidates each vector brings for so many results."""
    return max(CANDIDATES_PER_RESULT * depth, MIN_CANDIDATES)


def probes(plan: Plan) -> Array:
    """Return the vectors whose neighbours are candidates. Shape ``(probes, dim)``.

    Where OR joins the wanted operands, each of them; where AND does, their mean, whose neighbours
    belong to several; where both do, all of these. What is left of the mean without the excluded
    operands, so that these do not take all the places; the whole last, where it is not the one
    wanted operand itself. Each costs a search.
    """
    wanted = plan.operand_vectors[~np.array(plan.is_negated, bool)]
    is_any = Operator.OR in plan.operators
    found = [wanted] if is_any or len(wanted) == 1 else []
    if len(wanted) > 1 and (not is_any or Operator.AND in plan.operators):
        found.append(wanted.mean(0, keepdims=True))
    if any(plan.is_negated):
        found.append(single_vector(plan)[None])
    if len(wanted) != 1 or not any(plan.is_negated):
        found.append(plan.vectors[-1:])
    return np.concatenate(found).astype(np.float32, copy=False)


def rank(
    engine: Engine, retriever: Retriever, plans: Sequence[Plan], depth: int, selection: Selection
) -> list[Ranked]:
    """Rank rows for each plan, at most ``depth``; all plans' vectors are searched in one call."""
    if not plans:
        return []
    if isinstance(engine, Flat):
        # It compares with every row anyway, and composing them all costs less than finding out
        # which are worth it.
        return rank_exhaustively(engine, retriever, plans, depth, selection)
    # A plain query wants few neighbours, so it does not wait for the candidates of another.
    plain = [plan for plan in plans if not plan.is_composed]
    ranks = iter(_rank_plain(engine, plain, depth, selection))
    composed = [plan for plan in plans if plan.is_composed]
    others = iter(_rank_composed(engine, retriever, composed, depth, selection))
    return [next(others if plan.is_composed else ranks) for plan in plans]


def _rank_plain(
    engine: Engine, plans: Sequence[Plan], depth: int, selection: Selection
) -> Iterator[Ranked]:
    if not plans:
        return
    found = engine.search(np.stack([plan.vectors[0] for plan in plans]), depth, selection)
    for rows, scores in zip(found.rows, found.scores, strict=True):
        yield Ranked(rows[rows >= 0], scores[rows >= 0])


def _rank_composed(
    engine: Engine, retriever: Retriever, plans: Sequence[Plan], depth: int, selection: Selection
) -> Iterator[Ranked]:
    if not plans:
        return
    asked = [probes(plan) for plan in plans]
    found = engine.search(np.concatenate(asked), n_candidates(depth), selection).rows
    start = 0
    for plan, own in zip(plans, asked, strict=True):
        rows = found[start : start + len(own)]
        start += len(own)
        yield _compose(engine, retriever, plan, np.unique(rows[rows >= 0]), depth)


def rank_exhaustively(
    flat: Flat, retriever: Retriever, plans: Sequence[Plan], depth: int, selection: Selection
) -> list[Ranked]:
    """Score every row that may be found for each plan."""
    ranked: list[Ranked] = []
    for group in _groups(plans, flat.n_queries):
        similarities = flat.scores(np.concatenate([plan.vectors for plan in group]))
        start = 0
        for plan in group:
            end = start + len(plan.vectors)
            # A copy: a plan of one vector is scored by its similarity itself.
            scores = np.array(retriever.score(plan, similarities[start:end]), np.float32)
            if selection.mask is not None:
                scores[~selection.mask] = -np.inf
            rows, own = best(scores[None], depth)
            kept = rows[0] >= 0
            ranked.append(Ranked(rows[0][kept], own[0][kept]))
            start = end
    return ranked


def _groups(plans: Sequence[Plan], size: int) -> Iterator[list[Plan]]:
    """Put plans together as long as they have no more vectors than fit."""
    group: list[Plan] = []
    for plan in plans:
        if group and sum(len(own.vectors) for own in group) + len(plan.vectors) > size:
            yield group
            group = []
        group.append(plan)
    if group:
        yield group


def _compose(
    engine: Engine, retriever: Retriever, plan: Plan, candidates: NDArray[np.int64], depth: int
) -> Ranked:
    if not len(candidates):
        return Ranked(candidates, np.zeros(0, np.float32))
    # By torch: numpy's threads go on spinning when they are done, and the next query's encoder,
    # which has threads of its own, waits for a core.
    vectors = torch.from_numpy(np.ascontiguousarray(engine.vectors(candidates), np.float32))
    similarities = (torch.from_numpy(plan.vectors) @ vectors.T).numpy()
    scores = retriever.score(plan, similarities)
    found = best(np.asarray(scores, np.float32)[None], depth)
    kept = found.rows[0] >= 0
    return Ranked(candidates[found.rows[0][kept]], found.scores[0][kept])


def fuse(branches: Sequence[NDArray[np.int64]], depth: int, constant: int = 60) -> Ranked:
    r"""Join rankings by reciprocal rank: a row's score is :math:`\sum_b 1 / (c + rank_b)`.

    >>> fuse([np.array([7, 8]), np.array([8, 9])], 3).rows.tolist()
    [8, 7, 9]
    """
    scores: dict[int, float] = {}
    for rows in branches:
        for place, row in enumerate(rows.tolist(), start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (constant + place)
    order = sorted(scores, key=lambda row: (-scores[row], row))[:depth]
    return Ranked(np.array(order, np.int64), np.array([scores[row] for row in order], np.float32))
