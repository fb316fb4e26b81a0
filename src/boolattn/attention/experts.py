"""The experts in few operations with gradients, for training.

All layers' weights are put together once a pass, as in ``folded``, and one function computes the
factors of a layer's bias from one matrix product, with a backward pass written by hand, on a GPU as
kernels (``gpu.training``). Values and gradients are those of
:class:`~boolattn.attention.layer.BoolAttnLayer`, the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.append import Append, Shared, Sizes
from boolattn.attention.factors import AttentionBias, Factors
from boolattn.attention.folding import kernels
from boolattn.attention.position import position_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.attention.layer import BoolAttnLayer, CueState


#: Features and columns of a matrix are padded to a multiple of this, or its product is slow.
_ALIGNED = 8


class Expert(NamedTuple):
    """One layer's weights.

    Attributes:
        first: Scope taps ``(kernel, operators, heads)``, then the experts' first layers, then
            zeros. Shape ``(columns, features + around + operators)``.
        second: For each operator its second layer ``(inner, heads)``, its constants ``(heads,)``,
            the threshold of a scope's probability, then zeros.
    """

    first: Tensor
    second: Tensor


@dataclass
class ExpertBias(AttentionBias):
    """One layer's bias, before its factors: of what they are computed.

    Attributes:
        out: Product of the inputs and the first matrix, ``(batch, tokens, columns)``.
        second: The layer's other weights.
        shared: What the layers share.
        uniform: Of which noise is made in training, ``(batch, tokens, operators, heads)``.
        sizes: Of the experts.
    """

    out: Tensor
    second: Tensor
    shared: Shared
    uniform: Tensor | None
    sizes: Sizes

    def append(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys with the factors as extra dimensions."""
        function = appender(self.out)
        with torch.autocast(self.out.device.type, enabled=False):
            wide: tuple[Tensor, Tensor] = function.apply(
                *(query, key, self.out, self.second, self.shared.opened),
                *(self.shared, self.uniform, self.sizes),
            )
        return wide

    @cached_property
    def factors(self) -> Factors:
        """The bias as factors."""
        n_texts, n_tokens, _ = self.out.shape
        head_size = self.sizes.head_size
        nothing = self.out.new_zeros(n_texts, self.sizes.n_heads, n_tokens, head_size)
        query, key = (part[..., head_size:] for part in self.append(nothing, nothing))
        return Factors(query, key, head_size**-0.5)


@dataclass(frozen=True)
class ExpertCues:
    """Cues, what the layers share, their weights, and their inputs beside the hidden state."""

    cues: CueState
    shared: Shared
    layers: dict[int, BoolAttnLayer]
    experts: dict[int, Expert]
    rest: dict[int, Tensor]
    sizes: Sizes

    @classmethod
    def find(
        cls, cues: CueState, layers: dict[int, BoolAttnLayer], operators: Tensor
    ) -> ExpertCues:
        """Compute what the layers share, and their weights."""
        own = list(layers.values())
        first, config = own[0], own[0].config
        n, n_features = config.n_operators, first.scope.hidden_weight.shape[1]
        n_zeros = -(n_features + 2 * n + 1) % _ALIGNED
        experts = stack_experts(own, config, operators, n_zeros)
        mask, dtype = cues.mask.contiguous()[..., None], cues.mask.dtype
        parts = [cues.cue.transpose(1, 2).to(dtype), torch.ones_like(mask)]
        around = F.pad(torch.cat(parts, -1), (0, n_zeros))
        allowed = cues.scopable.contiguous()[..., None, None]
        shared = Shared(mask, around, allowed, cues.gate.open.contiguous())
        rest = {}
        if cues.positions:
            near = torch.stack([cues.positions[str(index)] for index in layers])
            rest = dict(zip(layers, _beside(around, near).unbind(), strict=True))
        sizes = Sizes(
            *(n, config.kernel, first.bias.position_weight.shape[1], first.scope.shape[-1]),
            *(first.head_size, config.operators[-1] == "not", config.scope_temperature),
        )
        experts_ = dict(zip(layers, experts, strict=True))
        return cls(cues, shared, layers, experts_, rest, sizes)

    def bias(self, index: int, hidden: Tensor) -> ExpertBias:
        """Compute the bias of layer ``index``; ``hidden`` as in :meth:`BoolAttnLayer.forward`."""
        layer, own, shared = self.layers[index], self.experts[index], self.shared
        if (rest := self.rest.get(index)) is None:
            near = position_weight(layer.config, self.cues.cue, layer.bias.sigma)
            rest = _beside(shared.around, near)
        inputs = torch.cat([layer.reduce(hidden).to(rest.dtype), rest], -1)
        out = F.linear(inputs, own.first)
        uniform = None
        if layer.scope.training and layer.config.use_noise:
            shape = (*hidden.shape[:2], self.sizes.n_operators, self.sizes.n_heads)
            uniform = torch.rand(shape, device=out.device)
        return ExpertBias(out, own.second, shared, uniform, self.sizes)


