"""Post-training of the query parser on frozen encoder states, which are computed once.

Retrieval training leaves the last layer poor in single words, so the parser uses a mixture of all
layers. No vector changes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.encoder.parser_head import ParserHead, ParserLabels, parser_loss
from boolattn.encoder.parser_pass import encode_layers
from boolattn.errors import ConfigError
from boolattn.training.batches.parser_batches import ParserTexts
from boolattn.training.batches.tokens import pad
from boolattn.training.loop import LoopSettings, run_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.parsed_query import LabelledQuery
    from boolattn.training.loop import Log
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

#: Purpose of the random generator.
_DRAW = 7
_TEXTS_AT_ONCE = 256
_LOG_EVERY = 200


class FrozenStates:
    """The query tower's states of all texts, in half precision: there are many.

    Args:
        retriever: With the towers.
        texts: The texts.
        layers: Which of the layers are kept.
    """

    def __init__(self, retriever: Retriever, texts: ParserTexts, layers: slice) -> None:
        self.device = retriever.towers.device
        rows = range(len(texts.texts))
        self._states: dict[int, Tensor] = {}
        towers = retriever.towers.eval()
        for chosen, features in texts.tokens.by_length(rows, _TEXTS_AT_ONCE):
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
    """Replace a retriever's parser by a new one, trained on all layers.

    Args:
        retriever: With a parser; nothing else is changed.
        sources: Labelled texts; a step draws as many from each source.
        preset: The settings.
        log: Called with the mean loss.
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
    n_states = len(states.batch([0])[0])
    config = replace(config, n_states=n_states, depth=settings.depth)
    parser = retriever.parser = ParserHead(config).to(states.device)

    def losses_of(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng([seed, _DRAW, step])
        rows = texts.draw(rng, settings.post_batch_size)
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
