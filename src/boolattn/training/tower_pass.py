"""The forward pass of both towers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from boolattn.encoder.packed import encode_packed
from boolattn.encoder.towers import query_encoder
from boolattn.plugin import recording
from boolattn.training.losses import scope_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches.tokens import Features

#: The task whose result is the scope loss of labelled sentences, not vectors.
SCOPE = "scope"


class TowerPass(nn.Module):
    """Both towers in one forward pass, which is what distributed training wraps.

    ``encode_batch`` encodes a batch of a task instead of :func:`encode`.
    """

    def __init__(
        self, towers: SentenceTransformer, encode_batch: Callable[..., Tensor] | None = None
    ) -> None:
        super().__init__()
        self.towers = towers
        self.encode_batch = encode_batch or partial(encode, towers)

    def forward(
        self,
        queries: Features,
        documents: list[Features],
        places: Tensor,
        scoped: Features | None = None,
    ) -> tuple[Tensor, ...]:
        """Encode a process's queries, ``(queries, dim)``, and documents, ``(documents, dim)``.

        ``places`` says where each document is in the batches laid end to end. With sentences whose
        scopes are supervised, their loss is a third result.
        """
        vectors = self.encode_documents(documents, places)
        encoded = (self.encode_batch(queries, "query"), vectors)
        return encoded if scoped is None else (*encoded, self.encode_batch(scoped, SCOPE))

    def encode_documents(self, documents: list[Features], places: Tensor) -> Tensor:
        """Encode a step's documents. Shape ``(documents, dim)``."""
        batches = [self.encode_batch(part, "document", slot) for slot, part in enumerate(documents)]
        return torch.cat(batches)[places]


def encode(towers: SentenceTransformer, features: Features, task: str, slot: int = 0) -> Tensor:
    """Encode one batch of "query" or "document" texts. Shape ``(texts, dim)``.

    For the task "scope" return the scope loss of labelled sentences. ``slot``, the number of the
    batch among the step's of this task, is for recorded passes.
    """
    del slot
    if task == SCOPE:
        inputs = {name: value for name, value in features.items() if name != "scopes"}
        with recording() as record:
            query_encoder(towers)(**inputs)
        logits = [layer.scope.logits for layer in record.biases.values()]
        used, mask = features["operators"], features["attention_mask"]
        return scope_loss(logits, features["scopes"], used, mask)
    if "starts" in features:
        return encode_packed(towers, features)
    # The task is given twice: the router reads the argument, and Bool-BERT, which encodes
    # documents without BoolAttn, the features. A copy, because modules write results into it.
    vectors: Tensor = towers({**features, "task": task}, task=task)["sentence_embedding"]
    return vectors
