"""Post-training of the learned gate on texts whose operators are known.

Retrieval training moves the gate by what a query's vector gains from an open expert, not by the
query's operators: a gate that was right for 998 of 1,000 texts ended right for three of four.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.attention.gate import LearnedGate
from boolattn.encoder import BoolBertModel, query_encoder
from boolattn.errors import ConfigError
from boolattn.plugin import plugin_of
from boolattn.training.batches.collator import label_columns
from boolattn.training.batches.parser_batches import ParserTexts, operator_labels
from boolattn.training.loop import LoopSettings, run_loop
from boolattn.training.losses import gate_loss
from boolattn.training.post.parser import FrozenStates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.parsed_query import LabelledQuery
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

#: Purpose of the random generator.
_DRAW = 8
#: Batches over which the accuracy is reported.
_LAST = 100


def gate_of(retriever: Retriever) -> LearnedGate | None:
    """Return a model's learned gate, if it has one."""
    encoder = query_encoder(retriever.towers)
    if not isinstance(encoder, BoolBertModel):
        return None
    gate = plugin_of(encoder.backbone).gate
    return gate if isinstance(gate, LearnedGate) else None


def train_gate(
    retriever: Retriever, sources: Sequence[Sequence[LabelledQuery]], preset: Preset
) -> float:
    """Train a model's learned gate, and nothing else.

    Args:
        retriever: The model.
        sources: Labelled texts; a step draws as many from each source.
        preset: The settings.

    Returns:
        The share of the last hundred batches' texts with all operators right, under dropout.
    """
    gate = gate_of(retriever)
    if gate is None:
        raise ConfigError("compose.gate_steps trains a learned gate, and this model has none")
    settings, seed = preset.compose, preset.train.seed
    texts = ParserTexts(retriever.towers.tokenizer, sources, length=preset.model.query_length)
    logger.info("training the gate on %d texts", len(texts.texts))
    # The gate's input is the embedding output.
    states = FrozenStates(retriever, texts, slice(0, 1))
    columns = label_columns(gate.config.operators)
    labels = torch.tensor([operator_labels(one) for one in texts.parsed])[:, columns].float()
    accuracy: list[float] = []

    def losses_of(step: int) -> dict[str, Tensor]:
        rows = texts.draw(np.random.default_rng([seed, _DRAW, step]), settings.post_batch_size)
        wanted = labels[rows].to(states.device)
        (hidden,), mask = states.batch(rows)
        found = gate(hidden, mask)
        if found.logits is None:
            raise TypeError(gate)
        accuracy.append(float((found.open.detach() == wanted).all(-1).float().mean()))
        temperature = gate.config.gate_temperature
        return {"gate": gate_loss(found.logits, wanted, temperature=temperature)}

    loop = LoopSettings(
        name="gate",
        n_steps=settings.gate_steps,
        learning_rate=settings.gate_learning_rate,
        warmup_steps=settings.gate_warmup_steps,
        starts_at_zero=False,
    )
    torch.manual_seed(seed)
    gate.train()
    run_loop(gate.parameters(), losses_of, loop)
    gate.eval()
    return float(np.mean(accuracy[-_LAST:]))
