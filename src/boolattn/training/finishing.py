"""What is left when the towers are trained: the composition's numbers are chosen.

No vector changes. May import: boolattn.composition, boolattn.data, boolattn.training.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from boolattn.data.readings_sources import marked_paraphrases, marked_queries
from boolattn.training.fitting import Fitter, Judged, fit_numbers
from boolattn.training.validation import choose, encode, sample_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.composition.retriever import Retriever
    from boolattn.data.readings import Marked
    from boolattn.data.records import Query
    from boolattn.training.batches import Tokens
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

_AT_ONCE = 128


def marked_split(queries: Sequence[Query]) -> dict[str, Marked]:
    """Mark what can be marked of a split, by text."""
    unmarked = [query for query in queries if not all(o.spans for o in query.operands)]
    return {item.text: item for item in (*marked_queries(queries), *marked_paraphrases(unmarked))}


def fit(
    retriever: Retriever,
    preset: Preset,
    queries: Sequence[Query],
    documents: Tokens,
    rows: dict[str, int],
) -> dict[str, float]:
    """Choose the composition's numbers on a validation split, among sampled documents.

    Returns:
        What was chosen, and what it measured there.
    """
    settings = preset.train
    asked = choose(queries, rows, settings.n_validation_queries, settings.seed)
    ranked = sample_rows(asked, len(documents), settings.n_validation_documents, settings.seed)
    logger.info("fitting on %d queries and %d documents", len(asked), len(ranked))
    with torch.inference_mode():
        vectors = encode(retriever.towers, documents, ranked, "document", _AT_ONCE).cpu()
    place = {row: number for number, row in enumerate(ranked)}
    texts = [query.text for query in asked]
    plans = [
        plan
        for start in range(0, len(texts), _AT_ONCE)
        for plan in retriever.plan(texts[start : start + _AT_ONCE])
    ]
    judged = [
        Judged(
            plan,
            frozenset(place[row] for row in query.gold),
            frozenset(place[row] for row in query.excluded),
        )
        for plan, query in zip(plans, asked, strict=True)
    ]
    device = retriever.towers.device
    retriever.calibration.cpu()
    try:
        found = fit_numbers(Fitter(retriever, judged, vectors))
    finally:
        retriever.calibration.to(device)
    names = ("and", "or", "not")
    return {
        "excluded_shift": found.excluded_shift,
        **{f"whole_{name}": w for name, w in zip(names, found.weights, strict=True)},
        "composed_r_precision": found.r_precision,
        "composed_leak": found.leak,
    }
