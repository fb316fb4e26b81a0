"""Settings of a training on annotated negation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NegationSettings:
    """Settings of a training on annotated negation."""

    is_frozen: bool = True  # Whether only the heads are trained
    #: Whether it is NegBERT's task: each negation by itself, its cue marked in the text
    is_given: bool = False
    n_epochs: int = 8  # The best on the development part is kept
    batch_size: int = 32
    learning_rate: float = 5e-5  # Of the encoder
    head_learning_rate: float = 2e-3
    cue_positive_weight: float = 3.0  # Weight of a cue token in the loss; other tokens have 1
    length: int = 160  # Longest sentence in tokens
    max_steps: int = 0  # Stop after so many steps; 0: after the epochs
    seed: int = 0  # Of order, dropout and noise
