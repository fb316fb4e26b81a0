"""Texts as token ids, padded into batches; Boolean sentences with the labels of their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from boolattn.attention.config import OPERATORS
from boolattn.data.sentences import (
    HELD_OUT_SEED,
    Mixture,
    generate,
    generate_triplets,
    read_setbert,
)
from boolattn.errors import ConfigError
from boolattn.query.parsed_query import span_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.sentences import Sentence, Triplet
    from boolattn.training.settings import PretrainSettings

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
    masks = [row.new_ones(len(row), dtype=torch.int64) for row in rows]
    return padded, pad_sequence(masks, batch_first=True)


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


def pad_ids(rows: Sequence[Any], padding: int) -> Features:
    """Return token ids as one batch for an encoder, each tensor ``(texts, tokens)``."""
    ids, mask = pad([torch.as_tensor(row) for row in rows], padding)
    return {"input_ids": ids.long(), "attention_mask": mask}


class Tokens:
    """Texts as token ids, at most ``length``, each tokenised once, when it is first needed."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int
    ) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        self._length = length
        self._padding = int(tokenizer.pad_token_id or 0)
        self._ids: dict[int, NDArray[np.int32]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def fill(self, rows: Sequence[int]) -> None:
        """Tokenise some texts; those that are tokenised already are skipped."""
        missing = sorted({*rows} - self._ids.keys())
        for start in range(0, len(missing), _TEXTS_AT_ONCE):
            part = missing[start : start + _TEXTS_AT_ONCE]
            texts, only_ids = [self._texts[row] for row in part], {"return_attention_mask": False}
            only_ids |= {"return_token_type_ids": False}
            encoded = self._tokenizer(texts, truncation=True, max_length=self._length, **only_ids)
            for row, ids in zip(part, encoded["input_ids"], strict=True):
                self._ids[row] = np.array(ids, dtype=np.int32)

    def features(self, rows: Sequence[int]) -> Features:
        """Return some texts as one padded batch."""
        return pad_ids(self._get(rows), self._padding)

    def chunks(self, rows: Sequence[int], size: int) -> tuple[list[Features], Tensor]:
        """Return batches of similar length, and each text's position in them laid end to end.

        With a ``size`` of 0 it is one batch without padding.
        """
        ids = self._get(rows)
        if not size:
            return [pack(ids, self._padding)], torch.arange(len(rows))
        order = np.argsort([len(text) for text in ids], kind="stable")
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        features = [pad_ids([ids[index] for index in batch], self._padding) for batch in batches]
        return features, torch.from_numpy(np.argsort(order))

    def _get(self, rows: Sequence[int]) -> list[NDArray[np.int32]]:
        self.fill(rows)
        return [self._ids[row] for row in rows]


@dataclass(frozen=True)
class PretrainingSet:
    """What auxiliary pretraining trains and is evaluated on."""

    sentences: Sequence[Sentence]
    triplets: Sequence[Triplet]  # Empty where their loss does not count
    held_out: Mapping[str, Sequence[Sentence]]  # Sentences to evaluate on, by name

    @classmethod
    def generated(cls, settings: PretrainSettings) -> PretrainingSet:
        """Generate all; evaluate on seen and on unseen wordings."""
        n, seed, held_out = settings.n_sentences, settings.seed, {}
        sentences = [*generate(n, seed, Mixture(varied=settings.varied_share))]
        triplets = [*generate_triplets(n, seed)] if settings.triplet_weight else []
        for name in ("held_out", "unseen") if settings.n_held_out else ():
            mixture = Mixture(unseen=name == "unseen")
            held_out[name] = [*generate(settings.n_held_out, seed + HELD_OUT_SEED, mixture)]
        return cls(sentences, triplets, held_out)

    @classmethod
    def setbert(cls, folder: Path, settings: PretrainSettings) -> PretrainingSet:
        """Read SetBERT's sentences, which have no scopes; evaluate on some of its test split."""
        if settings.scope_weight:
            raise ConfigError("SetBERT's sentences have no scopes; set pretrain.scope_weight=0")
        rows = list(read_setbert(folder, settings.seed))
        test = list(read_setbert(folder, settings.seed, is_test=True))
        order = np.random.default_rng(settings.seed).permutation(len(test))
        triplets = [triplet for _, triplet in rows if triplet and settings.triplet_weight]
        chosen = [test[index][0] for index in order[: settings.n_held_out]]
        held_out = {"held_out": chosen} if chosen else {}
        return cls([sentence for sentence, _ in rows], triplets, held_out)


class SentenceBatch(NamedTuple):
    """Sentences as tensors, with their labels: 0 or 1."""

    features: dict[str, Tensor]  # What the encoder takes, each ``(batch, tokens)``
    cues: Tensor  # Shape ``(batch, operators, tokens)``
    scopes: Tensor  # Same shape
    operators: Tensor  # Shape ``(batch, operators)``

    @property
    def mask(self) -> Tensor:
        """1 for tokens, 0 for padding. Shape ``(batch, tokens)``."""
        return self.features["attention_mask"]


class LabelledSentences:
    """Sentences, tokenised by a fast tokenizer, with the labels of their tokens."""

    def __init__(self, sentences: Sequence[Sentence], tokenizer: PreTrainedTokenizerBase) -> None:
        self.sentences, self._padding = sentences, int(tokenizer.pad_token_id or 0)
        options = {"truncation": True, "max_length": 128, "return_offsets_mapping": True}
        texts = [sentence.text for sentence in sentences]
        self._encoded: Any = tokenizer(texts, **options) if texts else {}
        self._label = cache(self._find_label)

    def batch(self, rows: Sequence[int]) -> SentenceBatch:
        """Return some sentences as one padded batch."""
        labels = pad([self._label(row) for row in rows])[0]
        cues, scopes = labels.float().permute(2, 0, 3, 1)
        used = [self.sentences[row].operators for row in rows]
        operators = torch.tensor([[float(name in u) for name in OPERATORS] for u in used])
        ids = [self._encoded["input_ids"][row] for row in rows]
        features = pad_ids(ids, self._padding)
        return SentenceBatch(features, cues.contiguous(), scopes.contiguous(), operators)

    def _find_label(self, row: int) -> Tensor:
        """Map character spans to tokens. Shape ``(tokens, cue or scope, operators)``."""
        sentence, offsets = self.sentences[row], self._encoded["offset_mapping"][row]
        labels = []
        for name in OPERATORS:
            cues = [(cue.start, cue.end) for cue in sentence.cues if cue.operator == name]
            scopes = [span for s in sentence.scopes if s.operator == name for span in s.spans]
            labels.append([span_labels(s, offsets, sentence.text) for s in (cues, scopes)])
        return torch.tensor(np.array(labels, dtype=np.bool_)).permute(2, 1, 0)
