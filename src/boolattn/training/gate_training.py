"""The learned gate taught again, after the towers are trained.

Retrieval moves the gate by what a query's vector gains from an open expert, not by what the query
says: of a gate that was right in 998 of 1,000 texts it left one right in three of four. So the gate
alone is taught again what it knew, on texts whose operators are known; all else stays as it is.
May import: boolattn.attention, boolattn.composition, boolattn.data, boolattn.encoder,
boolattn.plugin, boolattn.training, boolattn.errors.
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
from boolattn.training.batches import label_columns
from boolattn.training.losses import gate_loss
from boolattn.training.parser_batches import ReadingStore, reading_operators
from boolattn.training.parser_training import States
from boolattn.training.schedule import warm_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.parsed_query import LabelledQuery

logger = logging.getLogger(__name__)

_DRAW = 8
_WARMUP = 20
_LEARNING_RATE = 5e-3


def gate_of(retriever: Retriever) -> LearnedGate | None:
    """Return a model's learned gate, if it has one."""
    encoder = query_encoder(retriever.towers)
    if not isinstance(encoder, BoolBertModel):
        return None
    gate = plugin_of(encoder.backbone).gate
    return gate if isinstance(gate, LearnedGate) else None


def teach_gate(
    retriever: Retriever,
    sources: Sequence[Sequence[LabelledQuery]],
    *,
    n_steps: int,
    batch_size: int,
    length: int,
    seed: int,
) -> float:
    """Teach a model's learned gate the operators of marked texts.

    Args:
        retriever: Its gate's weights are changed, and nothing else.
        sources: Marked texts; a step draws as many from each source.
        n_steps: How many steps.
        batch_size: Texts of a step.
        length: Longest text in tokens.
        seed: Of the draws.

    Returns:
        The share of the last hundred batches' texts whose operators were all right while it
        learned: with the words and features dropped that it drops then.
    """
    gate = gate_of(retriever)
    if gate is None:
        raise ConfigError("compose.gate_steps teaches a learned gate, and this model has none")
    store = ReadingStore.of(retriever.towers.tokenizer, sources, length)
    logger.info("teaching the gate on %d texts", len(store.texts))
    # The gate reads what enters the first layer.
    states = States(retriever, store, first=True)
    columns = label_columns(gate.config.operators)
    used = [reading_operators(item.parsed) for source in sources for item in source]
    labels = torch.tensor(used)[:, columns].float()
    optimizer = torch.optim.AdamW(gate.parameters(), lr=_LEARNING_RATE, weight_decay=0.01)
    schedule = warm_up(optimizer, n_steps, _WARMUP)
    torch.manual_seed(seed)
    gate.train()
    right: list[float] = []
    for step in range(n_steps):
        rows = store.draw(np.random.default_rng([seed, _DRAW, step]), batch_size)
        right.append(_step(gate, states, rows, labels[rows].to(states.device)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    gate.eval()
    return float(np.mean(right[-100:]))


def _step(gate: LearnedGate, states: States, rows: Sequence[int], wanted: Tensor) -> float:
    """Add up a batch's gradients; return the share of its texts that were right."""
    (hidden,), mask = states.padded(rows)
    found = gate(hidden, mask)
    if found.logits is None:
        raise TypeError(gate)
    gate_loss(found.logits, wanted, temperature=gate.config.gate_temperature).backward()
    torch.nn.utils.clip_grad_norm_(gate.parameters(), 1.0)
    return float((found.open.detach() == wanted).all(-1).float().mean())
