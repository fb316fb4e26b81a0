"""Triton kernels of the folded experts, for encoding on a GPU.

The first finds the cues of a batch; the second computes one layer's scopes and strengths and
writes queries and keys with the factors appended. Around each is one matrix product of torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from boolattn.attention.factors import AttentionBias, Factors

if TYPE_CHECKING:
    from torch import Tensor

    from boolattn.attention.boolattn import BoolAttnLayer
    from boolattn.attention.folded import FoldedLayer

#: Tokens of one program.
_TILE = 16
#: Heads of one program that writes a dense bias.
_GROUP = 4
_MOST_COMPILED = 4096


@triton.jit
def _cue_kernel(
    out, mask, opened, second, cue, allowed,
    n_tokens,
    N_OPERATORS: tl.constexpr, N_CHANNELS: tl.constexpr, CHANNELS: tl.constexpr,
    N_KERNEL: tl.constexpr, IS_BOUNDED: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write cues, and tokens that can be in an open scope: ``(batch, operators, tokens)``."""
    text = tl.program_id(0)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_row = rows < n_tokens
    width = N_KERNEL * N_CHANNELS + N_OPERATORS
    out += text * n_tokens * width
    mask += text * n_tokens
    channels = tl.arange(0, CHANNELS)
    context = tl.zeros([TILE, CHANNELS], tl.float32)
    for k in tl.static_range(N_KERNEL):
        at = rows + k - N_KERNEL // 2
        is_token = (at >= 0) & (at < n_tokens)
        is_token = is_token & (tl.load(mask + at, is_token, 0) != 0)
        where = is_token[:, None] & (channels < N_CHANNELS)[None]
        tap = out + at[:, None] * width + k * N_CHANNELS + channels[None]
        context += tl.load(tap, where, 0).to(tl.float32)
    context = tl.maximum(context, 0)
    is_token = is_row & (tl.load(mask + rows, is_row, 0) != 0)
    scopable = is_token
    if IS_BOUNDED:
        # All tokens but the first and the last.
        first, last = n_tokens, 0
        for start in range(0, n_tokens, BLOCK):
            token = start + tl.arange(0, BLOCK)
            found = tl.load(mask + token, token < n_tokens, 0) != 0
            first = tl.minimum(first, tl.min(tl.where(found, token, n_tokens)))
            last = tl.maximum(last, tl.max(tl.where(found, token, 0)))
        scopable = is_token & (rows != first) & (rows != last)
    for e in tl.static_range(N_OPERATORS):
        weight = tl.load(second + channels * N_OPERATORS + e, channels < N_CHANNELS, 0)
        logit = tl.sum(context * weight.to(tl.float32)[None], 1)
        own = out + rows * width + N_KERNEL * N_CHANNELS + e
        logit += tl.load(own, is_row, 0).to(tl.float32)
        to = (text * N_OPERATORS + e) * n_tokens + rows
        tl.store(cue + to, tl.where(is_token, tl.sigmoid(logit), 0), is_row)
        is_open = tl.load(opened + text * N_OPERATORS + e).to(tl.float32)
        tl.store(allowed + to, scopable.to(tl.float32) * is_open, is_row)


@triton.jit
def _near(cue, rows, is_row, precision, n_tokens, IS_NOT: tl.constexpr, WINDOW: tl.constexpr,
          BLOCK: tl.constexpr):  # fmt: skip
    """Return position weights; only cues whose weight is not 0 in float32 are compared."""
    near = tl.zeros_like(rows).to(tl.float32)
    if IS_NOT:
        reach = tl.minimum(n_tokens - 1, (tl.sqrt(104.0 / precision) + 1).to(tl.int32))
        for back in range(0, reach + 1):
            at = rows - back
            probability = tl.load(cue + at, is_row & (at >= 0), 0)
            near = tl.maximum(near, probability * tl.exp(-precision * back * back))
    else:
        for offset in tl.static_range(-WINDOW, WINDOW + 1):
            at = rows + offset
            probability = tl.load(cue + at, is_row & (at >= 0) & (at < n_tokens), 0)
            near = tl.maximum(near, probability * tl.exp(-precision * offset * offset))
        most = 0.0
        for start in range(0, n_tokens, BLOCK):
            token = start + tl.arange(0, BLOCK)
            most = tl.maximum(most, tl.max(tl.load(cue + token, token < n_tokens, 0)))
        near = tl.maximum(near, most * tl.exp(-precision * WINDOW * WINDOW))
    return near


