"""Reading learned to the end, after the towers are trained: their states stay as they are.

Retrieval shapes the towers' last layer, and leaves it poor in what a single word is. So the reader
is taught on a mixture of all layers, which are computed once for every text; no vector changes by
a bit. May import: boolattn.composition, boolattn.training.
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
from boolattn.training.parser_batches import ReadingStore
from boolattn.training.schedule import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.parsed_query import LabelledQuery
    from boolattn.training.settings import ComposeSettings

logger = logging.getLogger(__name__)

_DRAW = 7
_AT_ONCE = 256
_LOG_EVERY = 200
_WARMUP = 50


class States:
    """The query tower's states of a store's texts, each computed once.

    Args:
        retriever: Whose towers read them.
        store: The texts.
        n_states: How many layers are kept, from the last one down.
        first: Keep what enters the first layer instead.
    """

    def __init__(
        self, retriever: Retriever, store: ReadingStore, n_states: int = 1, *, first: bool = False
    ) -> None:
        self.store = store
        self._kept = slice(0, 1) if first else slice(-n_states, None)
        self.device = retriever.towers.device
        rows = list(range(len(store.readings)))
        store.tokens.fill(rows)
        order = np.argsort(store.tokens.lengths(rows), kind="stable").tolist()
        found: dict[int, Tensor] = {}
        for start in range(0, len(order), _AT_ONCE):
            chosen = order[start : start + _AT_ONCE]
            features = store.tokens.features(chosen)
            lengths = features["attention_mask"].sum(-1).tolist()
            states = self._encode(retriever, features)
            for place, (row, length) in enumerate(zip(chosen, lengths, strict=True)):
                # A copy, or every text would keep its whole batch alive.
                found[row] = states[place, :length].clone()
        self._found = found

    @torch.no_grad()
    def _encode(self, retriever: Retriever, features: dict[str, Tensor]) -> Tensor:
        """Return ``(texts, tokens, layers, hidden)`` in half precision: there are many."""
        moved = {name: value.to(self.device) for name, value in features.items()}
        layers = encode_layers(retriever.towers.eval(), moved)[self._kept]
        return torch.stack(layers, 2).half()

    def padded(self, rows: Sequence[int]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return each layer's states and the mask of some texts, padded."""
        found = [self._found[row] for row in rows]
        states = torch.nn.utils.rnn.pad_sequence(found, batch_first=True).float()
        lengths = torch.tensor([len(state) for state in found])
        mask = (torch.arange(states.shape[1]) < lengths[:, None]).float()
        return states.unbind(2), mask.to(self.device)

    def batch(self, rows: Sequence[int]) -> tuple[tuple[Tensor, ...], Tensor, ParserLabels]:
        """Do the same, with their labels."""
        layers, mask = self.padded(rows)
        labels, _ = self.store.labels(rows, mask.shape[1])
        return layers, mask, ParserLabels(*(part.to(self.device) for part in labels))


def polish_reader(
    retriever: Retriever,
    sources: Sequence[Sequence[LabelledQuery]],
    settings: ComposeSettings,
    *,
    length: int,
    seed: int,
    log: Callable[[int, dict[str, float]], None] = lambda _step, _values: None,
) -> None:
    """Give a retriever a reader taught on all its layers, and change nothing else.

    Args:
        retriever: With a reader, which is replaced, or taught on.
        sources: Marked texts; a step draws as many from each source.
        settings: Steps, batch and learning rate, layers and depth.
        length: Longest text in tokens.
        seed: Of the first weights and of the draws.
        log: Called with the mean loss now and then.
    """
    if retriever.parser is None:
        raise ConfigError("this model has no reader to polish")
    store = ReadingStore.of(
        retriever.towers.tokenizer, sources, length, retriever.parser.config.n_slots
    )
    logger.info("reading %d texts", len(store.texts))
    own = retriever.parser.config
    states = States(retriever, store, settings.n_states if settings.polish_anew else own.n_states)
    torch.manual_seed(seed)
    if settings.polish_anew:
        n_states = len(states.padded([0])[0])
        config = replace(own, n_states=n_states, depth=settings.depth)
        retriever.parser = ParserHead(config).to(states.device)
    _fit(retriever.parser, states, settings, seed, log)


def _fit(
    reader: ParserHead,
    states: States,
    settings: ComposeSettings,
    seed: int,
    log: Callable[[int, dict[str, float]], None],
) -> None:
    n_steps = settings.polish_steps
    optimizer = torch.optim.AdamW(
        reader.parameters(), lr=settings.polish_learning_rate, weight_decay=0.01
    )
    schedule = warm_up(optimizer, n_steps, _WARMUP)
    reader.train()
    losses = []
    for step in range(n_steps):
        rng = np.random.default_rng([seed, _DRAW, step])
        layers, mask, labels = states.batch(states.store.draw(rng, settings.read_batch))
        loss = parser_loss(reader(layers, mask), labels, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if len(losses) == _LOG_EVERY or step + 1 == n_steps:
            log(step + 1, {"reading_loss": float(np.mean(losses))})
            losses = []
    reader.eval()
