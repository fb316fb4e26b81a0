"""Settings of a training on annotated negation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NegationSettings:
    """Settings of a training on annotated negation.

    Attributes:
        is_frozen: Whether the encoder is frozen and only the heads are trained.
        n_epochs: Passes over the training part; the best on the development part is kept.
        batch_size: Sentences a step.
        learning_rate: Of the encoder.
        head_learning_rate: Of the heads.
        cue_positive_weight: Weight of a cue token in the loss; other tokens have 1.
        length: Longest sentence in tokens.
        max_steps: Stop after so many steps; 0: after the epochs.
        seed: Of order, dropout and noise.
    """

    is_frozen: bool = True
    n_epochs: int = 8
    batch_size: int = 32
    learning_rate: float = 5e-5
    head_learning_rate: float = 2e-3
    cue_positive_weight: float = 3.0
    length: int = 160
    max_steps: int = 0
    seed: int = 0
