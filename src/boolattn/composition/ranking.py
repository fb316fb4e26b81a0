"""Exact ranking of a whole corpus by composed scores, where its vectors fit in memory.

May import: boolattn.composition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from boolattn.composition.retriever import Plan, Retriever

_AT_ONCE = 64


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
        for place, plan in enumerate(plans):
            if plan.is_composed:
                best = torch.topk(score(retriever, plan, documents), depth)
                rows[place] = best.indices.cpu().numpy()
                scores[place] = best.values.cpu().numpy()
    return rows, scores


def score(retriever: Retriever, plan: Plan, documents: Tensor) -> Tensor:
    """Score every document by a composed plan. Shape ``(documents,)``."""
    device = documents.device
    vectors = torch.from_numpy(plan.vectors).to(device)
    similarities = (vectors.to(documents) @ documents.T).float()
    excluded = torch.tensor(plan.is_excluded, dtype=torch.float32, device=device)
    # The few numbers are computed where the towers are: the calibration must not move.
    home = retriever.towers.device
    logits = retriever.calibration(
        similarities[:-1].to(home), vectors[:-1].to(home), excluded.to(home)
    )
    return retriever.compose(plan, logits, similarities[-1].to(home))


def single_vector(plan: Plan, weight: float = 0.5) -> NDArray[np.float32]:
    """Return one vector for an engine that takes no more; composing finds better. Shape ``(dim,)``.

    The mean of the wanted operands less a part of the mean of the excluded ones.
    """
    is_out = np.array(plan.is_excluded, bool)
    operands = plan.operand_vectors
    vector: NDArray[np.float32] = operands[~is_out].mean(0)
    if is_out.any():
        vector = vector - weight * operands[is_out].mean(0)
    return np.asarray(vector, np.float32)
