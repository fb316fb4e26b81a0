"""CUDA graphs of the towers' passes: many small kernels, launched together.

Encoding 32 short queries takes less time than launching its kernels one by one. Recorded once for
every padded length, forward and backward pass are one launch each. Only the padding changes.
Without a GPU, or with several processes, nothing is recorded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.errors import ConfigError
from boolattn.plugin.install import NAME as PLUGIN
from boolattn.training.graphs.cuda_graph import Recorder, Weights
from boolattn.training.loop import processes
from boolattn.training.tower_pass import SCOPE, encode

if TYPE_CHECKING:
    from collections.abc import Collection

    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches.tokens import Features
    from boolattn.training.graphs.cuda_graph import Recording

logger = logging.getLogger(__name__)

#: Lengths are padded to multiples of these, so that few graphs serve all batches.
MULTIPLES = {"query": 16, "document": 32, SCOPE: 16}
#: Features with one column per token.
_BY_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "scopes")
#: Tasks that are recorded, by the setting ``captured``.
_TASKS = {"none": (), "queries": ("query", SCOPE), "all": ("query", SCOPE, "document")}


def capture(towers: SentenceTransformer, which: str) -> Captured | None:
    """Return what encodes batches by graphs ("queries" or "all"); None for "none"."""
    tasks = set(_TASKS[which])
    trained = (name for name, weight in towers.named_parameters() if weight.requires_grad)
    if all(f"{PLUGIN}." in name for name in trained):
        tasks.discard("document")  # of a frozen encoder: there is no backward pass
    return Captured(towers, tasks) if tasks else None


class Captured:
    """Encodes batches like :func:`encode`, by graphs where that is possible."""

    def __init__(self, towers: SentenceTransformer, tasks: Collection[str]) -> None:
        self.towers = towers
        self.tasks = frozenset(tasks)  # What is recorded; nothing after a failure
        self.failure: RuntimeError | None = None
        tokenizer: Any = towers.tokenizer
        self._pad = int(tokenizer.pad_token_id or 0)
        self._passes: dict[tuple[Any, ...], _Recorded] = {}
        self._pools: dict[tuple[str, int], Any] = {}
        # One for each task: passes that overlap must not share a library's scratch memory.
        self._recorders: dict[str, Recorder] = {}
        self._began: torch.cuda.Event | None = None

    def __call__(self, features: Features, task: str, slot: int = 0) -> Tensor:
        """Encode one batch; ``slot`` is its number among the step's batches of this task.

        A graph serves one pass until its backward pass is over, so batches of one step must not
        share it.
        """
        if not self._can_record(features, task):
            return encode(self.towers, features, task)
        n_tokens = padded_length(features["input_ids"].shape[-1], task)
        others = tuple(name for name in sorted(features) if name not in _BY_TOKEN)
        key = (task, slot, len(features["input_ids"]), n_tokens, others)
        recorded = self._passes.get(key)
        if recorded is None or not recorded.recording.weights.are_current():
            try:
                recorded = self._record(padded(features, n_tokens, self._pad), task, slot)
            except torch.OutOfMemoryError as error:
                raise ConfigError(
                    f"the GPU has no memory left for CUDA graphs of {task} passes; give it "
                    "--set train.captured=queries, or none, or a smaller batch_size"
                ) from error
            except RuntimeError as error:
                logger.warning("no CUDA graphs: %s", error, exc_info=True)
                # Earlier recordings stay: their replays of this step may still run.
                self.failure, self.tasks = error.with_traceback(None), frozenset()
                return encode(self.towers, features, task)
            self._passes[key] = recorded
        return self._replay(recorded, features, task, slot)

    def _replay(self, recorded: _Recorded, features: Features, task: str, slot: int) -> Tensor:
        """Replay; queries beside the documents of their step, which leave the GPU idle time.

        Autograd runs backward on the same streams, and waits where they meet.
        """
        main = torch.cuda.current_stream()
        if task != "query":
            if slot == 0:
                self._began = main.record_event()
            return recorded(features, self._pad)
        side = self._recorders[task].stream
        side.wait_event(self._began or main.record_event())
        self._began = None
        with torch.cuda.stream(side):
            vectors = recorded(features, self._pad)
        main.wait_stream(side)
        return vectors

    def _can_record(self, features: Features, task: str) -> bool:
        is_alone = processes().num_processes == 1
        is_training = self.towers.training and torch.is_grad_enabled()
        return task in self.tasks and is_alone and is_training and features["input_ids"].is_cuda

    def _record(self, features: Features, task: str, slot: int) -> _Recorded:
        # Graphs of one slot never run at the same time, so they share their memory.
        if (task, slot) not in self._pools:
            self._pools[task, slot] = torch.cuda.graph_pool_handle()
        if task not in self._recorders:
            self._recorders[task] = Recorder(features["input_ids"].device)
        module = Pass(self.towers, task, tuple(features))
        # A cast that autocast has cached from outside would not be in the graph.
        with torch.autocast(
            "cuda",
            dtype=torch.get_autocast_dtype("cuda"),
            enabled=torch.is_autocast_enabled("cuda"),
            cache_enabled=False,
        ):
            recording = self._recorders[task].record(
                Weights(module),
                tuple(features.values()),
                tuple(typical(features).values()),
                self._pools[task, slot],
            )
        return _Recorded(recording, features)


class Pass(nn.Module):
    """One forward pass as a function of tensors alone; its parameters are the towers'."""

    def __init__(self, towers: SentenceTransformer, task: str, names: tuple[str, ...]) -> None:
        super().__init__()
        self.towers = towers
        self.task = task
        self.names = names

    def forward(self, *values: Tensor) -> Tensor:
        """Encode a batch whose tensors come in the order of the names."""
        return encode(self.towers, dict(zip(self.names, values, strict=True)), self.task)


@dataclass(frozen=True, eq=False)
class _Recorded:
    recording: Recording
    features: Features  # The tensors that it reads from

    def __call__(self, features: Features, pad: int) -> Tensor:
        for name, target in self.features.items():
            fill(target, features[name], name, pad)
        return self.recording()


def typical(features: Features) -> Features:
    """Copy a batch so that it takes the path through the encoder that a graph must serve.

    An ordinary pass inspects its batch: without padding it drops the mask, without an open gate
    the plug-in. A recorded one cannot, and always runs everything.
    """
    some = {name: value.clone() for name, value in features.items()}
    if "attention_mask" in some:
        some["attention_mask"][:, -1] = 0
    if "operators" in some:
        some["operators"].fill_(1)
    return some


def padded_length(n_tokens: int, task: str) -> int:
    """Round a length up to one that graphs are recorded for.

    >>> padded_length(20, "query"), padded_length(20, "document")
    (32, 32)
    """
    multiple = MULTIPLES[task]
    return -(-n_tokens // multiple) * multiple


def padded(features: Features, n_tokens: int, pad: int) -> Features:
    """Copy a batch with longer texts; features without one column per token keep their shape."""
    return {
        name: F.pad(value, (0, n_tokens - value.shape[-1]), value=pad if name == "input_ids" else 0)
        if name in _BY_TOKEN
        else value.clone()
        for name, value in features.items()
    }


def fill(target: Tensor, value: Tensor, name: str, pad: int) -> None:
    """Overwrite an earlier batch."""
    if target.shape == value.shape:
        target.copy_(value, non_blocking=True)
        return
    target.fill_(pad if name == "input_ids" else 0)
    target[..., : value.shape[-1]].copy_(value, non_blocking=True)
