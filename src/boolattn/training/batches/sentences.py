"""Boolean sentences as token batches with their labels, for heads and scopes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from boolattn.data.sentences import (
    HELD_OUT_SEED,
    Mixture,
    generate,
    generate_triplets,
    read_setbert,
)
from boolattn.errors import ConfigError, MissingDataError
from boolattn.query.parsed_query import span_labels
from boolattn.training.batches.tokens import Features, Padding, pad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
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
        rows = list(read_setbert(folder, settings.seed))
        test = list(read_setbert(folder, settings.seed, is_test=True))
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


@dataclass(eq=False)
class LabelledSentences:
    """Sentences, each tokenised (by a fast tokenizer) and labelled when it is first needed."""

    sentences: Sequence[Sentence]
    tokenizer: PreTrainedTokenizerBase
    operators: Sequence[str]
    #: Token ids, and labels of shape ``(tokens, cue or scope, operators)``.
    _rows: dict[int, tuple[NDArray[np.int32], Tensor]] = field(default_factory=dict)

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
        features = Padding(self.tokenizer)(ids)
        return SentenceBatch(features, cues.contiguous(), scopes.contiguous(), operators)

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
            labels = []
            for name in self.operators:
                cues = [(cue.start, cue.end) for cue in sentence.cues if cue.operator == name]
                scoped = (scope for scope in sentence.scopes if scope.operator == name)
                scopes = [span for scope in scoped for span in scope.spans]
                labels.append([span_labels(s, offsets, sentence.text) for s in (cues, scopes)])
            by_token = torch.tensor(np.array(labels, dtype=np.bool_)).permute(2, 1, 0)
            self._rows[row] = (np.array(ids, dtype=np.int32), by_token)


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
