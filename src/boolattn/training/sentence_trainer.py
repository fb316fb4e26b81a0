"""The same loss and batches for those who use sentence-transformers' own trainer.

Give it a ``datasets.Dataset`` with one column, ``step``, a batch size of 1, :class:`StepCollator`
as its data collator and :class:`TowersLoss` as its loss. May import: boolattn.training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from boolattn.training.losses import softmax_loss
from boolattn.training.tower_pass import encode, gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches import Features, Steps


class StepCollator:
    """Turns a row that names a step into the flat batch that trainer expects."""

    #: Names that trainer asks a collator for.
    valid_label_columns = ("label",)

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    def __call__(self, rows: Sequence[dict[str, Any]]) -> Features:
        """Return the parts of one step, each under a name with the prefix of its column."""
        step = self.steps.sampler.batch(int(rows[0]["step"]))
        collator = self.steps.collator
        parts = collator(step, self.steps.process, self.steps.n_processes)
        share = len(step.examples) // self.steps.n_processes
        start = self.steps.process * share
        documents = step.documents[start : start + share].ravel().tolist()
        flat = {f"query_{name}": value for name, value in parts["queries"].items()}
        features = collator.documents.features(documents)
        flat |= {f"document_{name}": value for name, value in features.items()}
        # One tensor carries both: the target of a query is where its row holds 2.
        label = parts["blocked"].to(torch.int64)
        label[torch.arange(share), parts["targets"]] = 2
        return {**flat, "label": label}


class TowersLoss(nn.Module):
    """:func:`softmax_loss` in the shape that trainer calls.

    Args:
        model: The towers.
        similarity: ``cosine`` or ``dot``.
        scale: Factor on the similarity.
    """

    def __init__(
        self, model: SentenceTransformer, similarity: str = "cosine", scale: float = 20
    ) -> None:
        super().__init__()
        self.model = model
        self.similarity = similarity
        self.scale = scale

    def forward(self, sentence_features: Sequence[Features], labels: Tensor) -> Tensor:
        """Compute the loss of a step that :class:`StepCollator` made."""
        queries, documents = sentence_features
        return softmax_loss(
            encode(self.model, queries, "query"),
            gather(encode(self.model, documents, "document")),
            (labels == 2).int().argmax(-1),
            labels == 1,
            similarity=self.similarity,
            scale=self.scale,
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Return what a model card says of the loss."""
        return {"similarity": self.similarity, "scale": self.scale}
