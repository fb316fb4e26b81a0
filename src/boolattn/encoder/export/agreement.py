"""How far an exported model agrees with the torch model it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boolattn.query.plan import plan_queries
from boolattn.query.reading import read_trees
from boolattn.query.syntax import parse
from boolattn.scoring.exact import score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from boolattn.encoders.base import Encoder

    Array = NDArray[np.float32]

#: Queries that are compared when a model is exported.
TEXTS = (
    "moths of Borneo but not Sumatra",
    "papers about asthma and smoking, but not in children",
    "recipes with garlic or leek",
    "films from the 1980s with Meg Ryan and without Tom Hanks",
    "frogs that live in trees",
    "vulnerabilities in Apache Tomcat, except denial of service",
    "neither coffee nor tea, but chocolate",
    "diseases with hearing loss, short stature or cataract",
    "the history of bread",
    "rock and roll",
)
#: Queries whose composed scores are compared.
_EXPLICIT = ("moths of Borneo NOT Sumatra", "garlic OR leek", "asthma AND smoking NOT children")


def check_agreement(torch: Encoder, onnx: Encoder, texts: Sequence[str]) -> dict[str, float]:
    """Compare vectors and composed scores.

    Returns the least cosines of queries, operands and documents, and the least correlation of the
    scores of the same documents.
    """
    agreement = {
        "query_cosine": _least_cosine(torch.encode_queries(texts), onnx.encode_queries(texts)),
        "operand_cosine": _least_cosine(torch.encode_operands(texts), onnx.encode_operands(texts)),
    }
    documents = torch.encode_documents(texts)
    agreement["document_cosine"] = _least_cosine(documents, onnx.encode_documents(texts))
    trees, rest = [parse(query) for query in _EXPLICIT], []
    readings = read_trees(trees)
    for plans in zip(*(plan_queries(readings, model) for model in (onnx, torch)), strict=True):
        scores = [score(plan, plan.vectors @ documents.T) for plan in plans]
        rest.append(float(np.corrcoef(scores[0], scores[1])[0, 1]))
    agreement["score_correlation"] = min(rest)
    return {name: round(value, 5) for name, value in agreement.items()}


def _least_cosine(a: Array, b: Array) -> float:
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(1) / np.maximum(norms, 1e-12)).min())
