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
from torch import Tensor
from torch.nn import functional as F

from boolattn.attention.append import Append, Shared, Sizes
from boolattn.attention.factors import AttentionBias, Factors
from boolattn.attention.folding import kernels
from boolattn.attention.position import position_weight

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def near_function(cue: Tensor) -> type[torch.autograd.Function] | None:
    """Return the function that computes position weights by kernels, on a GPU."""
    own = kernels("training") if cue.is_cuda and cue.dtype == torch.float32 else None
    return None if own is None else own.KernelNear


def stack_experts(
    layers: Sequence[BoolAttnLayer], config: BoolAttnConfig, operators: Tensor, n_zeros: int
) -> list[Expert]:
    """Return all layers' weights, with gradients, by as many operations as for one layer."""
    n, n_layers, shape = len(operators), len(layers), layers[0].scope.shape
    zero = operators.new_zeros(1)

    def zeros(*size: int) -> Tensor:
        return zero.expand(n_layers, *size)

    # Small parameters as one tensor: one operation forward and one backward.
    small = [_small(layer) for layer in layers]
    flat = torch.cat([part.flatten() for own in small for part in own]).view(n_layers, -1)
    parts = flat.split([part.numel() for part in small[0]], 1)
    own = [part.unflatten(1, like.shape) for part, like in zip(parts, small[0], strict=True)]
    constant, cue, threshold, near, start, outer, bias = own
    # FiLM's scale and shift, and the operator factor: each ``(layers, operators, heads)``.
    linear: list[Any] = [own for one in layers for own in (one.scope.film, one.bias.operator)]
    offsets = [zero.expand(shape[-1]) if own.bias is None else own.bias for own in linear]
    film = F.linear(operators, torch.cat([own.weight for own in linear]), torch.cat(offsets))
    scale, shift, factor = film.view(n, n_layers, 3, -1).transpose(0, 1).unbind(2)
    if config.scope_temperature != 1:
        scale, shift = scale / config.scope_temperature, shift / config.scope_temperature

    hidden = torch.stack([layer.scope.hidden_weight for layer in layers]).unflatten(1, shape)
    taps = torch.cat([hidden, torch.diag_embed(cue.transpose(2, 3), 0, -3, -1)], -1)
    # The constant belongs to the middle tap; a scope does not depend on position weights.
    reach, shift = config.kernel // 2, torch.addcmul(shift, scale, constant)
    shift = F.pad(shift[:, None, ..., None], (0, 0, 0, 0, 0, 0, reach, reach))
    taps = torch.cat([taps * scale[:, None, ..., None], shift, zeros(*shape, n_zeros + n)], -1)

    if layers[0].bias.inner is None:
        weight = torch.eye(start.shape[2], device=start.device, dtype=start.dtype)
        weight = weight.expand(n_layers, n, -1, -1)
    else:
        inner: list[Any] = [layer.bias.inner for layer in layers]
        weight = torch.stack([own.weight for own in inner]).unflatten(1, near.shape[1:])
    size, near = tuple(start.shape[1:]), torch.diag_embed(near.transpose(1, 2), 0, -3, -1)
    rows = [weight, zeros(*size, n), start[..., None], zeros(*size, n_zeros), near]
    taps, first = taps.flatten(1, 3), torch.cat(rows, -1).flatten(1, 2)
    n_rows, n_columns = taps.shape[1] + first.shape[1], first.shape[2]
    both = torch.cat([taps, first, zeros(-n_rows % _ALIGNED, n_columns)], 1)

    outer = (torch.cat([outer, bias], 2) * torch.sigmoid(factor)[:, :, None]).flatten(2)
    if config.bounded_scope:
        threshold = torch.sigmoid(threshold)
    n_rest = -(outer.shape[2] + 1) % 4  # multiples of 16 bytes
    second = torch.cat([outer, threshold[..., None], zeros(n, n_rest)], -1)
    second = second.to(torch.promote_types(second.dtype, torch.float32))
    return [Expert(*own) for own in zip(both.unbind(), second.unbind(), strict=True)]


def _small(layer: BoolAttnLayer) -> tuple[Tensor, ...]:
    """Return a layer's small parameters."""
    scope, bias = layer.scope, layer.bias
    first = bias.inner_bias if bias.inner is None else bias.inner.bias
    start = first.view(bias.position_weight.shape)
    return (
        *(scope.bias, scope.cue_weight, scope.threshold, bias.position_weight),
        *(start, bias.outer_weight, bias.outer_bias),
    )
