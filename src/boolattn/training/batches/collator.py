"""What one process computes of each step, as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import Dataset

from boolattn.logic.operators import OPERATORS, Operator
from boolattn.training.batches.tokens import Features, Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.training.batches.sampling import Batch, Example, Sampler


class Collator:
    """Turns the batch of a step into the share of one process.

    Args:
        queries: Tokens of the examples' texts.
        rows: Row of each example's text in ``queries``, by example id.
        documents: Tokens of the corpus.
        chunk: Documents encoded at once.
        use_in_batch: Whether other queries' documents are negatives.
        operators: The experts that oracle labels open; ``None``: no labels are given.
    """

    def __init__(
        self,
        queries: Tokens,
        rows: dict[str, int],
        documents: Tokens,
        *,
        chunk: int = 64,
        use_in_batch: bool = True,
        operators: Sequence[str] | None = None,
    ) -> None:
        self.queries = queries
        self.rows = rows
        self.documents = documents
        self.chunk = chunk
        self.use_in_batch = use_in_batch
        self.columns = None if operators is None else label_columns(operators)

    def __call__(self, batch: Batch, process: int = 0, n_processes: int = 1) -> Features:
        """Return a process's share of a batch.

        Returns:
            ``queries`` and ``documents`` (a list of batches, and ``places`` to undo their order)
            for the encoders, ``targets`` and ``blocked`` for the loss over the whole batch.
        """
        share = len(batch.examples) // n_processes
        start, end = process * share, (process + 1) * share
        documents, places = self.documents.chunks(
            batch.documents[start:end].ravel().tolist(), self.chunk
        )
        blocked = batch.blocked(start, end, use_in_batch=self.use_in_batch)
        return {
            **self.query_features(batch.examples[start:end], batch.step, process, n_processes),
            "documents": documents,
            "places": places,
            "targets": torch.arange(start, end) * batch.documents.shape[1],
            "blocked": torch.from_numpy(blocked),
        }

    def query_features(
        self, examples: Sequence[Example], step: int, process: int, n_processes: int
    ) -> Features:
        """Return what is encoded of a process's queries."""
        queries = self.queries.features([self.rows[example.id] for example in examples])
        self.add_labels(queries, [example.operators for example in examples])
        return {"queries": queries}

    def add_labels(self, queries: Features, operators: Sequence[Sequence[int]]) -> None:
        """Add oracle operator labels, where the model takes them."""
        if self.columns is not None:
            queries["operators"] = torch.tensor(operators)[:, self.columns]


class Steps(Dataset[Features]):
    """A whole run as one list of steps; item ``i`` is a process's share of step ``i``.

    One list, not epochs, so that a resumed run skips to an index.
    """

    def __init__(
        self, sampler: Sampler, collator: Collator, process: int = 0, n_processes: int = 1
    ) -> None:
        self.sampler = sampler
        self.collator = collator
        self.process = process
        self.n_processes = n_processes

    def __len__(self) -> int:
        return self.sampler.n_steps

    def __getitem__(self, step: int) -> Features:
        return self.collator(self.sampler.batch(step), self.process, self.n_processes)


def label_columns(operators: Sequence[str]) -> list[int]:
    """Return which of the labels AND, OR, NOT a model with these experts takes.

    >>> label_columns(("and", "not"))
    [0, 2]
    """
    return [OPERATORS.index(Operator(name)) for name in operators]
