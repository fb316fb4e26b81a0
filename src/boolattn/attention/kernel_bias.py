"""The folded experts on a GPU: one matrix product of torch and one Triton kernel for each layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F
from triton import cdiv, next_power_of_2

from boolattn.attention.factors import AttentionBias, Factors
from boolattn.attention.folded import SHORT
from boolattn.attention.kernels import cue_kernel, dense_kernel, wide_kernel

if TYPE_CHECKING:
    from torch import Tensor

    from boolattn.attention.folded import FoldedLayer
    from boolattn.attention.layer import BoolAttnLayer

#: Tokens of one program.
_TILE = 16
#: Heads of one program that writes a dense bias.
_GROUP = 4
_MOST_COMPILED = 4096
#: Compiled kernels by what Triton compiles them for.
_COMPILED: dict[tuple[object, ...], Any] = {}


def _launch(
    kernel: Any,  # noqa: ANN401 - Triton's type
    grid: tuple[int, int, int],
    args: tuple[Any, ...],
    constants: tuple[Any, ...],
    n_warps: int = 4,
) -> None:
    """Launch a kernel; Triton analyses only arguments that it has not seen.

    Its analysis takes longer than the launch. It looks at types, numbers, and whether addresses
    are multiples of 16.
    """
    key = tuple(
        (arg.dtype, arg.data_ptr() % 16) if isinstance(arg, torch.Tensor) else arg for arg in args
    )
    key = (kernel, args[0].device, key, constants)
    compiled = _COMPILED.get(key)
    with torch.cuda.device_of(args[0]):  # Triton launches on the current device
        if compiled is not None:
            compiled[grid](*args, *constants)
            return
        if len(_COMPILED) > _MOST_COMPILED:
            _COMPILED.clear()
        _COMPILED[key] = kernel[grid](*args, *constants, num_warps=n_warps)


@dataclass(frozen=True)
class KernelCues:
    """What the layers of a pass share.

    Attributes:
        mask: Not 0 for tokens. Shape ``(batch, tokens)``.
        cue: Cue probabilities, 0 on padding. Shape ``(batch, operators, tokens)``.
        allowed: 1 for tokens that can be in the scope of an open expert. Same shape.
        layers: The layers' weights.
    """

    mask: Tensor
    cue: Tensor
    allowed: Tensor
    layers: dict[int, KernelLayer]

    def bias(self, index: int, hidden: Tensor) -> KernelBias:
        """Compute what needs the hidden state of layer ``index``; attention runs the kernel."""
        layer = self.layers[index]
        return KernelBias(F.linear(hidden, layer.weight), self, layer)


def find_cues(
    out: Tensor, second: Tensor, mask: Tensor, opened: Tensor, n_kernel: int, *, is_bounded: bool
) -> tuple[Tensor, Tensor]:
    """Return cue probabilities and allowed tokens, as in :class:`KernelCues`.

    Args:
        out: Of the cue predictor's first matrix: taps, then operators.
        second: Its second matrix. Shape ``(channels, operators)``.
        mask: Not 0 for tokens. Shape ``(batch, tokens)``.
        opened: 1 for open experts. Shape ``(batch, operators)``.
        n_kernel: Taps of the convolution.
        is_bounded: Whether a text's first and last token are never in scope.
    """
    n_texts, n_tokens = mask.shape
    n_channels, n = second.shape
    cue, allowed = out.new_empty(2, n_texts, n, n_tokens, dtype=torch.float32)
    args = (out, mask, opened, second, cue, allowed, n_tokens)
    n_channel_lanes = next_power_of_2(n_channels)
    constants = (n, n_channels, n_channel_lanes, n_kernel, is_bounded, _TILE, _block(n_tokens))
    _launch(cue_kernel, (n_texts, cdiv(n_tokens, _TILE), 1), args, constants)
    return cue, allowed


class KernelLayer:
    """One layer's weights: one matrix for the hidden state, and packed constants."""

    def __init__(self, layer: BoolAttnLayer, folded: FoldedLayer, precision: Tensor) -> None:
        n_kernel, n_heads, n = folded.shape
        n_inner, head_size = folded.second.shape[0] // n, layer.head_size
        n_hidden = folded.first.shape[1] - 3 * n - 1
        taps, inner = folded.first.split([n_kernel * n_heads * n, n * n_inner])
        taps = taps.view(n_kernel, n_heads, n, -1).transpose(1, 2)
        inner = inner.view(n, n_inner, -1)
        both = torch.cat([taps.flatten(0, 2), inner.flatten(0, 1)])
        weight, starts = both[:, :n_hidden], both[:, n_hidden + 2 * n]
        if isinstance(layer.reduce, torch.nn.Linear):
            starts = starts + weight @ layer.reduce.bias.float()
            weight = weight @ layer.reduce.weight.float()
        tap_starts, inner_starts = starts.split([len(starts) - n * n_inner, n * n_inner])
        own = torch.arange(n, device=precision.device)
        parts = (
            taps[:, own, :, n_hidden + own].transpose(0, 1),  # indexing moved the operators first
            tap_starts,
            precision,
            inner_starts,
            inner[own, :, n_hidden + 2 * n + 1 + own],
            folded.second.view(n, n_inner, n_heads, n)[own, :, :, own],
            folded.bias.view(n_heads, n).T,
        )
        self.constants = torch.cat([part.flatten() for part in parts])
        self.weight = weight.to(layer.scope.hidden_weight.dtype)
        self.n_operators, self.n_heads, self.head_size = n, n_heads, head_size
        self.n_extra = n + -(head_size + n) % 8  # fused attention needs multiples of 8
        n_lanes = max(16, next_power_of_2(n_inner))
        self._sizes = (n_kernel, n_inner, min(64, n_lanes), folded.has_not, layer.config.window)

    def wide_constants(self, n_tokens: int) -> tuple[Any, ...]:
        """Return the constants of the kernel for any text."""
        n_lanes = max(16, next_power_of_2(self.n_heads))
        dims = (self.head_size, self.n_extra)
        dim, n_extra = ((n, next_power_of_2(n)) for n in dims)
        first = (self.n_operators, self.n_heads, n_lanes, *self._sizes)
        return (*first, _block(n_tokens), _TILE, *dim, *n_extra)

    def dense_constants(self, n_tokens: int, *, has_pairs: bool) -> tuple[Any, ...]:
        """Return the constants of the kernel for short texts."""
        tile = max(16, next_power_of_2(n_tokens))
        first = (self.n_operators, self.n_heads, 16, *self._sizes)
        return (*first, _block(n_tokens), tile, _GROUP, has_pairs)


