"""The forward pass of both towers, and the exchange of vectors between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, distributed, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches.tokens import Features


class _HasTowers(Protocol):
    towers: SentenceTransformer
    encode_batch: Callable[[Features, str, int], Tensor] | None


class TowerPass(nn.Module):
    """Both towers in one forward pass, which is what distributed training wraps.

    Args:
        towers: The model.
        encode_batch: Encodes a batch of a task; the number says which of the step's batches of
            this task it is. Left out: :func:`encode`.
    """

    def __init__(
        self,
        towers: SentenceTransformer,
        encode_batch: Callable[[Features, str, int], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.towers = towers
        self.encode_batch = encode_batch

    def forward(
        self, queries: Features, documents: list[Features], places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode a process's queries and documents.

        Args:
            queries: One batch of queries.
            documents: Batches of documents of similar length.
            places: Place of each document in these batches laid end to end.

        Returns:
            Shapes ``(queries, dim)`` and ``(documents, dim)``.
        """
        vectors = encode_documents(self, documents, places)
        return _encode_batch(self, queries, "query", 0), vectors


def encode_documents(model: _HasTowers, documents: list[Features], places: Tensor) -> Tensor:
    """Encode a step's documents. Shape ``(documents, dim)``."""
    parts = [_encode_batch(model, part, "document", i) for i, part in enumerate(documents)]
    return torch.cat(parts)[places]


def _encode_batch(model: _HasTowers, features: Features, task: str, slot: int) -> Tensor:
    if model.encode_batch is None:
        return encode(model.towers, features, task)
    return model.encode_batch(features, task, slot)


def encode(towers: SentenceTransformer, features: Features, task: str) -> Tensor:
    """Encode one batch of "query" or "document" texts. Shape ``(texts, dim)``."""
    # The task is given twice: the router reads the argument, and Bool-BERT, which encodes
    # documents without BoolAttn, the features. A copy, because modules write results into it.
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
