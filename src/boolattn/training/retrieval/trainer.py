"""transformers' ``Trainer`` with our batches, loss, learning rates, evaluation and checkpoints."""

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
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from boolattn.encoder.packed import can_pack
from boolattn.errors import ConfigError
from boolattn.training.graphs.capture import capture
from boolattn.training.losses import softmax_loss
from boolattn.training.retrieval import checkpoints
from boolattn.training.retrieval.parameter_groups import parameter_groups
from boolattn.training.run_folder import save_model
from boolattn.training.tower_pass import TowerPass, gather

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sentence_transformers import SentenceTransformer
    from transformers import TrainerControl, TrainerState

    from boolattn.training.batches.sampling import Steps
    from boolattn.training.batches.tokens import Features
    from boolattn.training.run_folder import RunFolder
    from boolattn.training.settings import Preset, TrainSettings

    Validate = Callable[[SentenceTransformer], Mapping[str, float]]

logger = logging.getLogger(__name__)

_N_CHECKPOINTS = 2
#: Batches that a worker prepares in advance.
_PREFETCHED = 8


@dataclass
class Job:
    """What one training needs."""

    preset: Preset
    towers: SentenceTransformer  # Changed in place
    steps: Steps
    run: RunFolder
    validate: Validate | None = None  # Without it the last weights are saved
    show_progress: bool = False
    command: str = ""  # As typed, for the model card

    def save(self, folder: Path) -> None:
        """Save the model as it is now, atomically."""
        save_model(self.towers, folder, self.preset, command=self.command)


class RunCallback(TrainerCallback):
    """Schedules evaluations and checkpoints."""

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


