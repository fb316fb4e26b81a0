"""Evaluation during training: relevant documents among sampled ones, in seconds.

With every document it gives the corpus's own metrics; with a sample, better ones.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.evaluation.judgements import Judgements
from boolattn.evaluation.metrics import mean, measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.query.tree import OPERATORS
from boolattn.scoring.exact import exact_search
from boolattn.training import tower_pass
from boolattn.training.batches.sampling import label_columns
from boolattn.training.batches.tokens import Tokens, original_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.records import Query

logger = logging.getLogger(__name__)

DEPTH = 100
METRICS = (f"recall@{DEPTH}", "r_precision", "leak")
#: Purpose of the random generators.
_SAMPLE = 3
#: Texts between two progress messages of an encoding.
_LOG_EVERY = 25_000


def sample_queries(queries: Sequence[Query], n: int, seed: int) -> Sequence[Query]:
    """Sample at most ``n`` queries; 0 takes all."""
    if not n or len(queries) <= n:
        return queries
    chosen = np.random.default_rng([seed, _SAMPLE]).choice(len(queries), n, replace=False)
    return [queries[index] for index in sorted(chosen)]


def sample_documents(
    queries: Sequence[Query], rows: Mapping[str, int], n: int, seed: int
) -> dict[str, int]:
    """Return all relevant and excluded documents, and ``n`` others; 0: every document."""
    if not n:
        return dict(rows)
    ids = list(rows)
    rng = np.random.default_rng([seed, _SAMPLE + 1])
    drawn = rng.choice(len(ids), min(n, len(ids)), replace=False).tolist()
    judged = {name for query in queries for name in (*query.gold, *query.excluded)}
    chosen = judged.union(ids[row] for row in drawn)
    return {name: row for name, row in rows.items() if name in chosen}


@dataclass(eq=False)
class Validator:
    """Ranks documents for queries, and measures the rankings."""

    queries: Sequence[Query]
    documents: Tokens  # Of the corpus
    rows: Mapping[str, int]  # Documents that are ranked: their rows by id
    tokenizer: PreTrainedTokenizerBase
    length: int  # Most tokens of a query
    operators: Sequence[str] | None = None  # Experts that oracle labels open; None: no labels
    batch_size: int = 128

    def __post_init__(self) -> None:
        places = {name: index for index, name in enumerate(self.rows)}
        self.judgements = Judgements.of(self.queries, places)

    @torch.inference_mode()
    def __call__(self, towers: SentenceTransformer) -> dict[str, float]:
        """Return the means over queries of Recall@100, R-precision and leak."""
        towers.eval()
        rows, queries = list(self.rows.values()), self.judgements.queries
        documents = encode(towers, self.documents, rows, "document", self.batch_size)
        vectors = encode_queries(towers, queries, self.tokenizer, self.length, self.operators)
        ranked = exact_search(vectors, documents, needed_depth(self.judgements, METRICS))
        values = measure(Ranking.of(ranked.rows.tolist()), self.judgements, METRICS)
        # The leak is not defined where no query excludes anything.
        return {name: float(np.nan_to_num(mean(own))) for name, own in values.items()}


def encode_queries(
    towers: SentenceTransformer,
    queries: Sequence[Query],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    operators: Sequence[str] | None = None,
    prefix: str = "",
) -> Tensor:
    """Encode queries, with oracle labels for the experts named. Shape ``(queries, dim)``."""
    labels = None
    if operators is not None:
        rows = [[int(op in query.operators) for op in OPERATORS] for query in queries]
        labels = torch.tensor(rows)[:, label_columns(operators)]
    tokens = Tokens(tokenizer, [prefix + query.text for query in queries], length)
    return encode(towers, tokens, range(len(queries)), "query", 256, labels)


def encode(
    towers: SentenceTransformer,
    tokens: Tokens,
    rows: Sequence[int],
    task: str,
    batch_size: int,
    operators: Tensor | None = None,
) -> Tensor:
    """Encode texts, those of similar length together. Shape ``(rows, dim)``."""
    device = towers.device
    order, parts, done = [], [], 0
    for chosen, features in tokens.by_length(rows, batch_size):
        if operators is not None:
            features["operators"] = operators[torch.from_numpy(chosen)]
        moved = {name: value.to(device, non_blocking=True) for name, value in features.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            parts.append(tower_pass.encode(towers, moved, task).float())
        order.append(chosen)
        done += len(chosen)
        if done // _LOG_EVERY != (done - len(chosen)) // _LOG_EVERY:
            logger.info("encoded %d of %d texts", done, len(rows))
    return torch.cat(parts)[original_order(order).to(device)]
