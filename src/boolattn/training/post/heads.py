"""Post-training of the query parser and the learned gate on frozen encoder states.

Retrieval training leaves the last layer poor in single words, so the parser uses a mixture of all
layers. It moves the gate by what a query's vector gains from an open expert, not by the query's
operators: a gate that was right for 998 of 1,000 texts ended right for three of four. States are
computed once. No vector changes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.attention.gate import LearnedGate
from boolattn.encoder import BoolBertModel, query_encoder
from boolattn.encoder.parser_head import ParserHead, ParserLabels, parser_loss
from boolattn.encoder.parser_pass import encode_layers
from boolattn.errors import ConfigError
from boolattn.plugin import plugin_of
from boolattn.training.batches.parser_batches import ParserTexts, operator_labels
from boolattn.training.batches.sampling import label_columns
from boolattn.training.batches.tokens import pad
from boolattn.training.loop import LoopSettings, run_loop
from boolattn.training.losses import gate_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.parsed_query import LabelledQuery
    from boolattn.training.loop import Log
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

#: Purposes of the random generators.
_PARSER, _GATE = 7, 8
_TEXTS_AT_ONCE = 256
_LOG_EVERY = 200
#: Batches over which the gate's accuracy is reported.
_LAST = 100


class FrozenStates:
    """The query tower's states of all texts in some layers, in half precision: there are many."""

    def __init__(self, retriever: Retriever, texts: ParserTexts, layers: slice) -> None:
        self.device = retriever.towers.device
        self._states: dict[int, Tensor] = {}
        towers = retriever.towers.eval()
        for chosen, features in texts.tokens.by_length(range(len(texts.texts)), _TEXTS_AT_ONCE):
            lengths = features["attention_mask"].sum(-1).tolist()
            moved = {name: value.to(self.device) for name, value in features.items()}
            with torch.no_grad():
                states = torch.stack(encode_layers(towers, moved)[layers], 2).half()
            for place, (row, length) in enumerate(zip(chosen.tolist(), lengths, strict=True)):
                # A copy, so that the batch can be freed.
                self._states[row] = states[place, :length].clone()

    def batch(self, rows: Sequence[int]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return each layer's states, ``(texts, tokens, hidden)``, and the mask."""
        states, mask = pad([self._states[row] for row in rows])
        return states.float().unbind(2), mask.float()


def train_parser(
    retriever: Retriever,
    sources: Sequence[Sequence[LabelledQuery]],
    preset: Preset,
    log: Log = lambda _step, _losses: None,
) -> None:
    """Replace a retriever's parser by a new one, trained on all layers; change nothing else.

    A step draws as many texts from each source.
    """
    if retriever.parser is None:
        raise ConfigError("this model has no parser to train")
    settings, seed, config = preset.compose, preset.train.seed, retriever.parser.config
    texts = ParserTexts(
        retriever.towers.tokenizer,
        sources,
        length=preset.model.query_length,
        n_slots=config.n_slots,
    )
    logger.info("training the parser on %d texts", len(texts.texts))
    states = FrozenStates(retriever, texts, slice(-settings.n_states, None))
    torch.manual_seed(seed)
    config = replace(config, n_states=len(states.batch([0])[0]), depth=settings.depth)
    parser = retriever.parser = ParserHead(config).to(states.device)

    def losses_of(step: int) -> dict[str, Tensor]:
        rows = texts.draw(np.random.default_rng([seed, _PARSER, step]), settings.post_batch_size)
        layers, mask = states.batch(rows)
        labels, _ = texts.labels(rows, mask.shape[1])
        labels = ParserLabels(*(part.to(states.device) for part in labels))
        return {"parser_loss": parser_loss(parser(layers, mask), labels, mask)}

    loop = LoopSettings(
        name="parser",
        n_steps=settings.parser_steps,
        learning_rate=settings.parser_learning_rate,
        warmup_steps=settings.parser_warmup_steps,
        starts_at_zero=False,
        log_every=_LOG_EVERY,
    )
    parser.train()
    run_loop(parser.parameters(), losses_of, loop, log)
    parser.eval()


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
    """Train a model's learned gate, and nothing else, on texts as the parser is.

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
        rows = texts.draw(np.random.default_rng([seed, _GATE, step]), settings.post_batch_size)
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
