"""One forward and one backward pass as two CUDA graphs.

torch's ``make_graphed_callables`` does not work in the middle of a training: the weights' nodes in
autograd's graph belong to the stream on which they were made, which is the default stream while
any other pass of the step is alive, and no recording may use that. So passes are recorded with
aliases of the weights: new leaves over the same memory.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Passes before a recording, in which libraries choose kernels and allocate memory.
N_WARMUP = 3


class Weights:
    """A module's parameters, and leaves of autograd's graph that share their memory."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.parameters = dict(module.named_parameters())
        self.aliases = {
            name: nn.Parameter(value.detach(), value.requires_grad)
            for name, value in self.parameters.items()
        }
        self.wanted = [name for name, value in self.parameters.items() if value.requires_grad]
        self.trained = [self.parameters[name] for name in self.wanted]

    def call(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Run the module with the aliases in the place of its parameters."""
        # Not torch.func.functional_call: a module with two names, as the shared encoder, would keep
        # the aliases.
        aliases = {id(value): self.aliases[name] for name, value in self.parameters.items()}
        before = [(part._parameters, dict(part._parameters)) for part in self.module.modules()]
        try:
            for registry, original in before:
                registry.update({name: aliases.get(id(value)) for name, value in original.items()})
            vectors: Tensor = self.module(*inputs)
        finally:
            for registry, original in before:
                registry.update(original)
        return vectors

    def gradients(self, vectors: Tensor, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Run backward from a call; None for a parameter that was not used."""
        leaves = [self.aliases[name] for name in self.wanted]
        return torch.autograd.grad(vectors, leaves, upstream, allow_unused=True)

    def are_current(self) -> bool:
        """Whether the parameters are still at the same memory, and trained or frozen as before."""
        return all(
            value.data_ptr() == alias.data_ptr() and value.requires_grad == alias.requires_grad
            for value, alias in zip(self.parameters.values(), self.aliases.values(), strict=True)
        )


class Recorder:
    """Records passes on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        # Backward passes run on the streams of their forward passes, gradients are added on the
        # default stream, and torch waits where they meet. Its warning about that is not needed.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)

    def record(
        self,
        weights: Weights,
        inputs: tuple[Tensor, ...],
        typical: tuple[Tensor, ...],
        pool: Any,  # noqa: ANN401 - an opaque handle
    ) -> Recording:
        """Record a pass whose replays read ``inputs``; ``typical`` ones are for the warm-up."""
        # "global", the default, fails when a loader's thread pins a batch meanwhile.
        into = partial(
            torch.cuda.graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"
        )
        torch.cuda.synchronize(self.device)
        with recovering(self.device, pool):
            with torch.cuda.stream(self.stream):
                for _ in range(N_WARMUP):
                    vectors = weights.call(typical)
                    gradients = weights.gradients(vectors, torch.zeros_like(vectors))
                del vectors, gradients
            forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with into(forward):
                vectors = weights.call(inputs)
            upstream = torch.zeros_like(vectors)
            with into(backward):
                gradients = weights.gradients(vectors, upstream)
        torch.cuda.synchronize(self.device)
        return Recording(weights, (forward, backward), vectors.detach(), upstream, gradients)


@dataclass(frozen=True, eq=False)
class Recording:
    """A recorded pass, to be replayed forward and backward."""

    weights: Weights
    graphs: tuple[Any, Any]  # Forward and backward; anything that has ``replay``
    vectors: Tensor  # Output of the forward graph
    upstream: Tensor  # Gradient of the vectors, input of the backward graph
    gradients: tuple[Tensor | None, ...]  # Its output, of the trained parameters

    def __call__(self) -> Tensor:
        """Replay, as one node of autograd's graph."""
        vectors: Tensor = _Replay.apply(self, *self.weights.trained)  # type: ignore[no-untyped-call]
        return vectors

    def keep_gradients(self) -> None:
        """Copy gradients that autograd uses without a copy, before a replay overwrites them."""
        for parameter, buffer in zip(self.weights.trained, self.gradients, strict=True):
            gradient = parameter.grad
            if gradient is None or buffer is None:
                continue
            if gradient.data_ptr() == buffer.data_ptr():
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


@contextmanager
def recovering(device: torch.device, pool: Any) -> Iterator[None]:  # noqa: ANN401
    """Keep the process usable when a recording fails.

    A failed recording leaves generator, allocator and current stream in recording state, so that
    every later dropout would fail.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    state, stream = generator.clone_state(), torch.cuda.current_stream(device)
    try:
        yield
    except BaseException:
        torch.cuda.set_stream(stream)
        generator.graphsafe_set_state(state)
        with suppress(RuntimeError):  # raised where it was ended already
            torch._C._cuda_endAllocateToPool(index, pool)
        raise
