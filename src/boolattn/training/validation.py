"""The training-time check: answers among sampled documents, cheap enough for every epoch.

It is no benchmark result: fewer documents compete than in the corpus. With every document it
gives the corpus's own numbers. May import: boolattn.logic, boolattn.training.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.logic.operators import OPERATORS
from boolattn.training import tower_pass as passes
from boolattn.training.batches import label_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.data.records import Query
    from boolattn.training.batches import Tokens

logger = logging.getLogger(__name__)

_SAMPLE = 3
DEPTH = 100
#: Texts between two words on how far an encoding is: fewer are done before anybody asks.
_LOG_EVERY = 25_000


@dataclass(frozen=True)
class ValidationQuery:
    """A query to validate with; documents are rows of the corpus."""

    text: str
    operators: tuple[int, ...]
    gold: tuple[int, ...]
    excluded: tuple[int, ...]


def choose(
    queries: Sequence[Query], rows: dict[str, int], n: int, seed: int
) -> list[ValidationQuery]:
    """Take at most ``n`` queries that have an answer, spread over all; 0 takes every one."""
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


def sample_rows(asked: Sequence[ValidationQuery], n_documents: int, n: int, seed: int) -> list[int]:
    """Return what is ranked: all that is asked for or excluded, and ``n`` others; 0: everything."""
    if not n:
        return list(range(n_documents))
    rows = {row for query in asked for row in (*query.gold, *query.excluded)}
    rng = np.random.default_rng([seed, _SAMPLE + 1])
    drawn = rng.choice(n_documents, min(n, n_documents), replace=False)
    return sorted(rows | set(drawn.tolist()))


class Validator:
    """Ranks documents for queries and says how well.

    Args:
        asked: The queries.
        queries: Tokens of their texts, in the same order.
        documents: Tokens of the corpus.
        rows: Which documents are ranked.
        batch_size: Texts encoded at once.
        operators: The experts whose gate labels open; ``None``: no label is given.
    """

    def __init__(
        self,
        asked: Sequence[ValidationQuery],
        queries: Tokens,
        documents: Tokens,
        *,
        rows: Sequence[int],
        batch_size: int = 128,
        operators: Sequence[str] | None = None,
    ) -> None:
        self.asked = asked
        self.queries = queries
        self.documents = documents
        self.rows = list(rows)
        self.batch_size = batch_size
        self.columns = None if operators is None else label_columns(operators)

    def __call__(self, towers: SentenceTransformer) -> dict[str, float]:
        """Measure towers.

        Returns:
            Means over queries: ``recall@100``; ``r_precision``, the share of answers in the
            first as many documents as there are answers; ``leak``, the share of the excluded
            documents in the first answers + excluded, over queries that exclude something.
        """
        return self.measure(towers, self.encode_documents(towers))

    def encode_documents(self, towers: SentenceTransformer) -> Tensor:
        """Encode what is ranked. Shape ``(ranked documents, dim)``."""
        towers.eval()
        with torch.inference_mode():
            return encode(towers, self.documents, self.rows, "document", self.batch_size)

    def measure(self, towers: SentenceTransformer, documents: Tensor) -> dict[str, float]:
        """Measure towers whose documents are encoded already."""
        towers.eval()
        with torch.inference_mode():
            queries = self._encode_queries(towers)
            most = max(len(query.gold) + len(query.excluded) for query in self.asked)
            depth = min(max(DEPTH, most), len(self.rows))
            ranked = [
                torch.topk(part @ documents.T, depth).indices.cpu() for part in queries.split(64)
            ]
        return summarize(torch.cat(ranked).tolist(), self.asked, self.rows)

    def _encode_queries(self, towers: SentenceTransformer) -> Tensor:
        rows = range(len(self.asked))
        if self.columns is None:
            return encode(towers, self.queries, rows, "query", self.batch_size)
        labels = torch.tensor([query.operators for query in self.asked])
        labels = labels[:, self.columns]
        return encode(towers, self.queries, rows, "query", self.batch_size, labels)


def encode(
    towers: SentenceTransformer,
    tokens: Tokens,
    rows: Sequence[int],
    task: str,
    batch_size: int,
    operators: Tensor | None = None,
) -> Tensor:
    """Encode texts, those of like length together. Shape ``(rows, dim)``."""
    device = towers.device
    tokens.fill(rows)
    order = np.argsort(tokens.lengths(rows), kind="stable")
    parts = []
    for start in range(0, len(order), batch_size):
        if start and start // _LOG_EVERY != (start - batch_size) // _LOG_EVERY:
            logger.info("encoded %d of %d texts", start, len(order))
        chosen = order[start : start + batch_size]
        features = tokens.features([rows[place] for place in chosen])
        if operators is not None:
            features["operators"] = operators[torch.from_numpy(chosen)]
        features = {name: value.to(device, non_blocking=True) for name, value in features.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            parts.append(passes.encode(towers, features, task).float())
    vectors = torch.cat(parts)
    back = torch.empty(len(order), dtype=torch.int64)
    back[torch.from_numpy(order)] = torch.arange(len(order))
    return vectors[back.to(device)]


def summarize(
    ranked: Sequence[Sequence[int]], asked: Sequence[ValidationQuery], rows: Sequence[int]
) -> dict[str, float]:
    """Work out the numbers.

    Args:
        ranked: For each query places in ``rows``, best first, deep enough for its sets.
        asked: The queries.
        rows: Which documents were ranked.
    """
    place = {row: index for index, row in enumerate(rows)}
    recall, precision, leak = [], [], []
    for best, query in zip(ranked, asked, strict=True):
        gold = {place[document] for document in query.gold}
        excluded = {place[document] for document in query.excluded}
        recall.append(len(gold.intersection(best[:DEPTH])) / len(gold))
        precision.append(len(gold.intersection(best[: len(gold)])) / len(gold))
        if excluded:
            returned = best[: len(gold) + len(excluded)]
            leak.append(len(excluded.intersection(returned)) / len(excluded))
    return {
        f"recall@{DEPTH}": float(np.mean(recall)),
        "r_precision": float(np.mean(precision)),
        "leak": float(np.mean(leak)) if leak else 0.0,
    }
