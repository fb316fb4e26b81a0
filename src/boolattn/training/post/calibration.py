"""Hyper-parameters and displayed probabilities, fitted to a validation split."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.encoder.operand_logits import operand_logits, sample_operands
from boolattn.evaluation.reliability import fit_scale
from boolattn.training.post.hyperparameters import (
    HyperparameterSearch,
    JudgedPlan,
    select_hyperparameters,
)
from boolattn.training.validation import encode, sample_queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from boolattn.data.records import Query
    from boolattn.encoder.retriever import Retriever
    from boolattn.training.corpus import Corpus
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

_AT_ONCE = 128


def calibrate(retriever: Retriever, preset: Preset, corpus: Corpus) -> dict[str, float]:
    """Select hyper-parameters on the validation split, over all documents of a corpus.

    Over a sample of the documents, an excluded set is a larger share of what competes, and
    exclusion looks better than it is: selected over 20,000 of 219,002 documents, it cost a third
    of the R-precision of NOT queries.

    Returns:
        What was selected, and its metrics.
    """
    settings, queries = preset.train, corpus.split(preset.data.validation)
    chosen = sample_queries(queries, corpus.rows, settings.n_validation_queries, settings.seed)
    everything = range(len(corpus.documents))
    logger.info("calibrating on %d queries and %d documents", len(chosen), len(everything))
    with torch.inference_mode():
        documents = encode(retriever.towers, corpus.documents, everything, "document", _AT_ONCE)
    texts = [query.text for query in chosen]
    plans = [
        plan
        for start in range(0, len(texts), _AT_ONCE)
        for plan in retriever.plan(texts[start : start + _AT_ONCE])
    ]
    judged = [
        JudgedPlan(plan, frozenset(query.gold), frozenset(query.excluded))
        for plan, query in zip(plans, chosen, strict=True)
    ]
    search = HyperparameterSearch(retriever, judged, documents)
    if not search.judged:
        # Not an error: a long training would be lost.
        logger.warning(
            "no validation query was parsed as Boolean: hyper-parameters stay as trained"
        )
        return {}
    found = select_hyperparameters(search)
    fit_displayed_probabilities(retriever, queries, documents, corpus.rows)
    names = ("and", "or", "not")
    return {
        "negation_offset": found.negation_offset,
        "negation_margin": found.negation_margin,
        **{f"whole_{name}": w for name, w in zip(names, found.weights, strict=True)},
        "composed_r_precision": found.r_precision,
        "composed_leak": found.leak,
    }


def fit_displayed_probabilities(
    retriever: Retriever, queries: Sequence[Query], documents: Tensor, rows: Mapping[str, int]
) -> None:
    """Fit the displayed probabilities to the known members of some queries' operands.

    Rankings do not change. Where no members are known, the composed probability is displayed.

    Args:
        retriever: With its final hyper-parameters.
        queries: Neither trained on nor reported.
        documents: Vectors of the corpus. Shape ``(documents, dim)``.
        rows: Row of each document, by id.
    """
    retriever.calibration.reset_display()
    operands = sample_operands(queries, rows)
    if not operands:
        return
    logits, is_true = operand_logits(retriever, operands, documents)
    is_negated = np.array([operand.is_negated for operand in operands])
    for row, chosen in enumerate((~is_negated, is_negated)):
        is_known = ~np.isnan(logits[chosen])
        if is_true[chosen][is_known].any():
            own = fit_scale(logits[chosen][is_known], is_true[chosen][is_known])
            retriever.calibration.display_scale[row] = torch.tensor(own)
            kind = ("positive", "negated")[row]
            logger.info("displayed probabilities of %s operands: %.2f z %+.2f", kind, *own)