class RetrievalTrainer(Trainer):
    """transformers' loop over a list of steps; a resumed run skips to a step."""

    # Trainer's own may be None before training; here they are set when they are used.
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
        super().__init__(
            model=TowerPass(job.towers, encode_batch),
            args=arguments,
            train_dataset=job.steps,
            callbacks=[RunCallback(job)],
        )
        # It prints to stdout, which is for the result.
        self.remove_callback(PrinterCallback)
        if job.preset.train.batch_size % self.args.world_size:
            raise ConfigError(
                f"batch_size {job.preset.train.batch_size} cannot be divided among "
                f"{self.args.world_size} processes"
            )
        settings = job.preset.train
        if not settings.chunk and settings.use_bf16 and can_pack(job.towers):
            job.steps.collator.chunk = 0
        job.steps.process, job.steps.n_processes = self.args.process_index, self.args.world_size

    def get_train_dataloader(self) -> DataLoader[Features]:
        """Yield the steps in order; each process takes its own share of each."""
        return DataLoader(
            self.job.steps,
            batch_size=1,
            shuffle=False,
            collate_fn=lambda items: items[0],  # a step is already a batch
            num_workers=self.n_workers,
            prefetch_factor=_PREFETCHED if self.n_workers else None,
            # Forked, so that the corpus is not copied; a worker does not use the GPU.
            multiprocessing_context="fork" if self.n_workers else None,
        )

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Make AdamW with its own learning rates for encoders and new parts."""
        if self.optimizer is None:
            groups = list(parameter_groups(self.model, self.job.preset))
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
        """Compute the loss of this process's queries over every process's documents."""
        targets, blocked = inputs.pop("targets"), inputs.pop("blocked")
        queries, documents, *scope = found = model(**inputs)
        loss = softmax_loss(
            queries,
            gather(documents),
            targets,
            blocked,
            similarity=self.job.preset.model.similarity,
            scale=self.job.preset.train.scale,
        )
        if scope:
            loss = loss + self.job.preset.train.scope_weight * scope[0]
        self.losses.append((self.state.global_step, loss.detach()))
        # Reading every loss would make a GPU wait; there all are read when something is logged.
        if loss.device.type == "cpu":
            self.check_losses()
        return (loss, found) if return_outputs else loss

    def check_losses(self) -> None:
        """Stop at the first loss that is not finite, and name its step."""
        losses, self.losses = self.losses, []
        if not losses:
            return
        is_finite = torch.isfinite(torch.stack([loss for _, loss in losses])).tolist()
        for (step, loss), is_good in zip(losses, is_finite, strict=True):
            if not is_good:
                batch = self.job.steps.sampler.batch(step)
                ids = ", ".join(example.id for example in batch.examples[:3])
                good = checkpoints.last_checkpoint(self.job.run.checkpoints)
                raise ConfigError(
                    f"the loss is {loss.item()} at step {step + 1} (queries {ids} ...); lower "
                    f"learning_rate or plugin_learning_rate; "
                    f"last complete checkpoint: {good or 'none'}"
                )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Check the losses, then log the metrics, also to the run's folder."""
        self.check_losses()
        super().log(logs, start_time)
        if self.state.is_world_process_zero:
            # Trainer counts the whole run as one epoch.
            own = {name: value for name, value in logs.items() if name != "epoch"}
            step = self.state.global_step
            self.job.run.log(step, {**own, "epoch": step / self.job.steps.sampler.steps_per_epoch})
            words = ", ".join(f"{name} {value:.4g}" for name, value in own.items())
            logger.info("step %d of %d: %s", step, self.state.max_steps, words)

    def evaluate(
        self,
        eval_dataset: object = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate the towers with the job's callable, and save them if they are the best."""
        validate = self.job.validate
        if validate is None:
            return {}
        self.check_losses()
        self.model.eval()
        with torch.no_grad():
            measured = validate(self.job.towers)
        self.model.train()
        metrics = {f"{metric_key_prefix}_{name}": float(v) for name, v in measured.items()}
        name = f"{metric_key_prefix}_{self.job.preset.train.best_by}"
        if name not in metrics:
            raise ConfigError(f"no metric {name!r} to choose by; there are {', '.join(metrics)}")
        earlier = [row[name] for row in self.state.log_history if name in row]
        if not earlier or metrics[name] > max(earlier):
            metrics["eval_is_best"] = 1.0
            if self.args.should_save and self.job.preset.train.keep == "best":
                self.job.save(self.job.run.best)
        self.log(metrics)
        patience = self.job.preset.train.patience
        values = [*earlier, metrics[name]]
        since = len(values) - 1 - values.index(max(values))
        if patience and since >= patience:
            logger.info("no better %s for %d evaluations: stopping", name, since)
            self.control.should_training_stop = True
        return metrics

    def _save_checkpoint(self, model: nn.Module, trial: object = None) -> None:
        self.check_losses()
        random = self._random_states()
        if self.args.should_save:
            folder, step = self.job.run.checkpoints, self.state.global_step
            schedule = self.lr_scheduler.state_dict()
            state = checkpoints.State(self.optimizer.state_dict(), schedule, random)
            checkpoints.write_checkpoint(folder, step, self.model, state, self._write_state)
            checkpoints.drop_old(folder, _N_CHECKPOINTS)
        self.accelerator.wait_for_everyone()

    def _write_state(self, folder: Path) -> None:
        self.state.save_to_json(str(folder / checkpoints.TRAINER_STATE))

    def _random_states(self) -> dict[str, Tensor]:
        """Return the random states of every process, from which dropout and noise draw."""
        own = {"cpu": torch.get_rng_state()}
        if self.args.device.type == "cuda":
            own["cuda"] = torch.cuda.get_rng_state(self.args.device)
        return {
            f"{name}.{i}": row.clone()
            for name, state in own.items()
            for i, row in enumerate(self.accelerator.gather(state[None].to(self.args.device)).cpu())
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
    """Return how many processes make batches for a GPU; 0: this process makes them."""
    # A process of a pool may have no children.
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
        lr_scheduler_type={"constant": "constant_with_warmup"}.get(
            settings.schedule, settings.schedule
        ),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.use_bf16 and has_gpu,
        # Needed by several processes without a GPU.
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
        # A batch without a cue leaves the experts without a gradient.
        ddp_find_unused_parameters=True,
    )
