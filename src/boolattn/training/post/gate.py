"""Post-training of the learned gate on frozen encoder states.

Retrieval training moves the gate by what a query's vector gains from an open expert, not by the
query's operators: a gate that was right for 998 of 1,000 texts ended right for three of four. The
states are computed once. No document's vector changes.
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
from boolattn.query.tree import OPERATORS, operators_of
from boolattn.training.batches.sampling import label_columns
from boolattn.training.batches.tokens import Tokens, pad
from boolattn.training.loop import LoopSettings, run_loop
from boolattn.training.losses import gate_loss

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch import Tensor

    from boolattn.encoder.torch_encoder import TorchEncoder
    from boolattn.query.parsed_query import LabelledQuery
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

#: Purpose of the random generator.
_GATE = 8
_TEXTS_AT_ONCE = 256
#: Batches over which the gate's accuracy is reported.
_LAST = 100


def gate_of(model: TorchEncoder) -> LearnedGate | None:
    """Return a model's learned gate, if it has one."""
    encoder = query_encoder(model.towers)
    if not isinstance(encoder, BoolBertModel):
        return None
    gate = plugin_of(encoder.backbone).gate
    return gate if isinstance(gate, LearnedGate) else None


def operator_labels(query: LabelledQuery) -> tuple[int, ...]:
    """Return a 0 or 1 for AND, OR and NOT."""
    used = operators_of(query.parsed.tree(query.text))
    return tuple(int(operator in used) for operator in OPERATORS)


def train_gate(model: TorchEncoder, queries: Sequence[LabelledQuery], preset: Preset) -> float:
    """Train a model's learned gate, and nothing else, on labelled queries.

    Returns:
        The share of the last hundred batches' texts with all operators right, under dropout.
    """
    gate = gate_of(model)
    if gate is None:
        raise ConfigError("post.gate_steps trains a learned gate, and this model has none")
    if not queries:
        raise ConfigError("post.gate_steps needs labelled queries; name a file: --parser-queries")
    settings, seed, device = preset.post, preset.train.seed, model.towers.device
    logger.info("training the gate on %d texts", len(queries))
    texts = [query.text for query in queries]
    states = _embeddings(model, Tokens(model.towers.tokenizer, texts, _length(preset)))
    columns = label_columns(gate.config.operators)
    labels = torch.tensor([operator_labels(one) for one in queries])[:, columns].float()
    accuracy: list[float] = []

    def losses_of(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng([seed, _GATE, step])
        rows = rng.integers(len(queries), size=settings.batch_size).tolist()
        wanted = labels[rows].to(device)
        hidden, mask = pad([states[row] for row in rows])
        found = gate(hidden.float(), mask.float())
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


def _length(preset: Preset) -> int:
    return preset.model.query_length


def _embeddings(model: TorchEncoder, tokens: Tokens) -> dict[int, Tensor]:
    """Return the embedding output of each text, which the gate reads, in half precision."""
    encoder: Any = query_encoder(model.towers)
    found: dict[int, Tensor] = {}
    for chosen, features in tokens.by_length(range(len(tokens)), _TEXTS_AT_ONCE):
        lengths = features["attention_mask"].sum(-1).tolist()
        ids = features["input_ids"].to(model.towers.device)
        with torch.no_grad():
            states = encoder.backbone.embeddings(ids).half()
        for place, (row, length) in enumerate(zip(chosen.tolist(), lengths, strict=True)):
            # A copy, so that the batch can be freed.
            found[row] = states[place, :length].clone()
    return found
