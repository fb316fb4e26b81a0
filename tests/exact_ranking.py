"""An exact ranking of all documents, to compare others with."""

import numpy as np

from boolattn.scoring.exact import Ranked, top_k
from boolattn.scoring.fitted import fit


def score(plan, similarities):
    """Score documents as a search does: composed, or by similarity."""
    return fit(plan.tree, similarities).score(similarities) if plan.is_composed else similarities[0]


def rank_plans(plans, documents, depth):
    """Return the best documents of each plan."""
    ranked = []
    for plan in plans:
        similarities = plan.vectors @ documents.T
        ranked.append(top_k(score(plan, similarities.astype(np.float32))[None], depth))
    return Ranked(*(np.concatenate(column) for column in zip(*ranked, strict=True)))
