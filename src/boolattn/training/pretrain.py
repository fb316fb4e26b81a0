"""Auxiliary pretraining of the plug-in's heads: cue predictor, gate, scopes.

``L_cue + L_gate + 0.2 L_triplet`` on generated sentences, and scopes where the settings say so.
Only BoolAttn and, optionally, the encoder's embedding layer are trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from accelerate.utils import send_to_device
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import OPERATORS
from boolattn.attention.gate import LearnedGate, learned_gate
from boolattn.plugin.backend import Record, recording
from boolattn.plugin.install import plugin_of
from boolattn.training.batches.tokens import LabelledSentences, PretrainingSet, SentenceBatch
from boolattn.training.loop import Loop, fast_products, parameter_groups
from boolattn.training.losses import cue_loss, gate_loss, scope_loss

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.data.sentences import Sentence
    from boolattn.training.loop import Log
    from boolattn.training.settings import PretrainSettings


@dataclass(eq=False)
class Pretrainer:
    """Pretrains an encoder's plug-in, in place; ``pooling`` makes the triplets' vectors."""

    encoder: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    settings: PretrainSettings
    pooling: str = "mean"
    data: PretrainingSet | None = None  # By default generated

    def __post_init__(self) -> None:
        self.plugin = plugin_of(self.encoder)
        self.is_learned = self.plugin.config.gate == "learned"
        size = self.encoder.config.hidden_size
        self.pool = Pooling(size, cast("Any", self.pooling))
        # The paper trains a gate here even if labels open the experts; it moves the embeddings.
        self.aux_gate: LearnedGate | None = None
        if self.settings.gate_weight and self.settings.train_embeddings and not self.is_learned:
            self.aux_gate = learned_gate(self.plugin.config, size).to(self.encoder.device)

    @fast_products()
    def run(self, log: Log = lambda _step, _losses: None) -> dict[str, float]:
        """Pretrain, then evaluate on held-out sentences."""
        settings = self.settings
        torch.manual_seed(settings.seed)
        data = self.data or PretrainingSet.generated(settings)
        per_epoch = max(1, len(data.sentences) // settings.batch_size)
        n_steps = settings.n_steps(per_epoch)
        batches = self._batches(data, per_epoch, n_steps)
        self.encoder.train()
        # The encoder's layers are frozen.
        self.encoder.requires_grad_(False)
        chosen = nn.ModuleList([self.plugin])
        if settings.train_embeddings:
            chosen.append(self.encoder.base_model.get_submodule("embeddings"))
        if self.aux_gate is not None:
            chosen.append(self.aux_gate)
        chosen.requires_grad_(True)
        if not settings.triplet_weight:
            # No loss is of vectors: retrieval training shall begin at the encoder's.
            for name, parameter in self.plugin.named_parameters():
                parameter.requires_grad_(not name.endswith("factor"))
        loop = Loop(parameter_groups(chosen, settings), settings, "pretraining", n_steps)
        loop.run(lambda _step: self._losses(*next(batches)), log)
        self.encoder.requires_grad_(True)
        measured = {name: self.measure(held_out) for name, held_out in data.held_out.items()}
        return {f"{n}_{key}": value for n, row in measured.items() for key, value in row.items()}

    @torch.inference_mode()
    def measure(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Evaluate the heads on sentences.

        Returns the F1 of cue tokens, the F1 of scope tokens over all layers and heads (both with
        oracle labels), and the share of gates that are right in every operator, if predicted.
        """
        self.encoder.eval()
        cue, scope = torch.zeros(2, 3, len(OPERATORS))
        labels = LabelledSentences(sentences, self.tokenizer)
        is_right: list[Tensor] = []
        for rows in torch.arange(len(sentences)).split(64):
            part = send_to_device(labels.batch(rows.tolist()), self.encoder.device)
            record = self._forward(part, by_label=True)[0]
            is_cue = (record.cue_states[-1].cue_logits > 0).float()
            cue += token_counts(is_cue, part.cues, part.mask[:, None])
            used = part.mask[:, None] * part.operators[..., None]
            for layer in record.biases.values():
                for head in layer.inside.unbind(-1):
                    scope += token_counts(head.transpose(1, 2), part.scopes, used)
            if self.plugin.config.gate != "label":
                gate = self._forward(part, by_label=False)[0].cue_states[-1].gate
                is_right.append((gate.open == part.operators).all(-1).cpu())
        self.encoder.train()
        result = {"cue_f1": f1(cue.sum(1)), "scope_f1": f1(scope.sum(1))}
        if is_right:
            result["gate_accuracy"] = torch.cat(is_right).double().mean().item()
        return result | {f"cue_f1_{name}": f1(cue[:, at]) for at, name in enumerate(OPERATORS)}

    def _batches(
        self, data: PretrainingSet, per_epoch: int, n_steps: int
    ) -> Iterator[tuple[SentenceBatch, SentenceBatch | None]]:
        """Yield sentences, and triplets where their loss counts, shuffled each epoch."""
        settings = self.settings
        size, n, n_triplets = settings.batch_size, len(data.sentences), len(data.triplets)
        sentences = LabelledSentences(data.sentences, self.tokenizer)
        texts = [text for t in data.triplets for text in (t.anchor, t.positive, t.negative)]
        triplets = LabelledSentences(texts, self.tokenizer)
        for step in range(n_steps):
            epoch, position = divmod(step, per_epoch)
            order = np.random.default_rng([settings.seed, epoch]).permutation(n)
            chosen = order[position * size : (position + 1) * size].tolist()
            drawn = None
            if n_triplets:
                # Three sentences each: a third as many take the same time.
                first = [row % n_triplets for row in chosen[: max(1, size // 3)]]
                drawn = triplets.batch([3 * row + column for column in range(3) for row in first])
            yield send_to_device((sentences.batch(chosen), drawn), self.encoder.device)

    def _losses(self, part: SentenceBatch, triplets: SentenceBatch | None) -> dict[str, Tensor]:
        settings = self.settings
        record, first, _ = self._forward(part, by_label=not self.is_learned)
        cues, gate = record.cue_states[-1].cue_logits, record.cue_states[-1].gate
        if self.aux_gate is not None:
            gate = self.aux_gate(first, part.mask)
        loss = cue_loss(cues, part.cues, part.mask, positive_weight=settings.cue_positive_weight)
        losses = {"cue": settings.cue_weight * loss}
        if gate.logits is not None and settings.gate_weight:
            temperature = self.plugin.config.gate_temperature
            loss = gate_loss(gate.logits, part.operators, temperature=temperature)
            losses["gate"] = settings.gate_weight * loss
        if record.biases and settings.scope_weight:
            logits = [layer.logits for layer in record.biases.values()]
            loss = scope_loss(logits, part.scopes, part.operators, part.mask)
            losses["scope"] = settings.scope_weight * loss
        if triplets is not None:
            *_, last = self._forward(triplets, by_label=not self.is_learned)
            states = {"token_embeddings": last, "attention_mask": triplets.mask}
            anchor, same, other = self.pool(states)["sentence_embedding"].float().chunk(3)
            loss = F.triplet_margin_loss(anchor, same, other, margin=settings.margin)
            losses["triplet"] = settings.triplet_weight * loss
        return losses

    def _forward(self, part: SentenceBatch, *, by_label: bool) -> tuple[Record, Tensor, Tensor]:
        """Encode; return also the hidden states that enter the first and leave the last layer."""
        labels = {"operators": part.operators} if by_label else {}
        with recording() as record:
            output = self.encoder(**part.features, **labels, output_hidden_states=True)
        return record, output.hidden_states[0], output.last_hidden_state


def token_counts(predicted: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    """Count correct, predicted and labelled tokens of each operator. Shape ``(3, operators)``."""
    counts = (predicted * wanted * mask, predicted * mask, wanted * mask)
    return torch.stack([part.sum((0, 2)).float().cpu() for part in counts])


def f1(counts: Tensor) -> float:
    """Return the harmonic mean of precision and recall; 0 where nothing is labelled."""
    right, predicted, wanted = counts.tolist()
    return 2 * right / (predicted + wanted) if predicted + wanted else 0.0
