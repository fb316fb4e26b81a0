"""Reading learned to the end, after the towers are trained: their states stay as they are.

The towers' last states of many texts are computed once, and the small head learns on them for as
long as it takes; no vector changes by a bit. May import: boolattn.composition, boolattn.training.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.composition.reader import Labels, reading_loss
from boolattn.errors import ConfigError
from boolattn.training.passes import encode_states
from boolattn.training.reading_batches import ReadingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from boolattn.composition.reader import Reader
    from boolattn.composition.retriever import Retriever
    from boolattn.data.readings import Marked
    from boolattn.training.settings import ComposeSettings

logger = logging.getLogger(__name__)

_DRAW = 7
_AT_ONCE = 256
_LOG_EVERY = 200


class States:
    """The towers' last states of a store's texts, each computed once.

    Args:
        retriever: Whose towers read them.
        store: The texts.
    """

    def __init__(self, retriever: Retriever, store: ReadingStore) -> None:
        self.store = store
        self.device = retriever.towers.device
        n_texts = len(store.readings)
        rows = list(range(n_texts))
        store.tokens.fill(rows)
        order = np.argsort(store.tokens.lengths(rows), kind="stable").tolist()
        self._found: list[Tensor | None] = [None] * n_texts
        for start in range(0, n_texts, _AT_ONCE):
            chosen = order[start : start + _AT_ONCE]
            features = store.tokens.features(chosen)
            states = encode_states(retriever.towers, features).half().cpu()
            lengths = features["attention_mask"].sum(-1).tolist()
            for place, (row, length) in enumerate(zip(chosen, lengths, strict=True)):
                self._found[row] = states[place, :length].clone()

    def batch(self, rows: Sequence[int]) -> tuple[Tensor, Tensor, Labels]:
        """Return states and mask of some texts, padded, and their labels."""
        found = [state for row in rows if (state := self._found[row]) is not None]
        states = torch.nn.utils.rnn.pad_sequence(found, batch_first=True).float()
        lengths = torch.tensor([len(state) for state in found])
        mask = (torch.arange(states.shape[1]) < lengths[:, None]).float()
        labels, _ = self.store.labels(rows, states.shape[1])
        moved = Labels(*(part.to(self.device) for part in labels))
        return states.to(self.device), mask.to(self.device), moved


def polish_reader(
    retriever: Retriever,
    sources: Sequence[Sequence[Marked]],
    settings: ComposeSettings,
    *,
    length: int,
    seed: int,
    log: Callable[[int, dict[str, float]], None] = lambda _step, _values: None,
) -> None:
    """Train a retriever's reader, and nothing else, in place.

    Args:
        retriever: With a reader.
        sources: Marked texts; a step draws as many from each source.
        settings: Steps, batch and learning rate.
        length: Longest text in tokens.
        seed: Of the draws.
        log: Called with the mean loss now and then.
    """
    reader = retriever.reader
    if reader is None:
        raise ConfigError("this model has no reader to polish")
    marked = [item for source in sources for item in source]
    starts = np.cumsum([0, *(len(source) for source in sources)]).tolist()
    store = ReadingStore(
        retriever.towers.tokenizer,
        [item.text for item in marked],
        [item.reading for item in marked],
        length,
        reader.config.n_slots,
        [range(a, b) for a, b in pairwise(starts)],
    )
    logger.info("reading %d texts", len(marked))
    states = States(retriever, store)
    _fit(reader, states, settings, seed, log)


def _fit(
    reader: Reader,
    states: States,
    settings: ComposeSettings,
    seed: int,
    log: Callable[[int, dict[str, float]], None],
) -> None:
    n_steps = settings.polish_steps
    optimizer = torch.optim.AdamW(
        reader.parameters(), lr=settings.polish_learning_rate, weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 50, (n_steps - step) / max(1, n_steps - 50))
    )
    reader.train()
    losses = []
    for step in range(n_steps):
        rng = np.random.default_rng([seed, _DRAW, step])
        hidden, mask, labels = states.batch(states.store.draw(rng, settings.read_batch))
        loss = reading_loss(reader(hidden, mask), labels, mask)
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
