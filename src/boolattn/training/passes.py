"""The forward pass of both towers, and the exchange of vectors between processes.

May import: boolattn.training.batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches import Features


class Both(nn.Module):
    """Both towers in one forward pass, which is what distributed training wraps."""

    def __init__(self, towers: SentenceTransformer) -> None:
        super().__init__()
        self.towers = towers

    def forward(
        self, queries: Features, documents: list[Features], places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode a process's queries and documents.

        Args:
            queries: One batch of queries.
            documents: Batches of documents of like length.
            places: Place of each document in these batches laid end to end.

        Returns:
            Shapes ``(queries, dim)`` and ``(documents, dim)``.
        """
        parts = [encode(self.towers, part, "document") for part in documents]
        return encode(self.towers, queries, "query"), torch.cat(parts)[places]


def encode(towers: SentenceTransformer, features: Features, task: str) -> Tensor:
    """Encode one batch of "query" or "document" texts. Shape ``(texts, dim)``."""
    # The task goes in twice: the router listens to the argument, and Bool-BERT, which runs bare
    # on documents, only to the features. A copy, because the modules write their results into it.
    vectors: Tensor = towers({**features, "task": task}, task=task)["sentence_embedding"]
    return vectors


class _Gather(torch.autograd.Function):
    """All processes' vectors; gradients flow back to the process each came from."""

    @staticmethod
    def forward(_context: Any, vectors: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        parts = [torch.empty_like(vectors) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, vectors.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        total = gradient.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        share = len(total) // distributed.get_world_size()
        start = distributed.get_rank() * share
        return total[start : start + share]


def gather(vectors: Tensor) -> Tensor:
    """Return the vectors of all processes, in their order. Shape ``(processes * n, dim)``."""
    if distributed.is_available() and distributed.is_initialized():
        gathered: Tensor = _Gather.apply(vectors)  # type: ignore[no-untyped-call]
        return gathered
    return vectors
