"""How far an exported model agrees with the torch model it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from boolattn.embedding.base import BaseRetriever

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


def check_agreement(
    torch: BaseRetriever, onnx: BaseRetriever, texts: Sequence[str]
) -> dict[str, float]:
    """Compare vectors, parses and composed scores.

    Returns the least cosines of queries, operands and documents, the share of equal parses, and
    the least correlation of the scores of the same documents.
    """
    found = {
        "query_cosine": _least_cosine(torch.encode_queries(texts), onnx.encode_queries(texts)),
        "operand_cosine": _least_cosine(torch.encode_operands(texts), onnx.encode_operands(texts)),
    }
    documents = torch.encode_documents(texts)
    found["document_cosine"] = _least_cosine(documents, onnx.encode_documents(texts))
    ours, theirs = onnx.plan(texts), torch.plan(texts)
    same = [a.tree == b.tree for a, b in zip(ours, theirs, strict=True)]
    found["equal_parses"] = float(np.mean(same))
    rest = []
    for a, b, is_same in zip(ours, theirs, same, strict=True):
        if is_same:
            scores = [m.score(p, p.vectors @ documents.T) for m, p in ((onnx, a), (torch, b))]
            rest.append(float(np.corrcoef(scores[0], scores[1])[0, 1]))
    found["score_correlation"] = min(rest, default=1.0)
    return {name: round(value, 5) for name, value in found.items()}


def _least_cosine(a: Array, b: Array) -> float:
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(1) / np.maximum(norms, 1e-12)).min())
