"""Retrieval training, from a job to a saved model."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from boolattn.errors import ConfigError
from boolattn.training.retrieval import checkpoints
from boolattn.training.retrieval.trainer import RetrievalTrainer
from boolattn.training.run_folder import copy_folder

if TYPE_CHECKING:
    from pathlib import Path

    from boolattn.training.retrieval.trainer import Job
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """The result of a training."""

    model: Path  # Folder of the saved model
    n_steps: int
    metrics: dict[str, float]  # The last loss, and the metrics of the best evaluation


def train_towers(job: Job, *, resume: bool = False) -> Result:
    """Train two towers, from the run's last complete checkpoint on if asked, and save them."""
    require_gpu(job.preset)
    trainer = RetrievalTrainer(job)
    start = checkpoints.last_checkpoint(job.run.checkpoints) if resume else None
    if start is not None:
        logger.info("resuming from %s", start)
        job.run.rewind(int(start.name.removeprefix(checkpoints.PREFIX)))
    trainer.train(resume_from_checkpoint=str(start) if start else None)
    metrics = _summary(trainer.state.log_history)
    if trainer.args.should_save:
        if job.preset.train.keep == "best" and job.run.best.is_dir():
            copy_folder(job.run.best, job.run.model)
        else:
            job.save(job.run.model)
        job.run.finish(metrics, trainer.state.log_history)
    trainer.accelerator.wait_for_everyone()
    return Result(job.run.model, trainer.state.global_step, metrics)


def release_memory() -> None:
    """Free unused memory, also for other processes on the same GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def require_gpu(preset: Preset) -> None:
    """Refuse a preset for a GPU on a machine without one."""
    if preset.train.needs_gpu and not torch.cuda.is_available():
        raise ConfigError(
            f"preset {preset.name} needs a GPU and there is none; use the preset demo, or "
            "--set train.needs_gpu=false to run it on the CPU"
        )


def _summary(history: list[dict[str, float]]) -> dict[str, float]:
    """Collect the last loss and the metrics of the best evaluation."""
    summary: dict[str, float] = {}
    for row in history:
        if "loss" in row:
            summary["loss"] = row["loss"]
        if "eval_is_best" in row:
            summary |= {name: v for name, v in row.items() if name.startswith("eval_")}
            summary["best_step"] = row["step"]
    summary.pop("eval_is_best", None)
    return summary