@dataclass(frozen=True)
class KernelBias(AttentionBias):
    """One layer's bias, before the kernel."""

    out: Tensor
    cues: KernelCues
    layer: KernelLayer
    is_fused = True

    @cached_property
    def factors(self) -> Factors:
        """The bias as factors."""
        layer, (n_texts, n_tokens) = self.layer, self.cues.mask.shape
        shape = (n_texts, layer.n_heads, n_tokens, layer.head_size)
        nothing = self.out.new_zeros(shape)
        query, key = (part[..., layer.head_size :] for part in self.append(nothing, nothing))
        return Factors(query, key, layer.head_size**-0.5)

    def append(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys with the factors as extra dimensions."""
        layer = self.layer
        if query.stride() != key.stride() or query.stride(-1) != 1:
            query, key = query.contiguous(), key.contiguous()
        n_texts, n_heads, n_tokens, head_size = query.shape
        wide = query.new_empty(2, n_texts, n_tokens, n_heads, head_size + layer.n_extra)
        args = (*self._inputs(), query, key, wide, n_tokens, *query.stride()[:3])
        grid = (n_texts, cdiv(n_tokens, _TILE), layer.n_operators)
        _launch(wide_kernel, grid, args, layer.wide_constants(n_tokens))
        return wide[0].transpose(1, 2), wide[1].transpose(1, 2)

    def masked(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return the full bias with the mask in it. ``(batch, heads, tokens, tokens)``."""
        layer, (n_texts, n_tokens) = self.layer, self.cues.mask.shape
        is_plain = mask is None or (mask.dtype == torch.bool and mask.shape[1:2] == (1,))
        if not is_plain or n_tokens > SHORT:  # a program holds all pairs of a text
            return super().masked(mask, dtype)
        width = -(-n_tokens // 8) * 8  # fused attention needs aligned rows
        bias = self.out.new_empty(n_texts, layer.n_heads, n_tokens, width, dtype=dtype)
        pairs = self.cues.mask if mask is None else mask.expand(n_texts, 1, n_tokens, n_tokens)
        strides = (0, 0, 0) if mask is None else (pairs.stride(0), *pairs.stride()[2:])
        lowest = torch.finfo(dtype).min
        args = (*self._inputs(), pairs, bias, n_tokens, *strides, width, lowest)
        grid = (n_texts, cdiv(layer.n_heads, _GROUP), 1)
        constants = layer.dense_constants(n_tokens, has_pairs=mask is not None)
        _launch(dense_kernel, grid, args, constants, 8 if n_tokens > 32 else 4)
        return bias[..., :n_tokens]

    def _inputs(self) -> tuple[Tensor, ...]:
        cues = self.cues
        return self.out, cues.cue, cues.allowed, cues.mask, self.layer.constants


def _block(n_tokens: int) -> int:
    """Tokens that a program reads at once when it goes over a text."""
    return min(1024, int(next_power_of_2(n_tokens)))
