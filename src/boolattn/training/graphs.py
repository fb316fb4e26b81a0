"""CUDA graphs of the towers' passes: many small kernels, launched together.

Encoding 32 short queries takes less time than launching its kernels one by one. Recorded once for
every padded length, forward and backward pass are one launch each. Only the padding changes.
Without a GPU, or with several processes, nothing is recorded.

torch's ``make_graphed_callables`` does not work in the middle of a training: the weights' nodes in
autograd's graph belong to the stream on which they were made, which is the default stream while
any other pass of the step is alive, and no recording may use that. So passes are recorded with
aliases of the weights: new leaves over the same memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.errors import ConfigError
from boolattn.plugin.install import NAME as PLUGIN
from boolattn.training.loop import processes
from boolattn.training.tower_pass import SCOPE, encode

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from boolattn.training.batches.tokens import Features

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
        self.tasks = frozenset(tasks)
        tokenizer: Any = towers.tokenizer
        self._pad = int(tokenizer.pad_token_id or 0)
        self._recordings: dict[tuple[Any, ...], Recording] = {}
        self._pools: dict[tuple[str, int], Any] = {}
        # One for each task: passes that overlap must not share a library's scratch memory.
        self._streams: dict[str, torch.cuda.Stream] = {}
        self._began: torch.cuda.Event | None = None

    def __call__(self, features: Features, task: str, slot: int = 0) -> Tensor:
        """Encode one batch; ``slot`` is its number among the step's batches of this task.

        A graph serves one pass until its backward pass is over: batches of a step cannot share it.
        """
        if not self._can_record(features, task):
            return encode(self.towers, features, task)
        n_tokens = -(-features["input_ids"].shape[-1] // MULTIPLES[task]) * MULTIPLES[task]
        others = tuple(name for name in sorted(features) if name not in _BY_TOKEN)
        key = (task, slot, len(features["input_ids"]), n_tokens, others)
        recording = self._recordings.get(key)
        if recording is None or not recording.weights.are_current():
            try:
                recording = self._record(padded(features, n_tokens, self._pad), task, slot)
            except RuntimeError as error:
                is_full = isinstance(error, torch.OutOfMemoryError)
                reason = "no memory is left" if is_full else str(error).partition("\n")[0]
                raise ConfigError(
                    f"the GPU cannot record CUDA graphs of {task} passes ({reason}); train with "
                    "--set train.captured=queries, or none, or a smaller batch_size"
                ) from error
            self._recordings[key] = recording
        return self._replay(recording, features, task, slot)

    def _replay(self, recording: Recording, features: Features, task: str, slot: int) -> Tensor:
        """Replay; queries beside the documents of their step, which leave the GPU idle time.

        Autograd runs backward on the same streams, and waits where they meet.
        """
        main = torch.cuda.current_stream()
        if task != "query":
            if slot == 0:
                self._began = main.record_event()
            return recording(features)
        side = self._streams[task]
        side.wait_event(self._began or main.record_event())
        self._began = None
        with torch.cuda.stream(side):
            vectors = recording(features)
        main.wait_stream(side)
        return vectors

    def _can_record(self, features: Features, task: str) -> bool:
        is_alone = processes().num_processes == 1
        is_training = self.towers.training and torch.is_grad_enabled()
        return task in self.tasks and is_alone and is_training and features["input_ids"].is_cuda

    def _record(self, features: Features, task: str, slot: int) -> Recording:
        # Graphs of one slot never run at the same time, so they share their memory.
        if (task, slot) not in self._pools:
            self._pools[task, slot] = torch.cuda.graph_pool_handle()
        device = features["input_ids"].device
        if task not in self._streams:
            self._streams[task] = torch.cuda.Stream(device)
            # Backward passes run on the streams of their forward passes, gradients are added on the
            # default stream, and torch waits where they meet. Its warning of that is not needed.
            torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        stream, pool = self._streams[task], self._pools[task, slot]
        weights = Weights(self.towers, task)
        # "global", the default, fails when a loader's thread pins a batch meanwhile.
        into = partial(
            torch.cuda.graph, pool=pool, stream=stream, capture_error_mode="thread_local"
        )
        # A cast that autocast has cached from outside would not be in the graph.
        uncached = torch.autocast(
            "cuda",
            dtype=torch.get_autocast_dtype("cuda"),
            enabled=torch.is_autocast_enabled("cuda"),
            cache_enabled=False,
        )
        warm_up = typical(features)
        torch.cuda.synchronize(device)
        with uncached:
            with torch.cuda.stream(stream):
                for _ in range(3):  # in which libraries choose kernels and allocate memory
                    vectors = weights.call(warm_up)
                    gradients = weights.gradients(vectors, torch.zeros_like(vectors))
                del vectors, gradients
            forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with into(forward):
                vectors = weights.call(features)
            upstream = torch.zeros_like(vectors)
            with into(backward):
                gradients = weights.gradients(vectors, upstream)
        torch.cuda.synchronize(device)
        graphs = (forward, backward)
        return Recording(
            weights, graphs, features, self._pad, vectors.detach(), upstream, gradients
        )


class Weights:
    """The towers' parameters, and leaves of autograd's graph that share their memory."""

    def __init__(self, towers: SentenceTransformer, task: str) -> None:
        self.towers, self.task = towers, task
        self.parameters = dict(towers.named_parameters())
        self.aliases = {
            name: nn.Parameter(value.detach(), value.requires_grad)
            for name, value in self.parameters.items()
        }
        self.trained = [value for value in self.parameters.values() if value.requires_grad]

    def call(self, features: Features) -> Tensor:
        """Encode a batch with the aliases in the place of the parameters."""
        # torch.func.functional_call leaves aliases in a module with two names, as a shared encoder.
        aliases = {id(value): self.aliases[name] for name, value in self.parameters.items()}
        before = [(part._parameters, dict(part._parameters)) for part in self.towers.modules()]
        try:
            for registry, original in before:
                registry.update({name: aliases.get(id(value)) for name, value in original.items()})
            return encode(self.towers, features, self.task)
        finally:
            for registry, original in before:
                registry.update(original)

    def gradients(self, vectors: Tensor, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Run backward from a call; None for a parameter that was not used."""
        leaves = [alias for alias in self.aliases.values() if alias.requires_grad]
        return torch.autograd.grad(vectors, leaves, upstream, allow_unused=True)

    def are_current(self) -> bool:
        """Whether the parameters are still at the same memory, and trained or frozen as before."""
        return all(
            value.data_ptr() == alias.data_ptr() and value.requires_grad == alias.requires_grad
            for value, alias in zip(self.parameters.values(), self.aliases.values(), strict=True)
        )


