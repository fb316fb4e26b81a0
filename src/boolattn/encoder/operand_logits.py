"""Logits and probabilities of operands over a sample of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from boolattn.evaluation.reliability import reliability_by_sign, sample_operands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from boolattn.data.records import Query
    from boolattn.encoder.retriever import Retriever
    from boolattn.evaluation.reliability import JudgedOperand

#: Documents of each operand: the most similar ones, and a random sample.
NEAREST, OTHERS = 200, 200
#: Similarities computed at once.
_N_VALUES = 1 << 25


def operand_logits(
    retriever: Retriever, operands: Sequence[JudgedOperand], documents: Tensor, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return logits of operands, and whether each document belongs to the operand.

    Most documents are so far from an operand that any calibration is right about them; so the most
    similar ones are taken, and a random sample of all.

    Args:
        retriever: With its calibration.
        operands: With the documents that belong to them.
        documents: Vectors of the corpus. Shape ``(documents, dim)``.
        seed: Of the sample.

    Returns:
        Both shapes ``(operands, sampled documents)``; the logit of a document that is sampled
        twice is nan the second time.
    """
    n = len(documents)
    texts = {text: index for index, text in enumerate(dict.fromkeys(o.text for o in operands))}
    vectors = torch.from_numpy(retriever.encode_operands(list(texts)))
    own = vectors[[texts[operand.text] for operand in operands]]
    is_negated = torch.tensor([float(operand.is_negated) for operand in operands])
    rng = np.random.default_rng([seed, 2])
    others = torch.from_numpy(rng.choice(n, min(OTHERS, n), replace=False)).to(documents.device)
    calibration = retriever.calibration_arrays.like(own)
    found, sampled = [], []
    with torch.inference_mode():
        for part in torch.arange(len(operands)).split(max(1, _N_VALUES // n)):
            similarities = own[part].to(documents) @ documents.T
            nearest = similarities.topk(min(NEAREST, n))
            rows = torch.cat([nearest.indices, others.expand(len(part), -1)], 1)
            similar = similarities.gather(1, rows)
            logits = calibration.logits(
                similar[:, None].float().cpu(), own[part][:, None], is_negated[part][:, None]
            )
            is_repeated = (similar >= nearest.values[:, -1:]).cpu()
            is_repeated[:, : nearest.indices.shape[1]] = False
            found.append(logits[:, 0].double().masked_fill(is_repeated, torch.nan))
            sampled.append(rows.cpu())
    # Pairs of operand and document as one number.
    pairs = torch.cat(sampled).numpy() + n * np.arange(len(operands))[:, None]
    members = [n * index + row for index, o in enumerate(operands) for row in o.rows]
    return torch.cat(found).numpy(), np.isin(pairs, np.array(members, np.int64))


def operand_reliability(
    retriever: Retriever,
    queries: Sequence[Query],
    documents: Tensor,
    rows: Mapping[str, int],
    seed: int = 0,
) -> dict[str, Any]:
    """Measure the reliability of a model's displayed probabilities.

    The operands are given as the queries word them, so the parser has no influence.

    Args:
        retriever: With its calibration.
        queries: Those with one operand, or with operands whose documents are unknown, are left out.
        documents: Vectors of the corpus. Shape ``(documents, dim)``.
        rows: Row of each document, by id.
        seed: Of the samples of queries and documents.

    Returns:
        As :func:`~boolattn.evaluation.reliability.reliability_by_sign`; empty where no operand's
        documents are known.
    """
    operands = sample_operands(queries, rows, seed)
    if not operands:
        return {}
    logits, is_true = operand_logits(retriever, operands, documents, seed)
    is_negated = np.array([operand.is_negated for operand in operands])
    with np.errstate(invalid="ignore"):  # nan marks documents that were sampled twice
        calibration = retriever.calibration_arrays
        displayed = calibration.displayed(logits[:, None], is_negated[:, None])[:, 0]
    return reliability_by_sign(displayed, is_true, is_negated)
