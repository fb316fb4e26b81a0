"""A retrieval training: what it needs, when it is evaluated and saved, where it logs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from boolattn.training.run_folder import save_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sentence_transformers import SentenceTransformer
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from boolattn.training.batches.sampling import Steps
    from boolattn.training.retrieval.composing import Composing
    from boolattn.training.run_folder import RunFolder
    from boolattn.training.settings import Preset

    Validate = Callable[[SentenceTransformer], Mapping[str, float]]

logger = logging.getLogger(__name__)


@dataclass
class Job:
    """What one training needs."""

    preset: Preset
    towers: SentenceTransformer  # Changed in place
    steps: Steps
    run: RunFolder
    validate: Validate | None = None  # Without it the last weights are saved
    best_by: str = "r_precision"  # The metric that decides which weights are best
    show_progress: bool = False
    composing: Composing | None = None  # Where a parser and a calibration are trained too
    command: str = ""  # As typed, for the model card

    def save(self, folder: Path) -> None:
        """Save the model as it is now, atomically."""
        also = None if self.composing is None else self.composing.writer(self.preset)
        save_model(self.towers, folder, self.preset, command=self.command, also=also)


class RunCallback(TrainerCallback):
    """Schedules evaluations and checkpoints, and logs to the run's folder."""

    def __init__(self, job: Job) -> None:
        self.job = job
        settings, epoch = job.preset.train, job.steps.sampler.steps_per_epoch
        self.evaluate_every = settings.evaluate_every or epoch
        self.save_every = settings.save_every or epoch

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Ask for an evaluation and a checkpoint when they are due."""
        is_last = state.global_step >= state.max_steps
        if self.job.validate is not None:
            control.should_evaluate = is_last or state.global_step % self.evaluate_every == 0
        control.should_save = is_last or state.global_step % self.save_every == 0

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Do not repeat what the last step asked for."""
        control.should_evaluate = control.should_save = False

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Write metrics to the run's folder."""
        if state.is_world_process_zero and logs:
            # Trainer counts the whole run as one epoch.
            logs = {name: value for name, value in logs.items() if name != "epoch"}
            epoch = state.global_step / self.job.steps.sampler.steps_per_epoch
            self.job.run.log(state.global_step, {**logs, "epoch": epoch})
            words = ", ".join(f"{name} {value:.4g}" for name, value in logs.items())
            logger.info("step %d of %d: %s", state.global_step, state.max_steps, words)
