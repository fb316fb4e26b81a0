"""Ranking rows for plans: candidates from the operands that are wanted, then exact composition.

May import: boolattn.composition, boolattn.search, boolattn.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from boolattn.search.engines import best

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from boolattn.composition.retriever import Plan, Retriever
    from boolattn.search.engines import Engine, Flat, Selection

    Array = NDArray[np.float32]

#: Fewest candidates that each vector of a composed query brings.
MIN_CANDIDATES = 1000
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

    Each wanted operand; their mean, whose neighbours belong to several of them; and the vector
    of the whole text where there is one.
    """
    wanted = plan.operand_vectors[~np.array(plan.is_excluded, bool)]
    found = [wanted]
    if len(wanted) > 1:
        found.append(wanted.mean(0, keepdims=True))
    if plan.plain is not None:
        found.append(plan.plain[None])
    return np.concatenate(found).astype(np.float32, copy=False)


def rank(
    engine: Engine, retriever: Retriever, plans: Sequence[Plan], depth: int, selection: Selection
) -> list[Ranked]:
    """Rank rows for each plan, at most ``depth``; all plans' vectors are searched in one call."""
    if not plans:
        return []
    asked = [probes(plan) if plan.is_composed else plan.vectors[:1] for plan in plans]
    is_composed = any(plan.is_composed for plan in plans)
    n = n_candidates(depth) if is_composed else depth
    found = engine.search(np.concatenate(asked), n, selection)
    ranked, start = [], 0
    for plan, own in zip(plans, asked, strict=True):
        end = start + len(own)
        rows, scores = found.rows[start:end], found.scores[start:end]
        if plan.is_composed:
            candidates = np.unique(rows[rows >= 0])
            ranked.append(_compose(engine, retriever, plan, candidates, depth))
        else:
            kept = rows[0] >= 0
            ranked.append(Ranked(rows[0][kept][:depth], scores[0][kept][:depth]))
        start = end
    return ranked


def rank_exhaustively(
    flat: Flat, retriever: Retriever, plan: Plan, depth: int, selection: Selection
) -> Ranked:
    """Compose the scores of every row."""
    scores = np.array(retriever.score(plan, flat.scores(plan.vectors)), np.float32)
    if selection.mask is not None:
        scores[~selection.mask] = -np.inf
    rows, own = best(scores[None], depth)
    kept = rows[0] >= 0
    return Ranked(rows[0][kept], own[0][kept])


def _compose(
    engine: Engine, retriever: Retriever, plan: Plan, candidates: NDArray[np.int64], depth: int
) -> Ranked:
    if not len(candidates):
        return Ranked(candidates, np.zeros(0, np.float32))
    scores = retriever.score(plan, plan.vectors @ engine.vectors(candidates).T)
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
