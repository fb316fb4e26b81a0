"""sentence-transformers' trainer on the batches of ours, for ``benchmarks.training_speed``.

Its own trainer needs the package datasets. Where that is missing, transformers' Trainer, of which
it is a subclass, runs its steps: its collator, which tokenises all columns at each step, its
MultipleNegativesRankingLoss, and its optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from transformers import Trainer, TrainingArguments

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches.sampling import Steps
    from boolattn.training.retrieval import Corpus
    from boolattn.training.settings import Preset


class PeerTrainer(Trainer):
    """transformers' Trainer with the step of sentence-transformers' trainer."""

    def __init__(self, loss: nn.Module, columns: list[str], **options: Any) -> None:
        super().__init__(**options)
        self.loss = loss.to(self.args.device)
        self.columns = columns

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any
    ) -> torch.Tensor:
        """Group the features by column and compute the loss."""
        columns: dict[str, dict[str, Any]] = {}
        for key, value in inputs.items():
            for column in self.columns:
                if key.startswith(column + "_"):
                    columns.setdefault(column, {})[key[len(column) + 1 :]] = value
        return self.loss([columns[column] for column in self.columns], None)


def column_names(n_negatives: int) -> list[str]:
    """Return the names of the columns; at most nine negatives, for no name may be a prefix."""
    return ["anchor", "positive", *(f"negative_{n}" for n in range(1, n_negatives + 1))]


def text_rows(
    steps: Steps, corpus: Corpus, columns: list[str], n_batches: int
) -> list[dict[str, str]]:
    """Return batches as rows of texts."""
    texts = [document.text for document in corpus.dataset.documents]
    rows = []
    for step in range(n_batches):
        batch = steps.sampler.batch(step)
        for example, documents in zip(batch.examples, batch.documents.tolist(), strict=True):
            values = [example.query.text, *(texts[row] for row in documents)]
            rows.append(dict(zip(columns, values, strict=True)))
    return rows


def make_peer(
    preset: Preset, towers: SentenceTransformer, rows: list[dict[str, str]], n_workers: int
) -> tuple[Trainer, str]:
    """Return sentence-transformers' trainer, or its substitute, and which of them it is."""
    settings, columns = preset.train, list(rows[0])
    has_gpu = torch.cuda.is_available()
    options: dict[str, Any] = {
        "output_dir": "unused",
        "max_steps": settings.max_steps,
        "per_device_train_batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "warmup_steps": settings.warmup_steps,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "bf16": settings.use_bf16 and has_gpu,
        "use_cpu": not has_gpu,
        "logging_steps": 10,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": n_workers,
        "dataloader_pin_memory": has_gpu,
    }
    tasks = {column: "query" if column == "anchor" else "document" for column in columns}
    loss = MultipleNegativesRankingLoss(towers, scale=settings.scale)
    try:
        from datasets import Dataset
    except ImportError:
        from sentence_transformers.sentence_transformer.data_collator import (
            SentenceTransformerDataCollator,
        )

        substitute = PeerTrainer(
            loss,
            columns,
            model=towers,
            args=TrainingArguments(**options, remove_unused_columns=False),
            train_dataset=rows,
            data_collator=SentenceTransformerDataCollator(towers.preprocess, router_mapping=tasks),
        )
        return substitute, "its steps under transformers' Trainer"
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    own = SentenceTransformerTrainer(
        model=towers,
        args=SentenceTransformerTrainingArguments(**options, router_mapping=tasks),
        train_dataset=Dataset.from_list(rows),
        loss=loss,
    )
    return own, "its own trainer"
