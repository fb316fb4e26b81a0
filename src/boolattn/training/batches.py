"""Batches as tensors: texts tokenised once, and what a process needs of each step.

Tokenising is what would keep a GPU waiting: 192 documents a step, again and again.
May import: boolattn.logic, boolattn.training.sampling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from boolattn.logic.operators import OPERATORS, Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from boolattn.training.sampling import Batch, Sampler

Features = dict[str, Any]

_TEXTS_AT_ONCE = 4096


class Tokens:
    """Texts as token ids, each tokenised once, when it is first asked for.

    Args:
        tokenizer: The encoder's.
        texts: The texts.
        length: Longest text in tokens; the rest is cut off.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int
    ) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        self._length = length
        self._ids: list[np.ndarray[Any, np.dtype[np.int32]] | None] = [None] * len(texts)
        self._pad = int(tokenizer.pad_token_id or 0)
        self._has_types = "token_type_ids" in tokenizer.model_input_names

    def __len__(self) -> int:
        return len(self._texts)

    def fill(self, rows: Sequence[int] | range | None = None) -> None:
        """Tokenise what is not tokenised yet of some texts, or of all."""
        rows = range(len(self._texts)) if rows is None else rows
        missing = sorted({row for row in rows if self._ids[row] is None})
        for start in range(0, len(missing), _TEXTS_AT_ONCE):
            part = missing[start : start + _TEXTS_AT_ONCE]
            encoded = self._tokenizer(
                [self._texts[row] for row in part],
                truncation=True,
                max_length=self._length,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            for row, ids in zip(part, encoded["input_ids"], strict=True):
                self._ids[row] = np.array(ids, dtype=np.int32)

    def lengths(self, rows: Sequence[int]) -> list[int]:
        """Count the tokens of some texts."""
        return [len(ids) for ids in self._get(rows)]

    def features(self, rows: Sequence[int]) -> Features:
        """Put texts into one padded batch.

        Returns:
            What an encoder takes, each ``(texts, tokens)``.
        """
        found = self._get(rows)
        longest = max(map(len, found))
        ids = np.full((len(found), longest), self._pad, dtype=np.int64)
        mask = np.zeros((len(found), longest), dtype=np.int64)
        for row, values in enumerate(found):
            ids[row, : len(values)] = values
            mask[row, : len(values)] = 1
        features = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if self._has_types:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return features

    def chunks(self, rows: Sequence[int], size: int) -> tuple[list[Features], Tensor]:
        """Put texts into batches of like length, so that little is padding.

        Returns:
            The batches, and for each text its place in the batches laid end to end.
        """
        order = np.argsort(self.lengths(rows), kind="stable")
        chunks = [
            self.features([rows[place] for place in order[start : start + size]])
            for start in range(0, len(order), size)
        ]
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        return chunks, torch.from_numpy(places)

    def _get(self, rows: Sequence[int]) -> list[np.ndarray[Any, np.dtype[np.int32]]]:
        self.fill(rows)
        return [ids for row in rows if (ids := self._ids[row]) is not None]


class Collator:
    """Turns a step's batch into what one process computes of it.

    Args:
        queries: Tokens of the examples' texts.
        places: Number of each example's text among them, by the example's id.
        documents: Tokens of the corpus.
        chunk: Documents encoded at once.
        use_in_batch: Whether other queries' documents are negatives.
        operators: The experts whose gate the queries' labels open; ``None``: no label is given.
    """

    def __init__(
        self,
        queries: Tokens,
        places: dict[str, int],
        documents: Tokens,
        *,
        chunk: int = 64,
        use_in_batch: bool = True,
        operators: Sequence[str] | None = None,
    ) -> None:
        self.queries = queries
        self.places = places
        self.documents = documents
        self.chunk = chunk
        self.use_in_batch = use_in_batch
        self.columns = None if operators is None else label_columns(operators)

    def __call__(self, batch: Batch, process: int = 0, n_processes: int = 1) -> Features:
        """Take a process's share of a batch.

        Returns:
            ``queries`` and ``documents`` (a list of batches, and ``places`` to undo their order)
            for the encoders, ``targets`` and ``blocked`` for the loss over the whole batch.
        """
        share = len(batch.examples) // n_processes
        start, end = process * share, (process + 1) * share
        mine = batch.examples[start:end]
        queries = self.queries.features([self.places[example.id] for example in mine])
        if self.columns is not None:
            labels = torch.tensor([example.operators for example in mine])
            queries["operators"] = labels[:, self.columns]
        rows = batch.documents[start:end].ravel().tolist()
        documents, places = self.documents.chunks(rows, self.chunk)
        blocked = batch.blocked(start, end, use_in_batch=self.use_in_batch)
        return {
            "queries": queries,
            "documents": documents,
            "places": places,
            "targets": torch.arange(start, end) * batch.documents.shape[1],
            "blocked": torch.from_numpy(blocked),
        }


class Steps(Dataset[Features]):
    """A whole run as one list of steps; item ``i`` is a process's share of step ``i``.

    One list, not epochs, so that going on at a step is skipping to an index.
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


def single(items: list[Features]) -> Features:
    """Unwrap a list of one: a step is already a batch."""
    return items[0]
