"""Texts as token ids, tokenised once, and padded into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

Features = dict[str, Any]

_TEXTS_AT_ONCE = 4096
#: Batches without padding are filled up to a multiple of so many tokens, so that few CUDA graphs
#: serve all, with so many texts, some of them empty.
MULTIPLE, N_FILLERS = 1024, 4


def pad(rows: Sequence[Tensor], value: float = 0) -> tuple[Tensor, Tensor]:
    """Stack rows ``(tokens, ...)`` of unequal length, filled up with a value.

    Returns ``(rows, tokens, ...)``, and the mask of 0 and 1, ``(rows, tokens)``.
    """
    padded = pad_sequence(list(rows), batch_first=True, padding_value=value)
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    return padded, mask.long().to(padded.device)


def pack(texts: Sequence[NDArray[np.int32]], pad: int) -> dict[str, Tensor]:
    """Lay token ids end to end: ``input_ids`` and the ``starts`` of texts, with the end.

    >>> found = pack([np.array([101, 7, 102]), np.array([101, 102])], pad=0)
    >>> found["input_ids"].shape, found["starts"].tolist()
    (torch.Size([1024]), [0, 3, 5, 261, 517, 773, 1024])
    """
    ends = np.cumsum([len(text) for text in texts])
    n_tokens = -(-int(ends[-1]) // MULTIPLE) * MULTIPLE
    fillers = ends[-1] + MULTIPLE // N_FILLERS * np.arange(1, N_FILLERS + 1)
    ids = np.full(n_tokens, pad, dtype=np.int64)
    ids[: ends[-1]] = np.concatenate(texts)
    starts = np.concatenate([[0], ends, np.minimum(fillers, n_tokens)]).astype(np.int32)
    return {"input_ids": torch.from_numpy(ids), "starts": torch.from_numpy(starts)}


class Padding:
    """Pads token ids into what an encoder takes."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.token = int(tokenizer.pad_token_id or 0)
        self.has_types = "token_type_ids" in tokenizer.model_input_names

    def __call__(self, rows: Sequence[Any]) -> Features:
        """Return one batch, each tensor ``(texts, tokens)``."""
        ids, mask = pad([torch.as_tensor(row) for row in rows], self.token)
        features = {"input_ids": ids.long(), "attention_mask": mask}
        if self.has_types:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return features


class Tokens:
    """Texts as token ids, at most ``length``, each tokenised once, when it is first needed."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int
    ) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        self._length = length
        self._ids: list[NDArray[np.int32] | None] = [None] * len(texts)
        self._padding = Padding(tokenizer)

    def __len__(self) -> int:
        return len(self._texts)

    def fill(self, rows: Sequence[int] | range | None = None) -> None:
        """Tokenise some texts, or all; those that are tokenised already are skipped."""
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

    def features(self, rows: Sequence[int]) -> Features:
        """Return some texts as one padded batch."""
        return self._padding(self._get(rows))

    def chunks(self, rows: Sequence[int], size: int) -> tuple[list[Features], Tensor]:
        """Return batches of similar length, and each text's position in them laid end to end.

        With a ``size`` of 0 it is one batch without padding.
        """
        ids = self._get(rows)
        if not size:
            return [pack(ids, self._padding.token)], torch.arange(len(rows))
        order = np.argsort([len(text) for text in ids], kind="stable")
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        features = [self._padding([ids[index] for index in batch]) for batch in batches]
        return features, torch.from_numpy(np.argsort(order))

    def _get(self, rows: Sequence[int]) -> list[NDArray[np.int32]]:
        self.fill(rows)
        return [ids for row in rows if (ids := self._ids[row]) is not None]
