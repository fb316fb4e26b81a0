"""transformers' ``Trainer`` with our batches, loss, learning rates, evaluation and checkpoints.

A run is one list of steps: an epoch is a number of steps, and going on is skipping to a step.
May import: boolattn.training, boolattn.errors.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from multiprocessing import current_process, get_all_start_methods
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainingArguments

from boolattn.errors import ConfigError
from boolattn.training import checkpoints
from boolattn.training.batches import Features, Steps, single
from boolattn.training.clock import Clock
from boolattn.training.composing import Objective
from boolattn.training.cuda_graphs import capture
from boolattn.training.losses import softmax_loss
from boolattn.training.parameter_groups import parameter_groups
from boolattn.training.run_folder import save_model
from boolattn.training.tower_pass import Both, gather

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sentence_transformers import SentenceTransformer

    from boolattn.training.composing import Composing
    from boolattn.training.run_folder import RunFolder
    from boolattn.training.settings import Preset, TrainSettings

    Validate = Callable[[SentenceTransformer], Mapping[str, float]]

logger = logging.getLogger(__name__)

_N_CHECKPOINTS = 2
#: Batches that a worker makes ahead.
_AHEAD = 8


@dataclass
class Job:
    """What one training needs.

    Attributes:
        preset: Every number.
        towers: The model, changed in place.
        steps: The batches.
        run: Where everything is written.
        validate: Measures the towers; left out, nothing is measured and the last are kept.
        best_by: Which of its numbers decides.
        show_progress: Whether to draw a progress bar.
        composing: The towers with a reader and a calibration, where these are trained too.
        command: What makes the run again, for the model's card.
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
        """Write the model as it is now, whole or not at all."""
        also = None if self.composing is None else self.composing.writer(self.preset)
        save_model(self.towers, folder, self.preset, command=self.command, also=also)


