"""Retrieval training of two towers, from a preset's parts to a saved model.

With torchrun each process computes the loss of its own queries over every process's documents.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_all_start_methods
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from accelerate.utils import send_to_device
from sentence_transformers.util import all_gather_with_grad
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

from boolattn.encoder import torch_encoder
from boolattn.encoder.towers import Card, save_towers
from boolattn.errors import ConfigError
from boolattn.evaluation.benchmark import Judgements, prepare
from boolattn.evaluation.metrics import mean, measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.scoring.exact import exact_search
from boolattn.training.batches.tokens import Features, Tokens
from boolattn.training.graphs import capture
from boolattn.training.loop import Loop, RunFolder, parameter_groups, processes
from boolattn.training.losses import softmax_loss
from boolattn.training.tower_pass import TowerPass, can_pack

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.records import Dataset, Query
    from boolattn.training.batches.sampling import Steps
    from boolattn.training.settings import Preset

logger = logging.getLogger(__name__)

BEST_BY = "eval_r_precision"  # The metric of the best weights
METRICS = ("recall@100", "r_precision", "leak")


class Corpus:
    """A data set whose documents are tokenised once, to ``length`` tokens at most.

    Documents whose terms allow evaluation only, by ``use`` of their metadata, are refused.
    """

    def __init__(self, dataset: Dataset, tokenizer: Any, length: int) -> None:  # noqa: ANN401
        forbidden = {
            str(document.metadata.get("domain", document.id))
            for document in dataset.documents
            if document.metadata.get("use") == "evaluation"
        }
        if forbidden:
            names = f"{', '.join(sorted(forbidden))} of {dataset.name}"
            raise ConfigError(f"{names} may only be evaluated: train on other domains")
        self.dataset = dataset
        self.tokenizer = cast("PreTrainedTokenizerBase", tokenizer)
        self.rows = {document.id: row for row, document in enumerate(dataset.documents)}
        texts = [document.text for document in dataset.documents]
        self.documents = Tokens(self.tokenizer, texts, length)

    def split(self, name: str) -> Sequence[Query]:
        """Return the queries of a split, or of several joined by ``+``."""
        return [query for split in name.split("+") for query in self.dataset.queries(split)]

    def validator(self, preset: Preset) -> Callable[[SentenceTransformer], dict[str, float]]:
        """Return :func:`validate` with the preset's split, sizes and labels."""
        split, settings = preset.data.validation, preset.train
        n_documents, n_queries = settings.n_validation_documents, settings.n_validation_queries
        sizes = {"n_documents": n_documents, "n_queries": n_queries, "seed": settings.seed}
        benchmark = prepare(self.dataset, [split], **sizes)
        options: dict[str, Any] = {"texts": benchmark.texts, "takes_labels": preset.takes_labels}
        return partial(validate, judgements=benchmark.splits[split], **options)


def validate(
    towers: SentenceTransformer,
    judgements: Judgements,
    texts: Sequence[str],
    *,
    takes_labels: bool = False,
) -> dict[str, float]:
    """Rank texts for queries; return the means of Recall@100, R-precision and leak."""
    documents = torch_encoder.encode_documents(towers.eval(), texts)
    labels = judgements.operators if takes_labels else None
    vectors = torch_encoder.encode_queries(towers, judgements.texts, operators=labels)
    ranking = rank(vectors, documents, needed_depth(judgements, METRICS))
    values = measure(ranking, judgements, METRICS)
    # The leak is not defined where no query excludes anything.
    return {name: float(np.nan_to_num(mean(value))) for name, value in values.items()}


def rank(queries: Tensor, documents: Tensor, depth: int) -> Ranking:
    """Rank documents by one vector a query."""
    hits = exact_search(queries.cpu().numpy(), documents.cpu().numpy(), depth)
    return Ranking(hits.rows.astype(np.int32), hits.scores)


