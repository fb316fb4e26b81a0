"""Evaluation during training: relevant documents among sampled ones, in seconds.

With every document it gives the corpus's own metrics; with a sample, better ones.
"""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass
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
from boolattn.training.batches.tokens import original_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.data.records import Query
    from boolattn.training.batches.tokens import Tokens

logger = logging.getLogger(__name__)

DEPTH = 100
METRICS = (f"recall@{DEPTH}", "r_precision", "leak")
#: Purpose of the random generators.
_SAMPLE = 3
#: Texts between two progress messages of an encoding.
_LOG_EVERY = 25_000


@dataclass(frozen=True)
class ValidationQuery:
    """A query to validate with; documents are rows of the corpus."""

    text: str
    operators: tuple[int, ...]
    gold: tuple[int, ...]
    excluded: tuple[int, ...]


def sample_queries(
    queries: Sequence[Query], rows: dict[str, int], n: int, seed: int
) -> list[ValidationQuery]:
    """Sample at most ``n`` queries that have a relevant document; 0 takes all."""
    usable = [query for query in queries if any(name in rows for name in query.gold)]
    if n and len(usable) > n:
        chosen = np.random.default_rng([seed, _SAMPLE]).choice(len(usable), n, replace=False)
        usable = [usable[index] for index in sorted(chosen)]
    return [
        ValidationQuery(
            query.text,
            tuple(int(operator in query.operators) for operator in OPERATORS),
            tuple(sorted(rows[name] for name in query.gold if name in rows)),
            tuple(sorted(rows[name] for name in query.excluded if name in rows)),
        )
        for query in usable
    ]


def sample_rows(
    queries: Sequence[ValidationQuery], n_documents: int, n: int, seed: int
) -> list[int]:
    """Return all relevant and excluded documents, and ``n`` others; 0: every document."""
    if not n:
        return list(range(n_documents))
    rows = {row for query in queries for row in (*query.gold, *query.excluded)}
    rng = np.random.default_rng([seed, _SAMPLE + 1])
    drawn = rng.choice(n_documents, min(n, n_documents), replace=False)
    return sorted(rows | set(drawn.tolist()))


@dataclass(eq=False)
class Validator:
    """Ranks documents for queries, and measures the rankings."""

    queries: Sequence[ValidationQuery]
    tokens: Tokens  # Of the queries
    documents: Tokens  # Of the corpus
    _: KW_ONLY
    rows: Sequence[int]  # Documents that are ranked
    batch_size: int = 128
    operators: Sequence[str] | None = None  # Experts that oracle labels open; None: no labels

    def __post_init__(self) -> None:
        place = {row: index for index, row in enumerate(self.rows)}
        self.judgements = Judgements.of_rows(
            [[place[row] for row in query.gold] for query in self.queries],
            [[place[row] for row in query.excluded] for query in self.queries],
            len(self.rows),
        )

    @torch.inference_mode()
    def __call__(
        self, towers: SentenceTransformer, documents: Tensor | None = None
    ) -> dict[str, float]:
        """Return the means over queries of Recall@100, R-precision and leak.

        ``documents`` are vectors of the ranked documents, where they are encoded already.
        """
        towers.eval()
        labels = None
        if self.operators is not None:
            every = torch.tensor([query.operators for query in self.queries])
            labels = every[:, label_columns(self.operators)]
        size, everything = self.batch_size, range(len(self.queries))
        if documents is None:
            documents = encode(towers, self.documents, self.rows, "document", size)
        queries = encode(towers, self.tokens, everything, "query", size, labels)
        ranked = exact_search(queries, documents, needed_depth(self.judgements, METRICS))
        found = measure(Ranking.of(ranked.rows.tolist()), self.judgements, METRICS)
        # The leak is not defined where no query excludes anything.
        return {name: float(np.nan_to_num(mean(values))) for name, values in found.items()}


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