class RetrievalTrainer(Trainer):
    """transformers' loop with our batches, loss, learning rates and checkpoints."""

    # Trainer's own may be None before training; here they are there when they are used.
    model: nn.Module
    optimizer: torch.optim.Optimizer
    lr_scheduler: torch.optim.lr_scheduler.LambdaLR

    def __init__(self, job: Job) -> None:
        self.job = job
        self.losses: list[tuple[int, Tensor]] = []
        self.n_workers = _n_workers(job.preset.train, has_gpu=torch.cuda.is_available())
        arguments = _arguments(job)
        if arguments.n_gpu > 1:
            raise ConfigError(
                f"one process sees {arguments.n_gpu} GPUs; start one process for each "
                "(torchrun --nproc-per-node N -m boolattn.training ...), or set "
                "CUDA_VISIBLE_DEVICES=0"
            )
        encode_batch = capture(job.towers, job.preset.train.captured)
        if job.composing is not None:
            job.composing.encode_batch = encode_batch
        super().__init__(
            model=job.composing or Both(job.towers, encode_batch),
            args=arguments,
            train_dataset=job.steps,
            callbacks=[Clock(job)],
        )
        # It prints to stdout, where only the result belongs.
        self.remove_callback(PrinterCallback)
        if job.preset.train.batch_size % self.args.world_size:
            raise ConfigError(
                f"batch_size {job.preset.train.batch_size} cannot be shared equally by "
                f"{self.args.world_size} processes"
            )
        job.steps.process, job.steps.n_processes = self.args.process_index, self.args.world_size

    def get_train_dataloader(self) -> DataLoader[Features]:
        """Serve the steps in their order; each process already takes its own share."""
        return DataLoader(
            self.job.steps,
            batch_size=1,
            shuffle=False,
            collate_fn=single,
            num_workers=self.n_workers,
            prefetch_factor=_AHEAD if self.n_workers else None,
            # Forked, as other ways would copy the corpus; a worker does not touch the GPU.
            multiprocessing_context="fork" if self.n_workers else None,
        )

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Make AdamW with a learning rate each for encoders and plug-in."""
        if self.optimizer is None:
            groups = list(parameter_groups(self.model, self.job.preset.train))
            is_fused = self.args.device.type == "cuda"
            self.optimizer = torch.optim.AdamW(groups, fused=is_fused)
        return self.optimizer

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:  # noqa: ANN401 - Trainer's contract
        """Compare this process's queries with every process's documents."""
        if self.job.composing is not None:
            loss, found = Objective(self.job.preset)(model, inputs)
            return self._note(loss, found, return_outputs=return_outputs)
        targets, blocked = inputs.pop("targets"), inputs.pop("blocked")
        queries, documents = model(**inputs)
        settings = self.job.preset
        loss = softmax_loss(
            queries,
            gather(documents),
            targets,
            blocked,
            similarity=settings.model.similarity,
            scale=settings.train.scale,
        )
        return self._note(loss, (queries, documents), return_outputs=return_outputs)

    def _note(self, loss: Tensor, found: object, *, return_outputs: bool) -> Any:  # noqa: ANN401
        """Keep a loss to be checked."""
        self.losses.append((self.state.global_step, loss.detach()))
        # A look at every loss would make a GPU wait; there the log looks at all since the last.
        if loss.device.type == "cpu":
            self.check_losses()
        return (loss, found) if return_outputs else loss

    def check_losses(self) -> None:
        """Stop at the first loss that is no number, and say where it was."""
        losses, self.losses = self.losses, []
        if not losses:
            return
        is_finite = torch.isfinite(torch.stack([loss for _, loss in losses])).tolist()
        for (step, loss), is_number in zip(losses, is_finite, strict=True):
            if not is_number:
                batch = self.job.steps.sampler.batch(step)
                ids = ", ".join(example.id for example in batch.examples[:3])
                good = checkpoints.last_checkpoint(self.job.run.checkpoints)
                raise ConfigError(
                    f"the loss is {loss.item()} at step {step + 1} (queries {ids} ...); lower "
                    f"learning_rate or plugin_learning_rate; last good checkpoint: {good or 'none'}"
                )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Check the losses, then log them."""
        self.check_losses()
        super().log(logs, start_time)

    def evaluate(
        self,
        eval_dataset: object = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Measure the towers with the caller's callable, and keep them if they are the best."""
        validate = self.job.validate
        if validate is None:
            return {}
        self.check_losses()
        self.model.eval()
        with torch.no_grad():
            measured = validate(self.job.towers)
        self.model.train()
        metrics = {f"{metric_key_prefix}_{name}": float(v) for name, v in measured.items()}
        name = f"{metric_key_prefix}_{self.job.best_by}"
        if name not in metrics:
            raise ConfigError(f"no metric {name!r} to choose by; there are {', '.join(metrics)}")
        earlier = [row[name] for row in self.state.log_history if name in row]
        if not earlier or metrics[name] > max(earlier):
            metrics["eval_is_best"] = 1.0
            if self.args.should_save and self.job.preset.train.keep == "best":
                self.job.save(self.job.run.best)
        self.log(metrics)
        patience = self.job.preset.train.patience
        since = _since_best([*earlier, metrics[name]])
        if patience and since >= patience:
            logger.info("no better %s for %d evaluations: stopping", name, since)
            self.control.should_training_stop = True
        return metrics

    def _save_checkpoint(self, model: nn.Module, trial: object = None) -> None:
        self.check_losses()
        random = self._random_states()
        if self.args.should_save:
            state = checkpoints.State(
                self.optimizer.state_dict(), self.lr_scheduler.state_dict(), random
            )
            checkpoints.write_checkpoint(
                self.job.run.checkpoints,
                self.state.global_step,
                self.model,
                state,
                lambda folder: self.state.save_to_json(str(folder / checkpoints.TRAINER_STATE)),
            )
            checkpoints.drop_old(self.job.run.checkpoints, _N_CHECKPOINTS)
        self.accelerator.wait_for_everyone()

    def _random_states(self) -> dict[str, Tensor]:
        """Every process's generators; dropout and the scopes' noise draw from these alone."""
        own = {"cpu": torch.get_rng_state()}
        if self.args.device.type == "cuda":
            own["cuda"] = torch.cuda.get_rng_state(self.args.device)
        gathered = {
            name: self.accelerator.gather(state[None].to(self.args.device)).cpu()
            for name, state in own.items()
        }
        return {
            f"{name}.{i}": row.clone()
            for name, rows in gathered.items()
            for i, row in enumerate(rows)
        }

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        checkpoints.load_weights(Path(resume_from_checkpoint), model or self.model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        state = checkpoints.load_state(Path(checkpoint))
        self.optimizer.load_state_dict(dict(state.optimizer))
        self.lr_scheduler.load_state_dict({**self.lr_scheduler.state_dict(), **state.scheduler})

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        random = checkpoints.load_state(Path(checkpoint)).random
        process = self.args.process_index
        n_written = sum(name.startswith("cpu.") for name in random)
        if n_written != self.args.world_size:
            raise ConfigError(
                f"{checkpoint} was written by {n_written} processes; there are "
                f"{self.args.world_size} here, which would draw other dropout"
            )
        torch.set_rng_state(random[f"cpu.{process}"])
        if self.args.device.type == "cuda" and f"cuda.{process}" in random:
            torch.cuda.set_rng_state(random[f"cuda.{process}"], self.args.device)


def _n_workers(settings: TrainSettings, *, has_gpu: bool) -> int:
    """Return how many processes make batches, while a GPU computes; 0: none but this one."""
    # A run among many is a process of a pool, which may have no children.
    can_fork = "fork" in get_all_start_methods() and not current_process().daemon
    return settings.n_workers if has_gpu and can_fork else 0


def _arguments(job: Job) -> TrainingArguments:
    settings = job.preset.train
    has_gpu = torch.cuda.is_available()
    n_steps = len(job.steps)
    return TrainingArguments(
        output_dir=str(job.run.folder),
        max_steps=n_steps,
        per_device_train_batch_size=1,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        lr_scheduler_type="linear",
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.use_bf16 and has_gpu,
        # Unless told so, several processes without a GPU do not know of each other.
        use_cpu=not has_gpu,
        ddp_backend="gloo" if "WORLD_SIZE" in os.environ and not has_gpu else None,
        logging_steps=max(1, min(10, n_steps // 10)),
        logging_nan_inf_filter=False,
        eval_strategy="no",
        save_strategy="no",
        report_to="none",
        seed=settings.seed,
        disable_tqdm=not job.show_progress,
        remove_unused_columns=False,
        dataloader_pin_memory=has_gpu,
        # A batch without any cue leaves the experts without a gradient.
        ddp_find_unused_parameters=True,
    )


def _since_best(values: list[float]) -> int:
    """Count the evaluations after the best one."""
    return len(values) - 1 - values.index(max(values))
