"""Auxiliary pretraining: the heads learn cues, gates and scopes before they steer anything.

``L_cue + L_gate + 0.2 L_triplet`` on generated sentences, and scopes where asked for; only
BoolAttn and, where asked for, the encoder's embedding layer learn.
May import: boolattn.plugin, boolattn.attention, boolattn.data, boolattn.logic,
boolattn.training, boolattn.errors.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from boolattn.data.sentences import Mixture, Sentence, generate, generate_triplets
from boolattn.errors import ConfigError
from boolattn.logic.labels import span_labels
from boolattn.plugin.attach import plugin_of
from boolattn.plugin.recording import Record, recording
from boolattn.training.losses import cue_loss, gate_loss, scope_loss, triplet_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.training.settings import PretrainSettings

logger = logging.getLogger(__name__)

_LENGTH = 128
_HELD_OUT_SEED = 1_000_003


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


def label(
    sentences: Sequence[Sentence],
    tokenizer: PreTrainedTokenizerBase,
    operators: Sequence[str],
) -> Labelled:
    """Tokenise sentences and lay their character spans over the tokens."""
    encoded = tokenizer(
        [sentence.text for sentence in sentences],
        truncation=True,
        max_length=_LENGTH,
        padding=True,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    offsets = encoded.pop("offset_mapping").tolist()
    cues: list[list[list[bool]]] = []
    scopes: list[list[list[bool]]] = []
    for sentence, row in zip(sentences, offsets, strict=True):
        for rows, spans_of in ((cues, _cue_spans), (scopes, _scope_spans)):
            labels = [span_labels(spans_of(sentence, o), row, sentence.text) for o in operators]
            rows.append(labels)
    present = [[operator in sentence.operators for operator in operators] for sentence in sentences]
    return Labelled(
        dict(encoded),
        torch.tensor(cues, dtype=torch.float32),
        torch.tensor(scopes, dtype=torch.float32),
        torch.tensor(present, dtype=torch.float32),
    )


def _cue_spans(sentence: Sentence, operator: str) -> list[tuple[int, int]]:
    return [(cue.start, cue.end) for cue in sentence.cues if cue.operator == operator]


def _scope_spans(sentence: Sentence, operator: str) -> list[tuple[int, int]]:
    return [span for scope in sentence.scopes if scope.operator == operator for span in scope.spans]


class Pretrainer:
    """Teaches an encoder's plug-in.

    Args:
        encoder: Carries BoolAttn; changed in place.
        tokenizer: The encoder's.
        settings: Every number.
        pooling: "mean" or "cls", for the triplets' vectors.
    """

    def __init__(
        self,
        encoder: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: PretrainSettings,
        pooling: str = "mean",
    ) -> None:
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.settings = settings
        self.pooling = pooling
        self.plugin = plugin_of(encoder)
        self.operators = self.plugin.config.operators
        self.is_learned = self.plugin.config.gate == "learned"

    def run(
        self, log: Callable[[int, dict[str, float]], None] = lambda step, values: None
    ) -> dict[str, float]:
        """Pretrain, then measure.

        Args:
            log: Called with a step and its losses, now and then.

        Returns:
            What :meth:`measure` says of held-out and of unseen wordings.
        """
        settings = self.settings
        torch.manual_seed(settings.seed)
        parameters = self._trainable()
        optimizer = torch.optim.AdamW(
            parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        per_epoch = max(1, settings.n_sentences // settings.batch_size)
        n_steps = settings.max_steps or settings.n_epochs * per_epoch
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: linear(step, settings.warmup_steps, n_steps)
        )
        self.encoder.train()
        for step, (sentences, triplets) in enumerate(self._batches(per_epoch, n_steps), start=1):
            losses = self._losses(sentences, triplets)
            total = torch.stack(list(losses.values())).sum()
            if not torch.isfinite(total):
                raise ConfigError(
                    f"the pretraining loss is {total.item()} at step {step}; lower learning_rate"
                )
            optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            if step % 20 == 0 or step == n_steps:
                log(step, {name: loss.item() for name, loss in losses.items()})
        for parameter in self.encoder.parameters():
            parameter.requires_grad_(True)
        return self.report()

    def report(self) -> dict[str, float]:
        """Measure on held-out sentences in the wordings of training, and in unseen ones."""
        n = self.settings.n_held_out
        result: dict[str, float] = {}
        for name, unseen in (("held_out", False), ("unseen", True)):
            if n:
                mixture = Mixture(unseen=unseen)
                sentences = list(generate(n, self.settings.seed + _HELD_OUT_SEED, mixture))
                measured = self.measure(sentences)
                result |= {f"{name}_{key}": value for key, value in measured.items()}
        return result

    def measure(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Measure the heads on sentences.

        Returns:
            F1 of cue tokens for each operator and for all; F1 of scope tokens over all layers
            and heads, with the gate opened by label; the share of sentences whose gate is
            right in every operator, where the gate reads the text.
        """
        self.encoder.eval()
        cue, scope = _Counts(len(self.operators)), _Counts(len(self.operators))
        n_right = n_asked = 0
        with torch.inference_mode():
            for start in range(0, len(sentences), 64):
                part = self._label(sentences[start : start + 64])
                record, _ = self._forward(part, by_label=True)
                found = (record.readings[-1].cue_logits > 0).float()
                cue.add(found, part.cues, part.mask[:, None])
                asked = part.mask[:, None] * part.operators[..., None]
                for layer in record.biases.values():
                    for head in layer.scope.inside.unbind(-1):
                        scope.add(head.transpose(1, 2), part.scopes, asked)
                if self.plugin.config.gate != "label":
                    gate = self._forward(part, by_label=False)[0].readings[-1].gate
                    n_right += int((gate.open == part.operators).all(-1).sum())
                    n_asked += len(part.operators)
        self.encoder.train()
        result = {"cue_f1": cue.f1(), "scope_f1": scope.f1()}
        if n_asked:
            result["gate_accuracy"] = n_right / n_asked
        for index, operator in enumerate(self.operators):
            result[f"cue_f1_{operator}"] = cue.f1(index)
        return result

    def _trainable(self) -> list[nn.Parameter]:
        """Freeze the encoder's layers; return what learns."""
        for parameter in self.encoder.parameters():
            parameter.requires_grad_(False)
        chosen: list[nn.Module] = [self.plugin]
        if self.settings.train_embeddings:
            chosen.append(self.encoder.base_model.get_submodule("embeddings"))
        parameters = [p for module in chosen for p in module.parameters()]
        for parameter in parameters:
            parameter.requires_grad_(True)
        return parameters

    def _batches(self, per_epoch: int, n_steps: int) -> Iterator[tuple[list[Sentence], list[Any]]]:
        """Yield sentences, and triplets where their loss counts, in a new order each epoch."""
        settings = self.settings
        size = settings.batch_size
        sentences = list(generate(settings.n_sentences, settings.seed))
        triplets = []
        if settings.triplet_weight:
            triplets = list(generate_triplets(settings.n_sentences, settings.seed))
        for step in range(n_steps):
            epoch, place = divmod(step, per_epoch)
            rng = np.random.default_rng([settings.seed, epoch])
            order = rng.permutation(len(sentences))[place * size : (place + 1) * size]
            # Three sentences each, so a third as many make the same work.
            of_triplets = order[: max(1, size // 3) if triplets else 0]
            yield [sentences[i] for i in order], [triplets[i] for i in of_triplets]

    def _losses(self, sentences: list[Sentence], triplets: list[Any]) -> dict[str, Tensor]:
        """Return every loss, weighted."""
        settings = self.settings
        part = self._label(sentences)
        record, _ = self._forward(part, by_label=not self.is_learned)
        reading = record.readings[-1]
        losses = {
            "cue": settings.cue_weight
            * cue_loss(
                reading.cue_logits,
                part.cues,
                part.mask,
                positive_weight=settings.cue_positive_weight,
            )
        }
        if reading.gate.logits is not None and settings.gate_weight:
            temperature = self.plugin.config.gate_temperature
            loss = gate_loss(reading.gate.logits, part.operators, temperature=temperature)
            losses["gate"] = settings.gate_weight * loss
        if record.biases and settings.scope_weight:
            logits = [layer.scope.logits for layer in record.biases.values()]
            loss = scope_loss(logits, part.scopes, part.operators, part.mask)
            losses["scope"] = settings.scope_weight * loss
        if triplets:
            losses["triplet"] = settings.triplet_weight * self._triplet_loss(triplets)
        return losses

    def _triplet_loss(self, triplets: list[Any]) -> Tensor:
        columns = [
            [getattr(t, name) for t in triplets] for name in ("anchor", "positive", "negative")
        ]
        part = self._label([sentence for column in columns for sentence in column])
        _, hidden = self._forward(part, by_label=not self.is_learned)
        anchor, positive, negative = pool(hidden, part.mask, self.pooling).chunk(3)
        return triplet_loss(anchor, positive, negative, margin=self.settings.margin)

    def _label(self, sentences: Sequence[Sentence]) -> Labelled:
        return label(sentences, self.tokenizer, self.operators).to(self.encoder.device)

    def _forward(self, part: Labelled, *, by_label: bool) -> tuple[Record, Tensor]:
        given = {"operators": part.operators} if by_label else {}
        with recording() as record:
            output = self.encoder(**part.features, **given)
        return record, output.last_hidden_state


def pool(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Make one vector of a text. ``(batch, tokens, dim)`` -> ``(batch, dim)``."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask[..., None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


def linear(step: int, warmup: int, total: int) -> float:
    """Rise to 1 over the warm-up, then fall to 0 at the end.

    >>> [linear(step, 2, 6) for step in range(7)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup:
        return step / warmup
    return max(0.0, (total - step) / max(1, total - warmup))


class _Counts:
    """Right, found and wanted tokens of each operator."""

    def __init__(self, n_operators: int) -> None:
        self.counts = torch.zeros(3, n_operators)

    def add(self, found: Tensor, wanted: Tensor, mask: Tensor) -> None:
        """Count a batch. Each ``(batch, operators, tokens)``."""
        parts = (found * wanted * mask, found * mask, wanted * mask)
        self.counts += torch.stack([part.sum((0, 2)).float().cpu() for part in parts])

    def f1(self, operator: int | None = None) -> float:
        """Harmonic mean of precision and recall; 0 where nothing was wanted."""
        counts = self.counts if operator is None else self.counts[:, operator : operator + 1]
        right, found, wanted = counts.sum(1).tolist()
        return 2 * right / (found + wanted) if found + wanted else 0.0
