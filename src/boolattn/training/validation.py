"""Evaluation during training: relevant documents among sampled ones, in seconds.

With every document it gives the corpus's own metrics; with a sample, better ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boolattn.encoder import towers as two_towers
from boolattn.encoder.document_encoder import document_encoder
from boolattn.evaluation.metrics import mean, measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.scoring.exact import exact_search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.evaluation.benchmark import Judgements

METRICS = ("recall@100", "r_precision", "leak")


@dataclass(eq=False)
class Validator:
    """Ranks documents for queries, and measures the rankings."""

    judgements: Judgements
    texts: Sequence[str]  # Of the documents that are ranked, by row
    operators: Sequence[str] | None = None  # Experts that oracle labels open; None: no labels

    def __call__(self, towers: SentenceTransformer) -> dict[str, float]:
        """Return the means over queries of Recall@100, R-precision and leak."""
        documents = document_encoder(towers.eval())(self.texts)
        vectors = encode_queries(towers, self.judgements, self.operators)
        ranking = rank(vectors, documents, needed_depth(self.judgements, METRICS))
        values = measure(ranking, self.judgements, METRICS)
        # The leak is not defined where no query excludes anything.
        return {name: float(np.nan_to_num(mean(value))) for name, value in values.items()}


def encode_queries(
    towers: SentenceTransformer,
    judgements: Judgements,
    operators: Sequence[str] | None = None,
    prefix: str = "",
) -> Tensor:
    """Encode queries, with oracle labels for the experts named. Shape ``(queries, dim)``."""
    texts = [prefix + text for text in judgements.texts]
    if operators is None:
        return towers.encode_query(texts, convert_to_tensor=True, show_progress_bar=False)
    labels = [[name for name in names if name in operators] for names in judgements.operators]
    return two_towers.encode_queries(towers, texts, operators=labels)


def rank(queries: Tensor, documents: Tensor, depth: int) -> Ranking:
    """Rank documents by one vector a query."""
    hits = exact_search(queries, documents, depth)
    return Ranking(hits.rows.astype(np.int32), hits.scores)
