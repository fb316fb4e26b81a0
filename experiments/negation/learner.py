"""Training and measuring BoolAttn's heads for NOT on annotated negation.

The heads are trained on the training part of CD-SCO or SFU and measured on its test part, word by
word, with the encoder frozen or fine-tuned. The negations of a sentence are joined, because
BoolAttn has one scope for each operator.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from boolattn.attention.config import BoolAttnConfig
from boolattn.data.catalog import open_negation
from boolattn.errors import DataError
from boolattn.plugin import attach
from boolattn.plugin.install import plugin_of
from boolattn.plugin.recording import recording
from boolattn.training.batches.tokens import Padding, pad
from boolattn.training.loop import Loop, LoopSettings, fast_products
from boolattn.training.losses import cue_loss, scope_loss
from boolattn.training.towers import load_encoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.data.negation import Negation

logger = logging.getLogger(__name__)

#: Stands before a word whose cue is given, as a part of it; neither corpus has this character.
MARK = "§"


@dataclass(frozen=True, kw_only=True)
class NegationSettings:
    """Settings of a training on annotated negation."""

    is_frozen: bool = True  # Whether only the heads are trained
    #: Whether it is NegBERT's task: each negation by itself, its cue marked in the text
    is_given: bool = False
    n_epochs: int = 8  # The best on the development part is kept
    batch_size: int = 32
    learning_rate: float = 5e-5  # Of the encoder
    head_learning_rate: float = 2e-3
    cue_positive_weight: float = 3.0  # Weight of a cue token in the loss; other tokens have 1
    length: int = 160  # Longest sentence in tokens
    max_steps: int = 0  # Stop after so many steps; 0: after the epochs
    seed: int = 0  # Of order, dropout and noise


@dataclass(frozen=True)
class Annotated:
    """One sentence with all its negations."""

    words: tuple[str, ...]
    cue: tuple[bool, ...]  # Whether each word is a cue or contains one
    scope: tuple[bool, ...]  # Whether each word is negated


@dataclass(frozen=True)
class NegationBatch:
    """Sentences as tensors."""

    features: dict[str, Tensor]  # Inputs of the encoder
    words: Tensor  # Index of each token's word in the batch; -1 for special tokens and padding
    cues: Tensor  # 0 or 1. Shape ``(batch, 1, tokens)``
    scopes: Tensor  # Same shape
    has_negation: Tensor  # Shape ``(batch, 1)``


def merged(records: Iterable[Negation]) -> list[Annotated]:
    """Join consecutive records of one sentence."""
    found = []
    for _, group in groupby(records, key=lambda record: (record.source, record.tokens)):
        same = list(group)
        cue = tuple(any(flags) for flags in zip(*(one.cue for one in same), strict=True))
        scope = tuple(any(flags) for flags in zip(*(one.scope for one in same), strict=True))
        found.append(Annotated(same[0].tokens, cue, scope))
    return found


def marked(records: Iterable[Negation]) -> list[Annotated]:
    """Mark the cue of each negation in its sentence; leave out sentences without one."""
    found = []
    for one in records:
        if one.has_negation:
            both = zip(one.tokens, one.cue, strict=True)
            words = tuple(f"{MARK} {word}" if is_cue else word for word, is_cue in both)
            found.append(Annotated(words, one.cue, one.scope))
    return found


@dataclass
class Learner:
    """Trains an encoder with BoolAttn's NOT expert."""

    encoder: PreTrainedModel  # With the plug-in; changed in place
    tokenizer: PreTrainedTokenizerBase
    settings: NegationSettings

    def __post_init__(self) -> None:
        self.plugin = plugin_of(self.encoder)
        self._padding = Padding(self.tokenizer)
        self._cache: dict[Annotated, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = {}

    @fast_products()
    def fit(self, train: Sequence[Annotated], dev: Sequence[Annotated]) -> dict[str, float]:
        """Train; keep the epoch that is best on the development part, and return its F1."""
        settings = self.settings
        per_epoch = -(-len(train) // settings.batch_size)
        n_steps = settings.max_steps or per_epoch * settings.n_epochs
        best: dict[str, float] = {}
        weights: dict[str, Tensor] = {}
        order = self._order(len(train), n_steps)

        def losses_of(_step: int) -> dict[str, Tensor]:
            self.encoder.train()
            return {"loss": self._loss(self.batch([train[row] for row in next(order)]))}

        def evaluate(step: int, _losses: dict[str, float]) -> None:
            found = self.measure(dev)
            logger.info("step %d of %d: %s", step, n_steps, found)
            if not best or _sum_of_f1(found) > _sum_of_f1(best):
                best.update(found)
                weights.update((k, v.cpu().clone()) for k, v in self.encoder.state_dict().items())

        loop = LoopSettings(
            name="negation",
            n_steps=n_steps,
            learning_rate=settings.head_learning_rate,
            warmup_steps=min(50, n_steps // 10),
            log_every=per_epoch,
        )
        Loop(self._groups(), loop).run(losses_of, evaluate)
        self.encoder.load_state_dict(weights)
        return best

    def measure(self, sentences: Sequence[Annotated]) -> dict[str, float]:
        """Measure word by word.

        Returns:
            ``cue_f1``; ``scope_f1`` over sentences that have a negation, as others report it;
            ``scope_f1_plain`` over all sentences, where a cue was found. A word is a cue if any
            of its tokens is; it is in scope by the mean over its tokens and the last layer's
            heads.
        """
        self.encoder.eval()
        cue, known, plain = _Counts(), _Counts(), _Counts()
        with torch.inference_mode():
            for start in range(0, len(sentences), 128):
                part = sentences[start : start + 128]
                batch = self.batch(part)
                with recording() as record:
                    ones = torch.ones_like(batch.has_negation)
                    self.encoder(**batch.features, operators=ones)
                cues = torch.sigmoid(record.cue_states[-1].cue_logits[:, 0].float())
                scope = record.biases[max(record.biases)].scope.logits[:, :, 0].float()
                inside = torch.sigmoid(scope).mean(-1)
                found = _by_word(cues, batch.words, part, how="amax") > 0.5
                within = _by_word(inside, batch.words, part, how="mean") > 0.5
                annotated = np.array([flag for one in part for flag in one.cue])
                negated = np.array([flag for one in part for flag in one.scope])
                lengths = [len(one.words) for one in part]
                cue.add(found, annotated)
                real = _any(annotated, lengths)
                known.add(within[real], negated[real])
                plain.add(within & _any(found, lengths), negated)
        return {"cue_f1": cue.f1, "scope_f1": known.f1, "scope_f1_plain": plain.f1}

    def batch(self, sentences: Sequence[Annotated]) -> NegationBatch:
        """Return sentences as tensors, with the annotation of each token's word."""
        rows = [self._tokens(one) for one in sentences]
        first = np.cumsum([0, *(len(one.words) for one in sentences)])
        own = [
            torch.from_numpy(np.where(words < 0, -1, words + start))
            for (_, words, _), start in zip(rows, first[:-1], strict=True)
        ]
        labels, _ = pad([torch.from_numpy(labels) for *_, labels in rows])
        device = self.encoder.device
        cues, scopes = labels.to(device).permute(2, 0, 1)[:, :, None]
        features = self._padding([ids for ids, *_ in rows])
        return NegationBatch(
            {name: value.to(device) for name, value in features.items()},
            pad(own, -1)[0].to(device),
            cues,
            scopes,
            torch.tensor([[float(any(one.cue))] for one in sentences], device=device),
        )

    def _tokens(self, one: Annotated) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return a sentence's token ids, words (-1: none) and labels ``(tokens, cue or scope)``."""
        if one not in self._cache:
            encoded = self.tokenizer(
                list(one.words),
                is_split_into_words=True,
                truncation=True,
                max_length=self.settings.length,
            )
            words = np.array([-1 if word is None else word for word in encoded.word_ids()])
            by_word = np.array([*zip(one.cue, one.scope, strict=True), (False, False)])
            labels = by_word[words].astype(np.float32)  # the last row is for no word
            self._cache[one] = (np.array(encoded["input_ids"], dtype=np.int32), words, labels)
        return self._cache[one]

    def _loss(self, batch: NegationBatch) -> Tensor:
        with recording() as record:
            self.encoder(**batch.features, operators=batch.has_negation)
        mask = batch.features["attention_mask"]
        weight = self.settings.cue_positive_weight
        loss = cue_loss(record.cue_states[-1].cue_logits, batch.cues, mask, positive_weight=weight)
        if record.biases:
            logits = [layer.scope.logits for layer in record.biases.values()]
            loss = loss + scope_loss(logits, batch.scopes, batch.has_negation, mask)
        return loss

    def _groups(self) -> list[dict[str, Any]]:
        own = {id(parameter) for parameter in self.plugin.parameters()}
        heads = {"params": list(self.plugin.parameters()), "lr": self.settings.head_learning_rate}
        rest = [p for p in self.encoder.parameters() if id(p) not in own]
        for parameter in rest:
            parameter.requires_grad_(not self.settings.is_frozen)
        if self.settings.is_frozen:
            return [heads]
        return [heads, {"params": rest, "lr": self.settings.learning_rate}]

    def _order(self, n: int, n_steps: int) -> Iterator[list[int]]:
        """List the sentences of each step, shuffled in each epoch."""
        step = epoch = 0
        while step < n_steps:
            order = np.random.default_rng([self.settings.seed, epoch]).permutation(n).tolist()
            epoch += 1
            for start in range(0, n, self.settings.batch_size):
                if step == n_steps:
                    return
                yield order[start : start + self.settings.batch_size]
                step += 1


def train_and_measure(
    corpus: str, folder: Path | None, encoder: str, settings: NegationSettings
) -> dict[str, Any]:
    """Train; return settings, sizes, and F1 on the development and test parts."""
    torch.manual_seed(settings.seed)
    join = marked if settings.is_given else merged
    splits = {name: join(records) for name, records in open_negation(corpus, folder).items()}
    if missing := {"train", "dev", "test"} - set(splits):
        raise DataError(f"{corpus} lacks its {', '.join(sorted(missing))} part in {folder}")
    model, tokenizer = load_encoder(encoder)
    attach(model, BoolAttnConfig(operators=("not",), gate="label"), tokenizer=tokenizer)
    nn.Module.to(model, "cuda" if torch.cuda.is_available() else "cpu")
    learner = Learner(model, tokenizer, settings)
    dev = learner.fit(splits["train"], splits["dev"])
    return {
        "corpus": corpus,
        "settings": asdict(settings),
        "n_sentences": {name: len(rows) for name, rows in splits.items()},
        "n_negated": {name: sum(any(r.cue) for r in rows) for name, rows in splits.items()},
        "dev": dev,
        "test": learner.measure(splits["test"]),
    }


def _by_word(values: Tensor, words: Tensor, part: Sequence[Annotated], how: str) -> Any:  # noqa: ANN401
    """Gather token values by word; a truncated word has 0."""
    n = sum(len(one.words) for one in part)
    is_word = words >= 0
    gathered = torch.zeros(n, device=values.device)
    gathered.scatter_reduce_(0, words[is_word], values[is_word], how, include_self=False)
    return gathered.cpu().numpy()


def _any(flags: Any, lengths: Sequence[int]) -> Any:  # noqa: ANN401 - arrays
    """For each word, whether any word of its sentence is flagged."""
    parts = np.split(flags, np.cumsum(lengths)[:-1])
    return np.repeat([bool(part.any()) for part in parts], lengths)


def _sum_of_f1(found: dict[str, float]) -> float:
    return found["cue_f1"] + found["scope_f1"]


class _Counts:
    """Counts of predicted, annotated and correct words."""

    def __init__(self) -> None:
        self.correct = self.predicted = self.annotated = 0

    def add(self, predicted: Any, annotated: Any) -> None:  # noqa: ANN401 - arrays
        self.correct += int((predicted & annotated).sum())
        self.predicted += int(predicted.sum())
        self.annotated += int(annotated.sum())

    @property
    def f1(self) -> float:
        total = self.predicted + self.annotated
        return 2 * self.correct / total if total else 0.0