@triton.jit
def _expert(
    out, cue, allowed, mask, constants, text, e, is_not, rows, heads, is_head, n_tokens,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, N_KERNEL: tl.constexpr,
    N_INNER: tl.constexpr, INNER: tl.constexpr, WINDOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return one operator's scope and its strength in scope, ``(rows, heads)`` each."""
    is_row = rows < n_tokens
    n_taps: tl.constexpr = N_KERNEL * N_OPERATORS * N_HEADS
    width: tl.constexpr = n_taps + N_OPERATORS * N_INNER
    out += text.to(tl.int64) * n_tokens * width
    cue += (text * N_OPERATORS + e) * n_tokens
    allowed += (text * N_OPERATORS + e) * n_tokens
    mask += text * n_tokens
    # Constants: cue weights and starts of the taps, precision, then the bias predictor's.
    starts = constants + n_taps
    precisions = starts + n_taps
    inner_starts = precisions + N_OPERATORS
    near_weights = inner_starts + N_OPERATORS * N_INNER
    outer = near_weights + N_OPERATORS * N_INNER
    outer_bias = outer + N_OPERATORS * N_INNER * N_HEADS

    logit = rows[:, None] * 0.0 + heads[None] * 0.0
    score = logit + tl.load(outer_bias + e * N_HEADS + heads, is_head, 0)[None]
    for k in tl.static_range(N_KERNEL):
        at = rows + k - N_KERNEL // 2
        is_token = (at >= 0) & (at < n_tokens)
        is_token = is_token & (tl.load(mask + at, is_token, 0) != 0)
        column = (k * N_OPERATORS + e) * N_HEADS + heads
        where = is_token[:, None] & is_head[None]
        tap = tl.load(out + at[:, None] * width + column[None], where, 0).to(tl.float32)
        probability = tl.load(cue + at, is_token, 0)
        tap += probability[:, None] * tl.load(constants + column, is_head, 0)[None]
        tap += tl.load(starts + column, is_head, 0)[None]
        logit += tl.where(where, tap, 0)
    is_inside = (logit > 0) & (tl.load(allowed + rows, is_row, 0) != 0)[:, None]

    precision = tl.load(precisions + e)
    if is_not:
        near = _near(cue, rows, is_row, precision, n_tokens, True, WINDOW, BLOCK)
    else:
        near = _near(cue, rows, is_row, precision, n_tokens, False, WINDOW, BLOCK)
    for first in tl.static_range(0, N_INNER, INNER):
        inner = first + tl.arange(0, INNER)
        is_inner = inner < N_INNER
        place = e * N_INNER + inner
        there = is_row[:, None] & is_inner[None]
        value = tl.load(out + rows[:, None] * width + n_taps + place[None], there, 0)
        value = value.to(tl.float32) + tl.load(inner_starts + place, is_inner, 0)[None]
        value += near[:, None] * tl.load(near_weights + place, is_inner, 0)[None]
        value = tl.maximum(value, 0)
        matrix = outer + place[:, None] * N_HEADS + heads[None]
        matrix = tl.load(matrix, is_inner[:, None] & is_head[None], 0)
        kind = out.dtype.element_ty
        score = tl.dot(value.to(kind), matrix.to(kind), score, input_precision="ieee")
    strength = tl.where(score > 20, score, tl.log(1 + tl.exp(tl.minimum(score, 20))))
    return is_inside.to(tl.float32), tl.where(is_inside, strength, 0)


@triton.jit
def _wide_kernel(
    out, cue, allowed, mask, constants, query, key, wide,
    n_tokens, text_stride, head_stride, row_stride,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, HEADS: tl.constexpr,
    N_KERNEL: tl.constexpr, N_INNER: tl.constexpr, INNER: tl.constexpr,
    HAS_NOT: tl.constexpr, WINDOW: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    HEAD_SIZE: tl.constexpr, DIM: tl.constexpr, N_EXTRA: tl.constexpr, EXTRA: tl.constexpr,
):  # fmt: skip
    """Write queries and keys with the factors of one operator appended."""
    text, e = tl.program_id(0), tl.program_id(2)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_row = rows < n_tokens
    heads = tl.arange(0, HEADS)
    is_head = heads < N_HEADS
    is_not = e == (N_OPERATORS - 1 if HAS_NOT else -1)
    inside, weight = _expert(
        out, cue, allowed, mask, constants, text, e, is_not, rows, heads, is_head, n_tokens,
        N_OPERATORS, N_HEADS, N_KERNEL, N_INNER, INNER, WINDOW, BLOCK,
    )  # fmt: skip
    # Attention multiplies the factors by its scale.
    weight *= tl.sqrt(HEAD_SIZE * 1.0)
    if is_not:
        inside, weight = inside * 0 + 1, -weight

    # Both outputs are of the shape batch, tokens, heads, columns.
    n_columns: tl.constexpr = HEAD_SIZE + N_EXTRA
    wide_key = wide + tl.num_programs(0).to(tl.int64) * n_tokens * N_HEADS * n_columns
    wide += text.to(tl.int64) * n_tokens * N_HEADS * n_columns
    wide_key += text.to(tl.int64) * n_tokens * N_HEADS * n_columns
    to = (rows[:, None] * N_HEADS + heads[None]) * n_columns + HEAD_SIZE + e
    where = is_row[:, None] & is_head[None]
    tl.store(wide + to, inside.to(wide.dtype.element_ty), where)
    tl.store(wide_key + to, weight.to(wide.dtype.element_ty), where)
    # Each operator's program copies its share of the heads.
    columns, extra = tl.arange(0, DIM), tl.arange(0, EXTRA)
    is_column = is_row[:, None] & (columns < HEAD_SIZE)[None]
    is_padding = is_row[:, None] & ((extra >= N_OPERATORS) & (extra < N_EXTRA))[None]
    nothing = tl.zeros([TILE, EXTRA], wide.dtype.element_ty)
    for head in range(e, N_HEADS, N_OPERATORS):
        source = text.to(tl.int64) * text_stride + head * head_stride
        source += rows[:, None] * row_stride + columns[None]
        row = (rows[:, None] * N_HEADS + head) * n_columns
        tl.store(wide + row + columns[None], tl.load(query + source, is_column, 0), is_column)
        tl.store(wide_key + row + columns[None], tl.load(key + source, is_column, 0), is_column)
        tl.store(wide + row + HEAD_SIZE + extra[None], nothing, is_padding)
        tl.store(wide_key + row + HEAD_SIZE + extra[None], nothing, is_padding)


@triton.jit
def _column(values, heads, head):
    """Return one head's column."""
    return tl.sum(tl.where((heads == head)[None], values, 0), 1)


@triton.jit
def _dense_kernel(
    out, cue, allowed, mask, constants, pairs, bias,
    n_tokens, text_stride, row_stride, column_stride, width, lowest,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, HEADS: tl.constexpr,
    N_KERNEL: tl.constexpr, N_INNER: tl.constexpr, INNER: tl.constexpr,
    HAS_NOT: tl.constexpr, WINDOW: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    GROUP: tl.constexpr, HAS_PAIRS: tl.constexpr,
):  # fmt: skip
    """Write the bias of some heads of one short text, with the mask of pairs in it."""
    text, group = tl.program_id(0), tl.program_id(1)
    rows = tl.arange(0, TILE)
    lane = tl.arange(0, HEADS)
    heads = group * GROUP + lane
    is_head = (lane < GROUP) & (heads < N_HEADS)
    is_pair = (rows < n_tokens)[:, None] & (rows < n_tokens)[None]
    is_seen = is_pair
    if HAS_PAIRS:
        place = rows[:, None] * row_stride + rows[None] * column_stride
        is_seen = tl.load(pairs + text.to(tl.int64) * text_stride + place, is_pair, 0) != 0
    n_mutual: tl.constexpr = N_OPERATORS - 1 if HAS_NOT else N_OPERATORS
    if n_mutual > 0:
        inside, weight = _expert(
            out, cue, allowed, mask, constants, text, 0, False, rows, heads, is_head, n_tokens,
            N_OPERATORS, N_HEADS, N_KERNEL, N_INNER, INNER, WINDOW, BLOCK,
        )  # fmt: skip
    if n_mutual > 1:
        inside_2, weight_2 = _expert(
            out, cue, allowed, mask, constants, text, 1, False, rows, heads, is_head, n_tokens,
            N_OPERATORS, N_HEADS, N_KERNEL, N_INNER, INNER, WINDOW, BLOCK,
        )  # fmt: skip
    if HAS_NOT:
        _, negative = _expert(
            out, cue, allowed, mask, constants, text, n_mutual, True, rows, heads, is_head,
            n_tokens, N_OPERATORS, N_HEADS, N_KERNEL, N_INNER, INNER, WINDOW, BLOCK,
        )  # fmt: skip
    for i in tl.static_range(GROUP):
        head = group * GROUP + i
        total = tl.zeros([TILE, TILE], tl.float32)
        if n_mutual > 0:
            total += _column(inside, heads, head)[:, None] * _column(weight, heads, head)[None]
        if n_mutual > 1:
            total += _column(inside_2, heads, head)[:, None] * _column(weight_2, heads, head)[None]
        if HAS_NOT:
            total -= _column(negative, heads, head)[None]
        total = tl.where(is_seen, total, lowest)
        to = (text.to(tl.int64) * N_HEADS + head) * n_tokens * width
        to += rows[:, None] * width + rows[None]
        tl.store(bias + to, total.to(bias.dtype.element_ty), is_pair & (head < N_HEADS))


#: Compiled kernels by what Triton compiles them for.
_COMPILED: dict[tuple[object, ...], Any] = {}


def _launch(
    kernel: Any,
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
    if compiled is None:
        if len(_COMPILED) > _MOST_COMPILED:
            _COMPILED.clear()
        _COMPILED[key] = kernel[grid](*args, *constants, num_warps=n_warps)
    else:
        compiled[grid](*args, *constants)


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
    n_channel_lanes = triton.next_power_of_2(n_channels)
    constants = (n, n_channels, n_channel_lanes, n_kernel, is_bounded, _TILE, _block(n_tokens))
    _launch(_cue_kernel, (n_texts, triton.cdiv(n_tokens, _TILE), 1), args, constants)
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
        n_lanes = max(16, triton.next_power_of_2(n_inner))
        self._sizes = (n_kernel, n_inner, min(64, n_lanes), folded.has_not, layer.config.window)

    def wide_constants(self, n_tokens: int) -> tuple[Any, ...]:
        """Return the constants of the kernel for any text."""
        n_lanes = max(16, triton.next_power_of_2(self.n_heads))
        dims = (self.head_size, self.n_extra)
        dim, n_extra = ((n, triton.next_power_of_2(n)) for n in dims)
        first = (self.n_operators, self.n_heads, n_lanes, *self._sizes)
        return (*first, _block(n_tokens), _TILE, *dim, *n_extra)

    def dense_constants(self, n_tokens: int, *, has_pairs: bool) -> tuple[Any, ...]:
        """Return the constants of the kernel for short texts."""
        tile = max(16, triton.next_power_of_2(n_tokens))
        first = (self.n_operators, self.n_heads, 16, *self._sizes)
        return (*first, _block(n_tokens), tile, _GROUP, has_pairs)

    def __call__(self, hidden: Tensor, cues: KernelCues, _index: int) -> KernelBias:
        """Compute what needs the hidden state; the kernel runs in attention."""
        return KernelBias(F.linear(hidden, self.weight), cues, self)


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
        grid = (n_texts, triton.cdiv(n_tokens, _TILE), layer.n_operators)
        _launch(_wide_kernel, grid, args, layer.wide_constants(n_tokens))
        return wide[0].transpose(1, 2), wide[1].transpose(1, 2)

    def masked(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return the full bias with the mask in it. ``(batch, heads, tokens, tokens)``."""
        if mask is not None and (mask.dtype != torch.bool or mask.shape[1] != 1):
            return super().masked(mask, dtype)
        layer, (n_texts, n_tokens) = self.layer, self.cues.mask.shape
        width = -(-n_tokens // 8) * 8  # fused attention needs aligned rows
        bias = self.out.new_empty(n_texts, layer.n_heads, n_tokens, width, dtype=dtype)
        pairs = self.cues.mask if mask is None else mask.expand(n_texts, 1, n_tokens, n_tokens)
        strides = (0, 0, 0) if mask is None else (pairs.stride(0), *pairs.stride()[2:])
        lowest = torch.finfo(dtype).min
        args = (*self._inputs(), pairs, bias, n_tokens, *strides, width, lowest)
        grid = (n_texts, triton.cdiv(layer.n_heads, _GROUP), 1)
        constants = layer.dense_constants(n_tokens, has_pairs=mask is not None)
        _launch(_dense_kernel, grid, args, constants, 8 if n_tokens > 32 else 4)
        return bias[..., :n_tokens]

    def _inputs(self) -> tuple[Tensor, ...]:
        cues = self.cues
        return self.out, cues.cue, cues.allowed, cues.mask, self.layer.constants


def _block(n_tokens: int) -> int:
    """Tokens that a program reads at once when it goes over a text."""
    return min(1024, triton.next_power_of_2(n_tokens))