@dataclass(eq=False)
class RetrievalTraining:
    """One training."""

    preset: Preset
    towers: SentenceTransformer  # Changed in place
    steps: Steps
    run: RunFolder
    #: Without it the last weights are saved
    validate: Callable[[SentenceTransformer], Mapping[str, float]] | None = None
    n_workers: int = 1  # Processes that make batches for a GPU; a CPU has none

    def __post_init__(self) -> None:
        settings, self.processes = self.preset.train, processes()
        self.device: torch.device = self.processes.device
        self.towers.to(self.device)
        self.model: nn.Module = TowerPass(self.towers, capture(self.towers, settings.captured))
        if not settings.chunk and settings.use_bf16 and can_pack(self.towers):
            self.steps.chunk = 0
        if (n_processes := self.processes.num_processes) > 1:
            self.steps.process, self.steps.n_processes = self.processes.process_index, n_processes
            if settings.batch_size % n_processes:
                size = f"batch_size {settings.batch_size}"
                raise ConfigError(f"{size} cannot be divided among {n_processes} processes")
            # A batch without a cue leaves the experts without a gradient.
            self.model = DistributedDataParallel(self.model, find_unused_parameters=True)

    def train(self) -> dict[str, float]:
        """Train, a resumed run from its last checkpoint on, and save the towers.

        Returns the number of steps, the last loss and the best metrics.
        """
        settings, n_steps = self.preset.train, len(self.steps)
        groups = parameter_groups(self.model, settings, settings.plugin_learning_rate)
        log_every = max(1, min(10, n_steps // 10))
        loop = Loop(groups, settings, "retrieval", n_steps, log_every=log_every)
        torch.manual_seed(settings.seed)
        if self.run.resume and self.run.checkpoint.is_file():
            loop.start = self.run.load_checkpoint(self.towers, loop.optimizer)
            logger.info("resuming from step %d", loop.start)
        batches = iter(self._loader(loop.start))
        self.model.train()
        after = partial(self.after_step, optimizer=loop.optimizer)
        loop.run(lambda _step: self.losses(next(batches)), self.log, after)
        metrics: dict[str, float] = {}
        for row in self.run.history:
            if row.get("eval_is_best"):
                names = (n for n in row if n.startswith("eval_") and n != "eval_is_best")
                metrics |= {name: row[name] for name in names} | {"best_step": row["step"]}
            elif "loss" in row:
                metrics["loss"] = row["loss"]
        if settings.keep == "last" or BEST_BY not in metrics:
            self.save()
        self.run.finish(metrics)
        self.processes.wait_for_everyone()
        return {"steps": n_steps, **metrics}

    def losses(self, batch: Features) -> dict[str, Tensor]:
        """Compute the loss of this process's queries over every process's documents."""
        inputs: Features = send_to_device(batch, self.device, non_blocking=True)
        targets, blocked = inputs.pop("targets"), inputs.pop("blocked")
        is_half = self.preset.train.use_bf16 and self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=is_half):
            queries, documents, *scope = self.model(**inputs)
        documents = documents.float()
        if self.processes.num_processes > 1:
            documents = all_gather_with_grad(documents)
        inputs = {"similarity": self.preset.model.similarity, "scale": self.preset.train.scale}
        loss = softmax_loss(queries.float(), documents, targets, blocked, **inputs)
        if scope:
            loss = loss + self.preset.train.scope_weight * scope[0].float()
        return {"loss": loss}

    def after_step(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Evaluate and write a checkpoint when they are due."""
        settings, epoch = self.preset.train, self.steps.sampler.steps_per_epoch
        is_last = step == len(self.steps)
        if is_last or step % (settings.evaluate_every or epoch) == 0:
            self.evaluate(step)
        is_saved = is_last or step % (settings.save_every or epoch) == 0
        if is_saved and self.processes.is_main_process:
            self.run.write_checkpoint(step, self.towers, optimizer)

    def evaluate(self, step: int) -> None:
        """Validate the towers, and save them if they are the best so far."""
        if self.validate is None:
            return
        self.model.eval()
        with torch.no_grad():
            measured = self.validate(self.towers)
        self.model.train()
        metrics = {f"eval_{name}": float(value) for name, value in measured.items()}
        before = (row[BEST_BY] for row in self.run.history if BEST_BY in row)
        if metrics[BEST_BY] > max(before, default=-1.0):
            metrics["eval_is_best"] = 1.0
            if self.preset.train.keep == "best":
                self.save()
        self.log(step, metrics)

    def log(self, step: int, values: dict[str, float]) -> None:
        """Log metrics with their epoch."""
        self.run.log(step, {**values, "epoch": step / self.steps.sampler.steps_per_epoch})

    def save(self) -> None:
        """Save the model as it is now with its card, atomically."""
        if self.processes.is_main_process:
            data = self.preset.data
            trained_on = f"{data.name}, split {data.train}, preset {self.preset.name}"
            card = Card(data=trained_on, command=self.run.command)
            save_towers(self.towers, self.run.model, card=card)

    def _loader(self, start: int) -> DataLoader[Features]:
        """Yield the steps in order; each process takes its own share of each."""
        has_gpu = self.device.type == "cuda"
        n_workers = self.n_workers if has_gpu and "fork" in get_all_start_methods() else 0
        return DataLoader(
            Subset(self.steps, range(start, len(self.steps))),
            batch_size=None,  # a step is already a batch
            num_workers=n_workers,
            pin_memory=has_gpu,
            generator=torch.Generator(),  # not the one that dropout draws from
            prefetch_factor=8 if n_workers else None,  # batches prepared in advance
            # Forked, so that the corpus is not copied; a worker does not use the GPU.
            multiprocessing_context="fork" if n_workers else None,
            # A forked worker would wait for threads of a tokenizer that it does not have.
            worker_init_fn=lambda _: os.environ.update(TOKENIZERS_PARALLELISM="false"),
        )


def require_gpu(preset: Preset) -> None:
    """Refuse a preset for a GPU on a machine without one."""
    if preset.train.needs_gpu and not torch.cuda.is_available():
        remedy = "use the preset demo, or --set train.needs_gpu=false to run it on the CPU"
        raise ConfigError(f"preset {preset.name} needs a GPU and there is none; {remedy}")
