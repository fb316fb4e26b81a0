"""Auxiliary pretraining: the heads learn cues, gates and scopes before they steer anything.

``L_cue + L_gate + 0.2 L_triplet`` on generated sentences, and scopes where asked for; only
BoolAttn and, where asked for, the encoder's embedding layer learn.
May import: boolattn.plugin, boolattn.attention, boolattn.data, boolattn.logic,
boolattn.training, boolattn.errors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from boolattn.data.sentences import Mixture
from boolattn.data.sentences.store import HELD_OUT_SEED, SentenceStore
from boolattn.errors import ConfigError
from boolattn.plugin.attach import plugin_of
from boolattn.plugin.recording import Record, recording
from boolattn.training.labels import Labelled, Labels
from boolattn.training.losses import cue_loss, gate_loss, scope_loss, triplet_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.data.sentences import Sentence
    from boolattn.training.settings import PretrainSettings

logger = logging.getLogger(__name__)

_TRIPLET = ("anchor", "positive", "negative")


class Pretrainer:
    """Teaches an encoder's plug-in.

    Args:
        encoder: Carries BoolAttn; changed in place.
        tokenizer: The encoder's.
        settings: Every number.
        pooling: "mean" or "cls", for the triplets' vectors.
        made: Where sentences come from; left out, they are generated.
    """

    def __init__(
        self,
        encoder: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: PretrainSettings,
        pooling: str = "mean",
        *,
        made: SentenceStore | None = None,
    ) -> None:
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.settings = settings
        self.pooling = pooling
        self.made = made or SentenceStore()
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
                sentences = self.made.sentences(n, self.settings.seed + HELD_OUT_SEED, mixture)
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
        labels = self._labels(sentences)
        n_right = n_asked = 0
        with torch.inference_mode():
            for start in range(0, len(sentences), 64):
                part = self._to_device(labels.batch(range(start, min(start + 64, len(sentences)))))
                record, _ = self._forward(part, by_label=True)
                found = (record.cue_states[-1].cue_logits > 0).float()
                cue.add(found, part.cues, part.mask[:, None])
                asked = part.mask[:, None] * part.operators[..., None]
                for layer in record.biases.values():
                    for head in layer.scope.inside.unbind(-1):
                        scope.add(head.transpose(1, 2), part.scopes, asked)
                if self.plugin.config.gate != "label":
                    gate = self._forward(part, by_label=False)[0].cue_states[-1].gate
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

    def _batches(self, per_epoch: int, n_steps: int) -> Iterator[tuple[Labelled, Labelled | None]]:
        """Yield sentences, and triplets where their loss counts, in a new order each epoch."""
        settings = self.settings
        size, n = settings.batch_size, settings.n_sentences
        mixture = Mixture(varied=settings.wide)
        sentences = self._labels(self.made.sentences(n, settings.seed, mixture))
        triplets = None
        if settings.triplet_weight:
            made = self.made.triplets(n, settings.seed)
            columns = [[getattr(one, name) for one in made] for name in _TRIPLET]
            triplets = self._labels([sentence for column in columns for sentence in column])
        for step in range(n_steps):
            epoch, place = divmod(step, per_epoch)
            order = np.random.default_rng([settings.seed, epoch]).permutation(n)
            chosen = order[place * size : (place + 1) * size].tolist()
            drawn = None
            if triplets is not None:
                # Three sentences each, so a third as many make the same work.
                few = chosen[: max(1, size // 3)]
                places = [column * n + one for column in range(len(_TRIPLET)) for one in few]
                drawn = self._to_device(triplets.batch(places))
            yield self._to_device(sentences.batch(chosen)), drawn

    def _losses(self, part: Labelled, triplets: Labelled | None) -> dict[str, Tensor]:
        """Return every loss, weighted."""
        settings = self.settings
        record, _ = self._forward(part, by_label=not self.is_learned)
        cues = record.cue_states[-1]
        losses = {
            "cue": settings.cue_weight
            * cue_loss(
                cues.cue_logits,
                part.cues,
                part.mask,
                positive_weight=settings.cue_positive_weight,
            )
        }
        if cues.gate.logits is not None and settings.gate_weight:
            temperature = self.plugin.config.gate_temperature
            loss = gate_loss(cues.gate.logits, part.operators, temperature=temperature)
            losses["gate"] = settings.gate_weight * loss
        if record.biases and settings.scope_weight:
            logits = [layer.scope.logits for layer in record.biases.values()]
            loss = scope_loss(logits, part.scopes, part.operators, part.mask)
            losses["scope"] = settings.scope_weight * loss
        if triplets is not None:
            losses["triplet"] = settings.triplet_weight * self._triplet_loss(triplets)
        return losses

    def _triplet_loss(self, part: Labelled) -> Tensor:
        _, hidden = self._forward(part, by_label=not self.is_learned)
        anchor, positive, negative = pool(hidden, part.mask, self.pooling).chunk(len(_TRIPLET))
        return triplet_loss(anchor, positive, negative, margin=self.settings.margin)

    def _labels(self, sentences: Sequence[Sentence]) -> Labels:
        return Labels(sentences, self.tokenizer, self.operators)

    def _to_device(self, part: Labelled) -> Labelled:
        return part.to(self.encoder.device)

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
