"""Exact ranking of a whole corpus by composed scores, where its vectors fit in memory.

May import: boolattn.composition.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.composition.scores import structure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from boolattn.composition.plan import Plan
    from boolattn.encoder.retriever import Retriever

_AT_ONCE = 64
#: Scores computed at once: plans times documents.
_NUMBERS = 1 << 23


def rank(
    retriever: Retriever, plans: Sequence[Plan], documents: Tensor, depth: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rank all documents for each plan.

    Args:
        retriever: What made the plans.
        plans: The queries.
        documents: Vectors, on the device that computes. Shape ``(documents, dim)``.
        depth: How many are returned.

    Returns:
        Rows and scores, best first. Both shapes ``(plans, depth)``.
    """
    depth = min(depth, len(documents))
    rows = np.empty((len(plans), depth), dtype=np.int32)
    scores = np.empty((len(plans), depth), dtype=np.float32)
    plain = [place for place, plan in enumerate(plans) if not plan.is_composed]
    with torch.inference_mode():
        for start in range(0, len(plain), _AT_ONCE):
            part = plain[start : start + _AT_ONCE]
            vectors = torch.from_numpy(np.concatenate([plans[p].vectors for p in part]))
            best = torch.topk(vectors.to(documents) @ documents.T, depth)
            rows[part], scores[part] = best.indices.cpu().numpy(), best.values.float().cpu().numpy()
        for part in _alike(plans, len(documents)):
            best = torch.topk(score(retriever, [plans[p] for p in part], documents), depth)
            rows[part], scores[part] = best.indices.cpu().numpy(), best.values.cpu().numpy()
    return rows, scores


def _alike(plans: Sequence[Plan], n_documents: int) -> Iterator[list[int]]:
    """Put composed plans of one structure together: a few numbers each, and as many kernels."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for place, plan in enumerate(plans):
        if plan.is_composed:
            groups[structure(plan.tree)].append(place)
    size = max(1, _NUMBERS // n_documents)
    for group in groups.values():
        yield from (group[start : start + size] for start in range(0, len(group), size))


def score(retriever: Retriever, plans: Sequence[Plan], documents: Tensor) -> Tensor:
    """Score every document by composed plans of one structure. Shape ``(plans, documents)``."""
    device = documents.device
    vectors = torch.from_numpy(np.stack([plan.vectors for plan in plans])).to(device)
    similarities = (vectors.to(documents) @ documents.T).float()
    excluded = torch.tensor(plans[0].is_negated, dtype=torch.float32, device=device)
    # The few numbers are computed where the towers are: the calibration must not move.
    home = retriever.towers.device
    logits = retriever.calibration(
        similarities[:, :-1].to(home), vectors[:, :-1].to(home), excluded.to(home)
    )
    return retriever.compose(plans[0], logits.transpose(0, 1), similarities[:, -1].to(home))


def single_vector(plan: Plan, weight: float = 0.5) -> NDArray[np.float32]:
    """Return one vector for an engine that takes no more; composing finds better. Shape ``(dim,)``.

    The mean of the wanted operands less a part of the mean of the excluded ones.
    """
    is_out = np.array(plan.is_negated, bool)
    operands = plan.operand_vectors
    vector: NDArray[np.float32] = operands[~is_out].mean(0)
    if is_out.any():
        vector = vector - weight * operands[is_out].mean(0)
    return np.asarray(vector, np.float32)
