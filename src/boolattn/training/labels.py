"""Sentences as tensors with their labels, each tokenised and labelled once.

May import: boolattn.data.sentences, boolattn.logic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.logic.labels import span_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.sentences import Sentence

_LENGTH = 128


@dataclass(frozen=True)
class Labelled:
    """Sentences as tensors, with their labels.

    Attributes:
        features: What the encoder takes, each ``(batch, tokens)``.
        cues: 0 or 1. Shape ``(batch, operators, tokens)``.
        scopes: 0 or 1. Same shape.
        operators: 0 or 1. Shape ``(batch, operators)``.
    """

    features: dict[str, Tensor]
    cues: Tensor
    scopes: Tensor
    operators: Tensor

    @property
    def mask(self) -> Tensor:
        """1 for tokens, 0 for padding. Shape ``(batch, tokens)``."""
        return self.features["attention_mask"]

    def to(self, device: torch.device) -> Labelled:
        """Move to a device."""
        features = {name: value.to(device) for name, value in self.features.items()}
        moved = (tensor.to(device) for tensor in (self.cues, self.scopes, self.operators))
        return Labelled(features, *moved)


class Labels:
    """Sentences, tokenised and labelled when they are first asked for.

    Args:
        sentences: The sentences.
        tokenizer: A fast tokenizer, the encoder's.
        operators: The operator axis.
    """

    def __init__(
        self,
        sentences: Sequence[Sentence],
        tokenizer: PreTrainedTokenizerBase,
        operators: Sequence[str],
    ) -> None:
        self.sentences = sentences
        self.tokenizer = tokenizer
        self.operators = operators
        self._pad = int(tokenizer.pad_token_id or 0)
        self._has_types = "token_type_ids" in tokenizer.model_input_names
        self._rows: dict[int, tuple[list[int], NDArray[np.bool_]]] = {}

    def __len__(self) -> int:
        return len(self.sentences)

    def batch(self, places: Sequence[int]) -> Labelled:
        """Put some sentences into one padded batch."""
        self._fill(places)
        rows = [self._rows[place] for place in places]
        longest = max(len(ids) for ids, _ in rows)
        ids = np.full((len(rows), longest), self._pad, dtype=np.int64)
        mask = np.zeros((len(rows), longest), dtype=np.int64)
        # Cues, then scopes.
        labels = np.zeros((2, len(rows), len(self.operators), longest), dtype=np.float32)
        for row, (own, marks) in enumerate(rows):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
            labels[:, row, :, : len(own)] = marks
        present = [
            [operator in self.sentences[place].operators for operator in self.operators]
            for place in places
        ]
        features = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if self._has_types:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        cues, scopes = torch.from_numpy(labels)
        return Labelled(features, cues, scopes, torch.tensor(present, dtype=torch.float32))

    def _fill(self, places: Sequence[int]) -> None:
        """Tokenise what is not yet, and lay the sentences' character spans over the tokens."""
        missing = [place for place in dict.fromkeys(places) if place not in self._rows]
        if not missing:
            return
        encoded = self.tokenizer(
            [self.sentences[place].text for place in missing],
            truncation=True,
            max_length=_LENGTH,
            return_offsets_mapping=True,
        )
        for place, ids, offsets in zip(
            missing, encoded["input_ids"], encoded["offset_mapping"], strict=True
        ):
            sentence = self.sentences[place]
            marks = [
                [
                    span_labels(spans_of(sentence, name), offsets, sentence.text)
                    for name in self.operators
                ]
                for spans_of in (_cue_spans, _scope_spans)
            ]
            self._rows[place] = (ids, np.array(marks, dtype=np.bool_))


def _cue_spans(sentence: Sentence, operator: str) -> list[tuple[int, int]]:
    return [(cue.start, cue.end) for cue in sentence.cues if cue.operator == operator]


def _scope_spans(sentence: Sentence, operator: str) -> list[tuple[int, int]]:
    return [span for scope in sentence.scopes if scope.operator == operator for span in scope.spans]
