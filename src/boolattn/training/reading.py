"""Learning to read, before there is anything to retrieve: many short texts a step.

What a word belongs to takes more texts to learn than documents can be encoded for, and a step on
texts alone is cheap. May import: boolattn.training, boolattn.composition, boolattn.errors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from boolattn.encoder.parser_head import ParserLabels, parser_loss
from boolattn.errors import ConfigError
from boolattn.parsing.decoding import ParserLogits
from boolattn.training.parser_batches import reading_operators
from boolattn.training.schedule import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from boolattn.training.composing import Composing
    from boolattn.training.parser_batches import ComposingCollator
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

_DRAW = 6
_LOG_EVERY = 100


def teach_reading(
    composing: Composing,
    collator: ComposingCollator,
    preset: Preset,
    log: Callable[[int, dict[str, float]], None] = lambda _step, _values: None,
) -> None:
    """Train towers and reader on the loss of the reading alone.

    Args:
        composing: The model, changed in place and left on its device.
        collator: Its store holds the texts that are only read.
        preset: Every number.
        log: Called with the mean loss every hundred steps.
    """
    settings, store = preset.compose, collator.store
    if not store.sources:
        raise ConfigError("there is no text to learn reading from; raise compose.n_generated")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    composing.to(device).train()
    optimizer, schedule = _optimizer(composing, preset)
    losses = []
    for step in range(settings.read_steps):
        rng = np.random.default_rng([preset.train.seed, _DRAW, step])
        rows = store.draw(rng, settings.read_batch)
        features = store.tokens.features(rows)
        labels, _ = store.labels(rows, features["input_ids"].shape[1])
        if collator.columns is not None:
            told = [reading_operators(store.readings[row]) for row in rows]
            features["operators"] = torch.tensor(told)[:, collator.columns]
        features = {name: value.to(device) for name, value in features.items()}
        use_bf16 = device.type == "cuda" and preset.train.use_bf16
        with torch.autocast(device.type, torch.bfloat16, enabled=use_bf16):
            read = composing.read(features)
        loss = parser_loss(
            ParserLogits(*(part.float() for part in read)),
            ParserLabels(*(part.to(device) for part in labels)),
            features["attention_mask"],
        )
        loss.backward()
        nn.utils.clip_grad_norm_(composing.parameters(), preset.train.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if len(losses) == _LOG_EVERY or step + 1 == settings.read_steps:
            mean, losses = float(torch.stack(losses).mean()), []
            if not np.isfinite(mean):
                raise ConfigError(
                    f"the loss of the reading is {mean} before step {step + 1}; "
                    "lower compose.read_learning_rate"
                )
            log(step + 1, {"reading_loss": mean})


def _optimizer(
    composing: Composing, preset: Preset
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    settings = preset.compose
    old = list(composing.towers.parameters())
    new = list(composing.composer.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": old, "lr": settings.read_learning_rate},
            {"params": new, "lr": max(settings.read_learning_rate, 5e-4)},
        ],
        weight_decay=preset.train.weight_decay,
        fused=next(iter(old)).is_cuda,
    )
    n_steps = settings.read_steps
    return optimizer, warm_up(optimizer, n_steps, max(1, n_steps // 20))
