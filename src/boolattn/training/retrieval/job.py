"""What one retrieval training needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.training.run_folder import save_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches.collator import Steps
    from boolattn.training.retrieval.composing import Composing
    from boolattn.training.run_folder import RunFolder
    from boolattn.training.settings import Preset

    Validate = Callable[[SentenceTransformer], Mapping[str, float]]


@dataclass
class Job:
    """What one training needs.

    Attributes:
        preset: The settings.
        towers: The model, changed in place.
        steps: The batches.
        run: The run's folder.
        validate: Evaluates the towers; without it the last weights are saved.
        best_by: The metric that decides which weights are best.
        show_progress: Whether to draw a progress bar.
        composing: The towers with a parser and a calibration, where these are trained too.
        command: The command that was typed, for the model card.
    """

    preset: Preset
    towers: SentenceTransformer
    steps: Steps
    run: RunFolder
    validate: Validate | None = None
    best_by: str = "r_precision"
    show_progress: bool = False
    composing: Composing | None = None
    command: str = ""

    def save(self, folder: Path) -> None:
        """Save the model as it is now, atomically."""
        also = None if self.composing is None else self.composing.writer(self.preset)
        save_model(self.towers, folder, self.preset, command=self.command, also=also)
