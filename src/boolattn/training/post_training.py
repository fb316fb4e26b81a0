"""What is left when the towers are trained: gate and reader polished, the numbers chosen.

Nothing of it changes a document's vector.
May import: boolattn.composition, boolattn.data, boolattn.training.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.data.readings_generated import generate_marked
from boolattn.data.readings_natural import natural_readings, short_readings
from boolattn.data.readings_sources import mark_sentences, marked_paraphrases, marked_queries
from boolattn.data.sentences import Mixture
from boolattn.encoder.operand_logits import operand_logits, sample_operands
from boolattn.evaluation.reliability import fit_scale
from boolattn.training.gate_training import teach_gate
from boolattn.training.hyperparameters import Fitter, Judged, fit_numbers
from boolattn.training.parser_training import polish_reader
from boolattn.training.validation import choose, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from boolattn.data.records import Query
    from boolattn.data.sentences import Sentence
    from boolattn.data.sentences.store import SentenceStore
    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.parsed_query import LabelledQuery
    from boolattn.training.batches import Tokens
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

_AT_ONCE = 128


def marked_split(queries: Sequence[Query]) -> dict[str, LabelledQuery]:
    """Mark what can be marked of a split, by text."""
    unmarked = [query for query in queries if not all(o.spans for o in query.operands)]
    return {item.text: item for item in (*marked_queries(queries), *marked_paraphrases(unmarked))}


def reading_sources(
    preset: Preset, marked: Mapping[str, LabelledQuery], made: SentenceStore
) -> list[list[LabelledQuery]]:
    """Return what a reader learns from, source by source; what is not asked for is empty."""
    settings, seed = preset.compose, preset.train.seed
    count = settings.n_generated + settings.n_wide + settings.n_natural + settings.n_short
    logger.info("making %d readings", count)
    wide: Sequence[Sentence] = ()
    if settings.n_wide:
        wide = made.sentences(settings.n_wide, seed, Mixture(varied=1.0))
    return [
        list(marked.values()),
        list(generate_marked(settings.n_generated, seed)),
        list(mark_sentences(wide)),
        list(natural_readings(settings.n_natural, seed)) if settings.n_natural else [],
        list(short_readings(settings.n_short, seed)) if settings.n_short else [],
    ]


def polish(
    retriever: Retriever,
    preset: Preset,
    sources: Sequence[Sequence[LabelledQuery]],
    log: Callable[[int, dict[str, float]], None],
) -> None:
    """Polish a reader on marked texts."""
    polish_reader(
        retriever,
        [source for source in sources if source],
        preset.compose,
        length=preset.model.query_length,
        seed=preset.train.seed,
        log=log,
    )


def teach(
    retriever: Retriever, preset: Preset, sources: Sequence[Sequence[LabelledQuery]]
) -> float:
    """Teach a learned gate again; return the share of texts that it gets right."""
    return teach_gate(
        retriever,
        [source for source in sources if source],
        n_steps=preset.compose.gate_steps,
        batch_size=preset.compose.read_batch,
        length=preset.model.query_length,
        seed=preset.train.seed,
    )


def fit(
    retriever: Retriever,
    preset: Preset,
    queries: Sequence[Query],
    documents: Tokens,
    rows: dict[str, int],
) -> dict[str, float]:
    """Choose the composition's numbers on a validation split, among all documents.

    Among fewer, an excluded set is a larger share of what competes, and exclusion looks better
    than it is: chosen among 20,000 of 219,002, it cost a third of the R-precision of NOT queries.

    Returns:
        What was chosen, and what it measured there.
    """
    settings = preset.train
    asked = choose(queries, rows, settings.n_validation_queries, settings.seed)
    everything = range(len(documents))
    logger.info("fitting on %d queries and %d documents", len(asked), len(documents))
    with torch.inference_mode():
        vectors = encode(retriever.towers, documents, everything, "document", _AT_ONCE)
    texts = [query.text for query in asked]
    plans = [
        plan
        for start in range(0, len(texts), _AT_ONCE)
        for plan in retriever.plan(texts[start : start + _AT_ONCE])
    ]
    judged = [
        Judged(plan, frozenset(query.gold), frozenset(query.excluded))
        for plan, query in zip(plans, asked, strict=True)
    ]
    fitter = Fitter(retriever, judged, vectors)
    if not fitter.judged:
        # A training of hours must not be lost for it.
        logger.warning(
            "no validation query was read as Boolean: the composition's numbers stay as learned"
        )
        return {}
    found = fit_numbers(fitter)
    scale_probabilities(retriever, queries, vectors, rows)
    names = ("and", "or", "not")
    return {
        "excluded_shift": found.negation_offset,
        "lean": found.lean,
        **{f"whole_{name}": w for name, w in zip(names, found.weights, strict=True)},
        "composed_r_precision": found.r_precision,
        "composed_leak": found.leak,
    }


def scale_probabilities(
    retriever: Retriever, queries: Sequence[Query], documents: Tensor, rows: Mapping[str, int]
) -> None:
    """Fit the probabilities that are shown to what belongs to the operands of some queries.

    Nothing that ranks is changed. Where nobody knows what belongs to an operand, what is composed
    is shown.

    Args:
        retriever: Its numbers are settled.
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
            logger.info(
                "probabilities of %s operands: %.2f z %+.2f", ("kept", "excluded")[row], *own
            )