@dataclass(frozen=True, eq=False)
class Recording:
    """A recorded pass, to be replayed forward and backward."""

    weights: Weights
    graphs: tuple[Any, Any]  # Forward and backward; anything that has ``replay``
    features: Features  # Tensors that the forward graph reads
    pad: int  # Token that fills them up
    vectors: Tensor  # Output of the forward graph
    upstream: Tensor  # Gradient of the vectors, input of the backward graph
    gradients: tuple[Tensor | None, ...]  # Its output, of the trained parameters

    def __call__(self, features: Features) -> Tensor:
        """Replay with a batch, as one node of autograd's graph."""
        for name, target in self.features.items():
            fill(target, features[name], self.pad if name == "input_ids" else 0)
        vectors: Tensor = _Replay.apply(self, *self.weights.trained)  # type: ignore[no-untyped-call]
        return vectors

    def keep_gradients(self) -> None:
        """Copy gradients that autograd uses without a copy, before a replay overwrites them."""
        for parameter, buffer in zip(self.weights.trained, self.gradients, strict=True):
            gradient = parameter.grad
            if gradient is None or buffer is None or gradient.data_ptr() != buffer.data_ptr():
                continue
            parameter.grad = gradient.clone()


class _Replay(torch.autograd.Function):
    """A replayed pass as one node of autograd's graph."""

    @staticmethod
    def forward(context: Any, recording: Recording, *_weights: Tensor) -> Tensor:  # noqa: ANN401
        context.recording = recording
        recording.graphs[0].replay()
        return recording.vectors.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        recording: Recording = context.recording
        recording.keep_gradients()
        recording.upstream.copy_(gradient)
        recording.graphs[1].replay()
        gradients = (value if value is None else value.detach() for value in recording.gradients)
        return (None, *gradients)


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


def padded(features: Features, n_tokens: int, pad: int) -> Features:
    """Copy a batch with longer texts; features without one column per token keep their shape."""
    return {
        name: F.pad(value, (0, n_tokens - value.shape[-1]), value=pad if name == "input_ids" else 0)
        if name in _BY_TOKEN
        else value.clone()
        for name, value in features.items()
    }


def fill(target: Tensor, value: Tensor, padding: int) -> None:
    """Overwrite an earlier batch, which may be of longer texts."""
    target[..., value.shape[-1] :] = padding
    target[..., : value.shape[-1]].copy_(value, non_blocking=True)
