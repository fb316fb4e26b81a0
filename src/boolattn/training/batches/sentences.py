"""Boolean sentences as tensors with their cue, scope and operator labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.logic.labels import span_labels
from boolattn.training.batches.tokens import Padding, pad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.sentences import Sentence

_LENGTH = 128


@dataclass(frozen=True)
class SentenceBatch:
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

    def to(self, device: torch.device) -> SentenceBatch:
        """Move to a device."""
        features = {name: value.to(device) for name, value in self.features.items()}
        moved = (tensor.to(device) for tensor in (self.cues, self.scopes, self.operators))
        return SentenceBatch(features, *moved)


class LabelledSentences:
    """Sentences, each tokenised and labelled when it is first needed.

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
        self._padding = Padding(tokenizer)
        #: Token ids, and labels of shape ``(tokens, cue or scope, operators)``.
        self._rows: dict[int, tuple[NDArray[np.int32], Tensor]] = {}

    def batch(self, rows: Sequence[int]) -> SentenceBatch:
        """Return some sentences as one padded batch."""
        self._fill(rows)
        ids, labels = zip(*(self._rows[row] for row in rows), strict=True)
        cues, scopes = pad(labels)[0].float().permute(2, 0, 3, 1)
        present = [
            [operator in self.sentences[row].operators for operator in self.operators]
            for row in rows
        ]
        operators = torch.tensor(present, dtype=torch.float32)
        return SentenceBatch(self._padding(ids), cues.contiguous(), scopes.contiguous(), operators)

    def _fill(self, rows: Sequence[int]) -> None:
        """Tokenise sentences, and map their character spans to tokens."""
        missing = [row for row in dict.fromkeys(rows) if row not in self._rows]
        if not missing:
            return
        encoded = self.tokenizer(
            [self.sentences[row].text for row in missing],
            truncation=True,
            max_length=_LENGTH,
            return_offsets_mapping=True,
        )
        for row, ids, offsets in zip(
            missing, encoded["input_ids"], encoded["offset_mapping"], strict=True
        ):
            sentence = self.sentences[row]
            labels = [
                [span_labels(spans(sentence, name), offsets, sentence.text) for spans in _SPANS]
                for name in self.operators
            ]
            by_token = torch.tensor(np.array(labels, dtype=np.bool_)).permute(2, 1, 0)
            self._rows[row] = (np.array(ids, dtype=np.int32), by_token)


def _cue_spans(sentence: Sentence, operator: str) -> list[tuple[int, int]]:
    return [(cue.start, cue.end) for cue in sentence.cues if cue.operator == operator]


def _scope_spans(sentence: Sentence, operator: str) -> list[tuple[int, int]]:
    return [span for scope in sentence.scopes if scope.operator == operator for span in scope.spans]


_SPANS = (_cue_spans, _scope_spans)
