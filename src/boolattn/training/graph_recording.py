"""One pass forward and back as two CUDA graphs.

torch's own ``make_graphed_callables`` does the same in the first place, but not in the middle of a
training: the weights' nodes in autograd's graph remember the stream on which they were made, and
while any other pass of the step is alive, that is the default stream, which no recording may touch.
So passes are recorded with aliases of the weights: new leaves over the same memory. Also, a thread
that pins batches meanwhile must not spoil a recording. May import: nothing of this package.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Passes before a recording: libraries choose their kernels and take their memory in them.
N_WARM = 3


class Weights:
    """A module's parameters, and leaves of autograd's graph that share their memory.

    Args:
        module: What is to be recorded.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.own = dict(module.named_parameters())
        self.aliases = {
            name: nn.Parameter(value.detach(), value.requires_grad)
            for name, value in self.own.items()
        }
        self.wanted = [name for name, value in self.own.items() if value.requires_grad]

    def call(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Run the module with the aliases in the place of its parameters."""
        with self._in_place():
            vectors: Tensor = self.module(*inputs)
        return vectors

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        # Not by torch.func.functional_call: a module that has two names, as both towers' encoder
        # has, would keep the aliases.
        aliases = {id(value): self.aliases[name] for name, value in self.own.items()}
        before = [(part._parameters, dict(part._parameters)) for part in self.module.modules()]
        try:
            for place, own in before:
                place.update({name: aliases.get(id(value)) for name, value in own.items()})
            yield
        finally:
            for place, own in before:
                place.update(own)

    def gradients(self, vectors: Tensor, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Go back from a call; None for a parameter that took no part."""
        leaves = [self.aliases[name] for name in self.wanted]
        return torch.autograd.grad(vectors, leaves, upstream, allow_unused=True)

    def are_current(self) -> bool:
        """Whether the parameters are still where they were, and learn or not as before."""
        return all(
            one.data_ptr() == other.data_ptr() and one.requires_grad == other.requires_grad
            for one, other in zip(self.own.values(), self.aliases.values(), strict=True)
        )


class Recorder:
    """Records passes on a stream of its own.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        # Passes go back on the streams they came by, the weights' gradients are added up on the
        # default one, and torch waits where they meet. It warns of that wait in every training;
        # here it is meant, and changes no number.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)

    def record(
        self,
        weights: Weights,
        inputs: tuple[Tensor, ...],
        typical: tuple[Tensor, ...],
        pool: Any,  # noqa: ANN401 - an opaque handle
    ) -> Recording:
        """Record a pass.

        Args:
            weights: The module and its parameters.
            inputs: What it reads, now and at every replay.
            typical: Inputs of the same shapes for the passes before.
            pool: Memory for what the graphs compute.
        """
        torch.cuda.synchronize(self.device)
        with recovering(self.device, pool):
            with torch.cuda.stream(self.stream):
                for _ in range(N_WARM):
                    vectors = weights.call(typical)
                    gradients = weights.gradients(vectors, torch.zeros_like(vectors))
                del vectors, gradients
            forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with self._graph(forward, pool):
                vectors = weights.call(inputs)
            upstream = torch.zeros_like(vectors)
            with self._graph(backward, pool):
                gradients = weights.gradients(vectors, upstream)
        torch.cuda.synchronize(self.device)
        return Recording(weights, (forward, backward), vectors.detach(), upstream, gradients)

    def _graph(self, graph: torch.cuda.CUDAGraph, pool: Any) -> Any:  # noqa: ANN401
        # "global", the default, would fail on what a loader's pinning thread does meanwhile.
        return torch.cuda.graph(
            graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"
        )


class Recording:
    """A recorded pass; called, it replays both ways.

    Args:
        weights: The module's parameters.
        graphs: Forward and backward; anything that has ``replay``.
        vectors: Where the first writes.
        upstream: Where the second reads the gradient of the vectors.
        gradients: Where it writes those of the parameters that learn.
    """

    def __init__(
        self,
        weights: Weights,
        graphs: tuple[Any, Any],
        vectors: Tensor,
        upstream: Tensor,
        gradients: tuple[Tensor | None, ...],
    ) -> None:
        self.weights = weights
        self.forward, self.backward = graphs
        self.vectors = vectors
        self.upstream = upstream
        self.gradients = gradients
        self.learning = [weights.own[name] for name in weights.wanted]

    def __call__(self) -> Tensor:
        """Replay, and take a place in autograd's graph."""
        vectors: Tensor = _Replay.apply(self, *self.learning)  # type: ignore[no-untyped-call]
        return vectors

    def keep_gradients(self) -> None:
        """Copy gradients that autograd took over as they are, before a replay overwrites them."""
        for parameter, place in zip(self.learning, self.gradients, strict=True):
            found = parameter.grad
            if found is not None and place is not None and found.data_ptr() == place.data_ptr():
                parameter.grad = found.clone()


class _Replay(torch.autograd.Function):
    """A replayed pass as one node of autograd's graph."""

    @staticmethod
    def forward(context: Any, recording: Recording, *_weights: Tensor) -> Tensor:  # noqa: ANN401
        context.recording = recording
        recording.forward.replay()
        return recording.vectors.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        recording: Recording = context.recording
        recording.keep_gradients()
        recording.upstream.copy_(gradient)
        recording.backward.replay()
        found = (value if value is None else value.detach() for value in recording.gradients)
        return (None, *found)


@contextmanager
def recovering(device: torch.device, pool: Any) -> Iterator[None]:  # noqa: ANN401
    """Leave the process usable where a recording fails.

    A broken recording ends neither the generator's nor the allocator's part in it, and leaves its
    stream the current one: every later dropout would fail, of any model.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    state, stream = generator.clone_state(), torch.cuda.current_stream(device)
    try:
        yield
    except BaseException:
        torch.cuda.set_stream(stream)
        generator.graphsafe_set_state(state)
        with suppress(RuntimeError):  # where it was ended, it says so
            torch._C._cuda_endAllocateToPool(index, pool)
        raise
