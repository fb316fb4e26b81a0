"""Breadth taught bare operands, as people type them: "moths AND Borneo NOT Sumatra".

A data set names its operands in full, "moths of Borneo" and "moths of Sumatra". What the
calibration learns from them of an operand's breadth is that a place makes it narrow, and a place
alone it takes for narrower still: nothing is ever held to belong to it, and its exclusion excludes
nothing, although its vector knows very well which documents are of that place. So queries are asked
with bare operands too (:mod:`boolattn.data.bare`), and ``breadth`` alone learns from them, while
operands that are named in full keep the thresholds that they have.
May import: boolattn.composition, boolattn.data.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.data.bare import bare_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from boolattn.composition.plan import Plan
    from boolattn.composition.retriever import Retriever
    from boolattn.data.records import Query

logger = logging.getLogger(__name__)

#: Queries that are drawn, of those that can be said barely.
N_QUERIES = 1000
#: Names in full whose thresholds are held.
N_NAMES = 3000
#: Documents that a query's own compete with: the nearest to each of its vectors, and some others.
NEAREST, OTHERS = 500, 500
#: What moving the thresholds of operands named in full costs. A tenth of it and OR loses two points
#: of R-precision, ten times it and bare exclusions gain a third (taxa-small).
HOLD = 300.0
_AT_ONCE = 128
_DRAW, _OTHERS = 9, 10


@dataclass(frozen=True)
class _Asked:
    """A query said barely, beside the documents that compete.

    Attributes:
        plan: Of the query.
        vectors: Its operands'. Shape ``(operands, dim)``.
        similarities: Of operands and whole. Shape ``(operands + 1, documents)``.
        n_gold: How many documents are right; they come first.
    """

    plan: Plan
    vectors: Tensor
    similarities: Tensor
    n_gold: int


def teach_bare(
    retriever: Retriever,
    queries: Sequence[Query],
    documents: Tensor,
    rows: Mapping[str, int],
    *,
    n_steps: int,
    seed: int,
) -> dict[str, float]:
    """Teach a calibration how similar a document must be to a bare operand.

    Args:
        retriever: Its calibration's breadth is changed, and nothing else.
        queries: That it was trained on; their operands' names and right documents are used.
        documents: Vectors of the corpus. Shape ``(documents, dim)``.
        rows: Row of each document, by id.
        n_steps: How many steps, each over all of them.
        seed: Of the draws.

    Returns:
        The mean loss of the queries before and after; nothing where none can be said barely.
    """
    rng = np.random.default_rng([seed, _DRAW])
    known = [
        (query, tree, gold)
        for query in queries
        if (tree := bare_tree(query)) is not None
        and (gold := [rows[name] for name in query.gold if name in rows])
    ]
    if not known:
        logger.warning("no training query can be said with bare operands: breadth stays as learned")
        return {}
    if len(known) > N_QUERIES:
        known = [known[place] for place in sorted(rng.choice(len(known), N_QUERIES, replace=False))]
    logger.info("teaching bare operands on %d queries", len(known))
    others = (
        np.random.default_rng([seed, _OTHERS])
        .choice(len(documents), min(OTHERS, len(documents)), replace=False)
        .tolist()
    )
    plans = [
        plan
        for start in range(0, len(known), _AT_ONCE)
        for plan in retriever.plan_trees([tree for _, tree, _ in known[start : start + _AT_ONCE]])
    ]
    asked = [
        _asked(plan, gold, documents, others)
        for plan, (_, _, gold) in zip(plans, known, strict=True)
    ]
    names = sorted({operand.text for query in queries for operand in query.operands})
    if len(names) > N_NAMES:
        names = [names[place] for place in sorted(rng.choice(len(names), N_NAMES, replace=False))]
    held = torch.cat(
        [
            torch.from_numpy(retriever.encode_operands(names[start : start + _AT_ONCE]))
            for start in range(0, len(names), _AT_ONCE)
        ]
    ).to(documents)
    return _learn(retriever, asked, held, n_steps)


def _asked(plan: Plan, gold: Sequence[int], documents: Tensor, others: Sequence[int]) -> _Asked:
    vectors = torch.from_numpy(plan.vectors).to(documents)
    all_similarities = vectors @ documents.T
    nearest = all_similarities.topk(min(NEAREST, len(documents))).indices.flatten().tolist()
    right = set(gold)
    chosen = [*gold, *(row for row in dict.fromkeys([*nearest, *others]) if row not in right)]
    return _Asked(plan, vectors[:-1], all_similarities[:, chosen], len(gold))


def _learn(
    retriever: Retriever, asked: Sequence[_Asked], held: Tensor, n_steps: int
) -> dict[str, float]:
    breadth = retriever.calibration.breadth
    before = breadth.detach().clone()
    # Directions in which names in full differ are stiff, the others soft: a plain gradient crawls.
    optimizer = torch.optim.LBFGS([breadth], max_iter=n_steps, line_search_fn="strong_wolfe")
    losses: list[float] = []

    def closure() -> Tensor:
        loss = _loss(retriever, asked)
        losses.append(loss.item())
        cost = loss + HOLD * (held @ (breadth - before)).square().mean()
        (breadth.grad,) = torch.autograd.grad(cost, [breadth])
        return cost.detach()

    optimizer.step(closure)
    breadth.grad = None
    with torch.no_grad():
        after = _loss(retriever, asked).item()
    return {"bare_loss_before": losses[0], "bare_loss": after}


def _loss(retriever: Retriever, asked: Sequence[_Asked]) -> Tensor:
    """Return how little of the composed scores' softmax falls to right documents."""
    losses = []
    for one in asked:
        is_excluded = torch.tensor(one.plan.is_excluded, device=one.vectors.device)
        logits = retriever.calibration(one.similarities[:-1], one.vectors, is_excluded)
        scores = retriever.compose(one.plan, logits, one.similarities[-1])
        losses.append(-scores.log_softmax(-1)[: one.n_gold].mean())
    return torch.stack(losses).mean()