def _beside(around: Tensor, near: Tensor) -> Tensor:
    """Return what is appended to the hidden state, for one layer or for all."""
    near = near.transpose(-1, -2).to(around.dtype)
    return torch.cat([around.expand(*near.shape[:-1], -1), near], -1)


def appender(out: Tensor) -> type[torch.autograd.Function]:
    """Return the function that appends factors: kernels on a GPU, else torch's operations."""
    if out.is_cuda and out.element_size() <= 4 and (own := kernels("training")) is not None:
        return own.KernelAppend  # type: ignore[no-any-return]
    return Append


def stack_experts(
    layers: Sequence[BoolAttnLayer], config: BoolAttnConfig, operators: Tensor, n_zeros: int
) -> list[Expert]:
    """Return all layers' weights, with gradients, by as many operations as for one layer."""

    def stack(of: Callable[[BoolAttnLayer], Tensor]) -> Tensor:
        return torch.stack([of(layer) for layer in layers])

    def linear(of: Callable[[BoolAttnLayer], nn.Linear]) -> Tensor:
        out = operators @ stack(lambda layer: of(layer).weight).transpose(1, 2)
        if of(layers[0]).bias is None:
            return out
        return out + stack(lambda layer: of(layer).bias)[:, None]

    n, n_kernel = len(operators), config.kernel
    eye = torch.eye(n, device=operators.device, dtype=operators.dtype)
    film = linear(lambda layer: layer.scope.film) / config.scope_temperature
    scale, shift = film.chunk(2, -1)
    shift = torch.addcmul(shift, scale, stack(lambda layer: layer.scope.bias))
    shape = layers[0].scope.shape
    hidden = stack(lambda layer: layer.scope.hidden_weight).unflatten(1, shape)
    cue = (stack(lambda layer: layer.scope.cue_weight) * scale[:, None])[..., None]
    # The constant belongs to the middle tap; a scope does not depend on position weights.
    reach = (n_kernel // 2, n_kernel // 2)
    shift = F.pad(shift[:, None, ..., None], (0, n_zeros + n, *(0, 0) * 2, *reach))
    taps = torch.cat([hidden * scale[:, None, ..., None], cue * eye[:, None], shift], -1)

    near = stack(lambda layer: layer.bias.position_weight)[..., None] * eye[:, None]
    if layers[0].bias.inner is None:
        start = stack(lambda layer: layer.bias.inner_bias)[..., None]
        weight = torch.eye(start.shape[2], device=start.device, dtype=start.dtype)
        weight = weight.expand(len(layers), n, -1, -1)
    else:
        inner: list[Any] = [layer.bias.inner for layer in layers]
        weight = torch.stack([own.weight for own in inner]).unflatten(1, near.shape[1:3])
        start = torch.stack([own.bias for own in inner]).view(*near.shape[:3], 1)
    first = torch.cat([weight, F.pad(start, (n, n_zeros)), near], -1)

    both = torch.cat([taps.flatten(1, 3), first.flatten(1, 2)], 1)
    both = F.pad(both, (0, 0, 0, -both.shape[1] % _ALIGNED))
    factor = torch.sigmoid(linear(lambda layer: layer.bias.operator))[:, :, None]
    outer = stack(lambda layer: layer.bias.outer_weight) * factor
    bias = stack(lambda layer: layer.bias.outer_bias) * factor
    threshold = stack(lambda layer: layer.scope.threshold)[..., None]
    if config.bounded_scope:
        threshold = torch.sigmoid(threshold)
    second = torch.cat([outer.flatten(2), bias.flatten(2), threshold], -1)
    second = F.pad(second, (0, -second.shape[-1] % 4))  # multiples of 16 bytes
    second = second.to(torch.promote_types(second.dtype, torch.float32))
    return [Expert(*own) for own in zip(both.unbind(), second.unbind(), strict=True)]
