"""How far an exported model agrees with the torch model it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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


def check_agreement(torch: Encoder, onnx: Encoder, texts: Sequence[str]) -> dict[str, float]:
    """Return the least cosines of the vectors of queries, operands and documents."""
    pairs = {
        "query_cosine": (torch.encode_queries(texts), onnx.encode_queries(texts)),
        "operand_cosine": (torch.encode_operands(texts), onnx.encode_operands(texts)),
        "document_cosine": (torch.encode_documents(texts), onnx.encode_documents(texts)),
    }
    return {name: round(_least_cosine(*vectors), 5) for name, vectors in pairs.items()}


def _least_cosine(a: Array, b: Array) -> float:
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(1) / np.maximum(norms, 1e-12)).min())
