"""Boolean sentences as token batches with their labels, for heads and scopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from boolattn.data.sentences import HELD_OUT_SEED, Mixture, generate, generate_triplets
from boolattn.data.setbert import label_setbert, read_setbert
from boolattn.errors import ConfigError, MissingDataError
from boolattn.query.parsed_query import span_labels
from boolattn.training.batches.tokens import Features, Padding, pad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from boolattn.data.sentences import Sentence, Triplet
    from boolattn.training.settings import Preset, PretrainSettings

_LENGTH = 128
#: Purpose of the random generator.
_SCOPES = 13


@dataclass(frozen=True)
class PretrainingSet:
    """What auxiliary pretraining trains and is evaluated on."""

    sentences: Sequence[Sentence]
    triplets: Sequence[Triplet]  # Empty where their loss does not count
    held_out: Mapping[str, Sequence[Sentence]]  # Sentences to evaluate on, by name

    @classmethod
    def generated(cls, settings: PretrainSettings) -> PretrainingSet:
        """Generate all; evaluate on seen and on unseen wordings."""
        n, seed, n_held_out = settings.n_sentences, settings.seed, settings.n_held_out
        mixture = Mixture(varied=settings.varied_share)
        return cls(
            [*generate(n, seed, mixture)],
            [*generate_triplets(n, seed)] if settings.triplet_weight else [],
            {
                name: [*generate(n_held_out, seed + HELD_OUT_SEED, Mixture(unseen=unseen))]
                for name, unseen in (("held_out", False), ("unseen", True))
                if n_held_out
            },
        )

    @classmethod
    def setbert(cls, folder: Path, settings: PretrainSettings) -> PretrainingSet:
        """Read SetBERT's sentences, which have no scopes; evaluate on some of its test split."""
        if settings.scope_weight:
            raise ConfigError("SetBERT's sentences have no scopes; set pretrain.scope_weight=0")
        rows = list(label_setbert(read_setbert(folder), settings.seed))
        test = list(label_setbert(read_setbert(folder, "test"), settings.seed))
        order = np.random.default_rng(settings.seed).permutation(len(test))
        triplets = [triplet for _, triplet in rows if triplet and settings.triplet_weight]
        sentences = [sentence for sentence, _ in rows]
        chosen = [test[index][0] for index in order[: settings.n_held_out]]
        return cls(sentences, triplets, {"held_out": chosen} if chosen else {})


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

    def __init__(
        self,
        sentences: Sequence[Sentence],
        tokenizer: PreTrainedTokenizerBase,
        operators: Sequence[str],
    ) -> None:
        self.sentences, self.operators = sentences, operators
        self._padding = Padding(tokenizer)
        options = {"truncation": True, "max_length": _LENGTH, "return_offsets_mapping": True}
        texts = [sentence.text for sentence in sentences]
        self._encoded: Any = tokenizer(texts, **options) if texts else {}
        self._labels: dict[int, Tensor] = {}

    def batch(self, rows: Sequence[int]) -> SentenceBatch:
        """Return some sentences as one padded batch."""
        labels = pad([self._label(row) for row in rows])[0]
        cues, scopes = labels.float().permute(2, 0, 3, 1)
        used = [self.sentences[row].operators for row in rows]
        operators = torch.tensor([[float(name in u) for name in self.operators] for u in used])
        features = self._padding([self._encoded["input_ids"][row] for row in rows])
        return SentenceBatch(features, cues.contiguous(), scopes.contiguous(), operators)

    def _label(self, row: int) -> Tensor:
        """Map character spans to tokens, once. Shape ``(tokens, cue or scope, operators)``."""
        if row not in self._labels:
            sentence, offsets = self.sentences[row], self._encoded["offset_mapping"][row]
            labels = []
            for name in self.operators:
                cues = [(cue.start, cue.end) for cue in sentence.cues if cue.operator == name]
                scoped = (scope for scope in sentence.scopes if scope.operator == name)
                scopes = [span for scope in scoped for span in scope.spans]
                labels.append([span_labels(s, offsets, sentence.text) for s in (cues, scopes)])
            self._labels[row] = torch.tensor(np.array(labels, dtype=np.bool_)).permute(2, 1, 0)
        return self._labels[row]


class ScopeSentences:
    """Sentences whose scopes are supervised while retrieval is trained."""

    def __init__(self, preset: Preset, tokenizer: PreTrainedTokenizerBase) -> None:
        mixture = Mixture(varied=preset.pretrain.varied_share)
        self.seed = preset.train.seed
        try:
            every = generate(preset.pretrain.n_sentences, self.seed, mixture)
        except MissingDataError as error:
            raise ConfigError(f"{error}; or train without: train.scope_weight=0") from error
        experts = preset.plugin.operators
        used = [sentence for sentence in every if set(sentence.operators) & set(experts)]
        self.labelled = LabelledSentences(used, tokenizer, experts)

    def features(self, n: int, step: int, process: int) -> Features:
        """Draw a step's sentences: what the encoder takes, operator labels and scopes."""
        rng = np.random.default_rng([self.seed, _SCOPES, step, process])
        part = self.labelled.batch(rng.integers(len(self.labelled.sentences), size=n).tolist())
        return {**part.features, "operators": part.operators, "scopes": part.scopes}
