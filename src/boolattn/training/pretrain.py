"""Auxiliary pretraining of the plug-in's heads: cue predictor, gate, scopes.

``L_cue + L_gate + 0.2 L_triplet`` on generated sentences, and scopes where the settings say so.
Only BoolAttn and, optionally, the encoder's embedding layer are trained.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from boolattn.data.sentences import HELD_OUT_SEED, Mixture, generate, generate_triplets
from boolattn.logic.labels import span_labels
from boolattn.plugin.attach import plugin_of
from boolattn.plugin.recording import Record, recording
from boolattn.training.batches.tokens import Padding, pad
from boolattn.training.loop import LoopSettings, run_loop
from boolattn.training.losses import cue_loss, gate_loss, scope_loss, triplet_loss

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.data.sentences import Sentence
    from boolattn.training.loop import Log
    from boolattn.training.settings import PretrainSettings

_TRIPLET = ("anchor", "positive", "negative")
_EVALUATED_AT_ONCE = 64
_LENGTH = 128


@dataclass(frozen=True)
class SentenceBatch:
    """Sentences as tensors, with their labels: 0 or 1."""

    features: dict[str, Tensor]  # What the encoder takes, each ``(batch, tokens)``
    cues: Tensor  # Shape ``(batch, operators, tokens)``
    scopes: Tensor  # Same shape
    operators: Tensor  # Shape ``(batch, operators)``

    @property
    def mask(self) -> Tensor:
        """1 for tokens, 0 for padding. Shape ``(batch, tokens)``."""
        return self.features["attention_mask"]

    def to(self, device: torch.device) -> SentenceBatch:
        """Move to a device."""
        features = {name: value.to(device) for name, value in self.features.items()}
        moved = (tensor.to(device) for tensor in (self.cues, self.scopes, self.operators))
        return SentenceBatch(features, *moved)


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
                scopes = [
                    span for one in sentence.scopes if one.operator == name for span in one.spans
                ]
                labels.append([span_labels(s, offsets, sentence.text) for s in (cues, scopes)])
            by_token = torch.tensor(np.array(labels, dtype=np.bool_)).permute(2, 1, 0)
            self._rows[row] = (np.array(ids, dtype=np.int32), by_token)


@dataclass(eq=False)
class Pretrainer:
    """Pretrains an encoder's plug-in, in place; ``pooling`` makes the triplets' vectors."""

    encoder: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    settings: PretrainSettings
    pooling: str = "mean"

    def __post_init__(self) -> None:
        self.plugin = plugin_of(self.encoder)
        self.operators = self.plugin.config.operators
        self.is_learned = self.plugin.config.gate == "learned"

    def run(self, log: Log = lambda _step, _losses: None) -> dict[str, float]:
        """Pretrain, then evaluate on held-out sentences in seen and in unseen wordings."""
        settings = self.settings
        torch.manual_seed(settings.seed)
        per_epoch = max(1, settings.n_sentences // settings.batch_size)
        loop = LoopSettings(
            name="pretraining",
            n_steps=settings.max_steps or settings.n_epochs * per_epoch,
            learning_rate=settings.learning_rate,
            warmup_steps=settings.warmup_steps,
            weight_decay=settings.weight_decay,
        )
        batches = self._batches(per_epoch, loop.n_steps)
        self.encoder.train()
        run_loop(self._trainable(), lambda _step: self._losses(*next(batches)), loop, log)
        self.encoder.requires_grad_(True)
        n, seed = settings.n_held_out, settings.seed + HELD_OUT_SEED
        result: dict[str, float] = {}
        for name, unseen in (("held_out", False), ("unseen", True)):
            if n:
                found = self.measure([*generate(n, seed, Mixture(unseen=unseen))])
                result |= {f"{name}_{key}": value for key, value in found.items()}
        return result

    @torch.inference_mode()
    def measure(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Evaluate the heads on sentences.

        Returns the F1 of cue tokens, the F1 of scope tokens over all layers and heads (both with
        oracle labels), and the share of gates that are right in every operator, if predicted.
        """
        self.encoder.eval()
        cue, scope = torch.zeros(2, 3, len(self.operators))
        labels = self._labels(sentences)
        is_right: list[Tensor] = []
        for rows in torch.arange(len(sentences)).split(_EVALUATED_AT_ONCE):
            part = labels.batch(rows.tolist()).to(self.encoder.device)
            record, _ = self._forward(part, by_label=True)
            found = (record.cue_states[-1].cue_logits > 0).float()
            cue += _counts(found, part.cues, part.mask[:, None])
            used = part.mask[:, None] * part.operators[..., None]
            for layer in record.biases.values():
                for head in layer.scope.inside.unbind(-1):
                    scope += _counts(head.transpose(1, 2), part.scopes, used)
            if self.plugin.config.gate != "label":
                gate = self._forward(part, by_label=False)[0].cue_states[-1].gate
                is_right.append((gate.open == part.operators).all(-1).cpu())
        self.encoder.train()
        result = {"cue_f1": _f1(cue.sum(1)), "scope_f1": _f1(scope.sum(1))}
        if is_right:
            result["gate_accuracy"] = torch.cat(is_right).double().mean().item()
        for index, operator in enumerate(self.operators):
            result[f"cue_f1_{operator}"] = _f1(cue[:, index])
        return result

    def _trainable(self) -> list[nn.Parameter]:
        """Freeze the encoder's layers; return what is trained."""
        self.encoder.requires_grad_(False)
        chosen: list[nn.Module] = [self.plugin]
        if self.settings.train_embeddings:
            chosen.append(self.encoder.base_model.get_submodule("embeddings"))
        for module in chosen:
            module.requires_grad_(True)
        return [parameter for module in chosen for parameter in module.parameters()]

    def _batches(
        self, per_epoch: int, n_steps: int
    ) -> Iterator[tuple[SentenceBatch, SentenceBatch | None]]:
        """Yield sentences, and triplets where their loss counts, shuffled each epoch."""
        settings, device = self.settings, self.encoder.device
        size, n = settings.batch_size, settings.n_sentences
        mixture = Mixture(varied=settings.varied_share)
        sentences = self._labels([*generate(n, settings.seed, mixture)])
        triplets = None
        if settings.triplet_weight:
            made = [*generate_triplets(n, settings.seed)]
            triplets = self._labels([getattr(one, name) for name in _TRIPLET for one in made])
        for step in range(n_steps):
            epoch, place = divmod(step, per_epoch)
            order = np.random.default_rng([settings.seed, epoch]).permutation(n)
            chosen = order[place * size : (place + 1) * size].tolist()
            drawn = None
            if triplets is not None:
                # Three sentences each: a third as many take the same time.
                few = chosen[: max(1, size // 3)]
                rows = [column * n + one for column in range(len(_TRIPLET)) for one in few]
                drawn = triplets.batch(rows).to(device)
            yield sentences.batch(chosen).to(device), drawn

    def _losses(self, part: SentenceBatch, triplets: SentenceBatch | None) -> dict[str, Tensor]:
        settings = self.settings
        record, _ = self._forward(part, by_label=not self.is_learned)
        cues, gate = record.cue_states[-1].cue_logits, record.cue_states[-1].gate
        weight = settings.cue_positive_weight
        loss = cue_loss(cues, part.cues, part.mask, positive_weight=weight)
        losses = {"cue": settings.cue_weight * loss}
        if gate.logits is not None and settings.gate_weight:
            temperature = self.plugin.config.gate_temperature
            loss = gate_loss(gate.logits, part.operators, temperature=temperature)
            losses["gate"] = settings.gate_weight * loss
        if record.biases and settings.scope_weight:
            logits = [layer.scope.logits for layer in record.biases.values()]
            loss = scope_loss(logits, part.scopes, part.operators, part.mask)
            losses["scope"] = settings.scope_weight * loss
        if triplets is not None:
            _, hidden = self._forward(triplets, by_label=not self.is_learned)
            vectors = pool(hidden, triplets.mask, self.pooling).chunk(len(_TRIPLET))
            loss = triplet_loss(*vectors, margin=settings.margin)
            losses["triplet"] = settings.triplet_weight * loss
        return losses

    def _labels(self, sentences: Sequence[Sentence]) -> LabelledSentences:
        return LabelledSentences(sentences, self.tokenizer, self.operators)

    def _forward(self, part: SentenceBatch, *, by_label: bool) -> tuple[Record, Tensor]:
        given = {"operators": part.operators} if by_label else {}
        with recording() as record:
            output = self.encoder(**part.features, **given)
        return record, output.last_hidden_state


def pool(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return one vector of each text. ``(batch, tokens, dim)`` -> ``(batch, dim)``."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask[..., None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


def _counts(found: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    """Count correct, predicted and labelled tokens of each operator. Shape ``(3, operators)``."""
    parts = (found * wanted * mask, found * mask, wanted * mask)
    return torch.stack([part.sum((0, 2)).float().cpu() for part in parts])


def _f1(counts: Tensor) -> float:
    """Return the harmonic mean of precision and recall; 0 where nothing is labelled."""
    right, found, wanted = counts.tolist()
    return 2 * right / (found + wanted) if found + wanted else 0.0
