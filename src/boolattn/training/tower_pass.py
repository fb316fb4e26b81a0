"""The forward pass of both towers, and the exchange of vectors between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches.tokens import Features


class TowerPass(nn.Module):
    """Both towers in one forward pass, which is what distributed training wraps.

    ``encode_batch`` encodes a batch of a task instead of :func:`encode`; the number says which of
    the step's batches of this task it is.
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
        """Encode a process's queries, ``(queries, dim)``, and documents, ``(documents, dim)``.

        ``places`` says where each document is in the batches laid end to end.
        """
        vectors = self.encode_documents(documents, places)
        return self._encode(queries, "query", 0), vectors

    def encode_documents(self, documents: list[Features], places: Tensor) -> Tensor:
        """Encode a step's documents. Shape ``(documents, dim)``."""
        parts = [self._encode(part, "document", slot) for slot, part in enumerate(documents)]
        return torch.cat(parts)[places]

    def _encode(self, features: Features, task: str, slot: int) -> Tensor:
        if self.encode_batch is None:
            return encode(self.towers, features, task)
        return self.encode_batch(features, task, slot)


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
