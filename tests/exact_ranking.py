"""An exact ranking of all documents, to compare others with."""

import numpy as np

from boolattn.arrays import same_type, to_numpy
from boolattn.scoring.exact import Ranked, score, top_k


def rank_plans(plans, documents, depth):
    """Return the best documents of each plan."""
    ranked = []
    for plan in plans:
        similarities = to_numpy(same_type(plan.vectors, documents) @ documents.T)
        ranked.append(top_k(score(plan, similarities.astype(np.float32))[None], depth))
    return Ranked(*(np.concatenate(column) for column in zip(*ranked, strict=True)))
