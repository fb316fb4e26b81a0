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

from boolattn.attention.factors import Factors

if TYPE_CHECKING:
    from torch import Tensor

    from boolattn.attention.boolattn import BoolAttnLayer
    from boolattn.attention.folded import FoldedLayer

#: Tokens of one program.
_TILE = 16


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
def _layer_kernel(
    out, cue, allowed, mask, constants, query, key, wide,
    n_texts, n_tokens, text_stride, head_stride, row_stride,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, HEADS: tl.constexpr,
    N_KERNEL: tl.constexpr, N_INNER: tl.constexpr, INNER: tl.constexpr,
    HEAD_SIZE: tl.constexpr, DIM: tl.constexpr, N_EXTRA: tl.constexpr, EXTRA: tl.constexpr,
    HAS_NOT: tl.constexpr, WINDOW: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write queries and keys with the factors of one operator appended."""
    text, e = tl.program_id(0), tl.program_id(2)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_row = rows < n_tokens
    heads = tl.arange(0, HEADS)
    is_head = heads < N_HEADS
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

    logit = tl.zeros([TILE, HEADS], tl.float32)
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
    is_not = e == (N_OPERATORS - 1 if HAS_NOT else -1)
    if is_not:
        near = _near(cue, rows, is_row, precision, n_tokens, True, WINDOW, BLOCK)
    else:
        near = _near(cue, rows, is_row, precision, n_tokens, False, WINDOW, BLOCK)
    score = tl.zeros([TILE, HEADS], tl.float32)
    score += tl.load(outer_bias + e * N_HEADS + heads, is_head, 0)[None]
    for first in tl.static_range(0, N_INNER, INNER):
        inner = first + tl.arange(0, INNER)
        is_inner = inner < N_INNER
        column = e * N_INNER + inner
        where = is_row[:, None] & is_inner[None]
        value = tl.load(out + rows[:, None] * width + n_taps + column[None], where, 0)
        value = value.to(tl.float32) + tl.load(inner_starts + column, is_inner, 0)[None]
        value += near[:, None] * tl.load(near_weights + column, is_inner, 0)[None]
        value = tl.maximum(value, 0)
        matrix = outer + column[:, None] * N_HEADS + heads[None]
        matrix = tl.load(matrix, is_inner[:, None] & is_head[None], 0)
        kind = out.dtype.element_ty
        score = tl.dot(value.to(kind), matrix.to(kind), score, input_precision="ieee")
    strength = tl.where(score > 20, score, tl.log(1 + tl.exp(tl.minimum(score, 20))))
    # Attention multiplies the factors by its scale.
    weight = tl.where(is_inside, strength * tl.sqrt(HEAD_SIZE * 1.0), 0)
    inside = is_inside.to(tl.float32)
    if is_not:
        inside, weight = tl.full([TILE, HEADS], 1.0, tl.float32), -weight

    # (query or key, batch, tokens, heads, columns)
    n_columns: tl.constexpr = HEAD_SIZE + N_EXTRA
    wide += text.to(tl.int64) * n_tokens * N_HEADS * n_columns
    wide_key = wide + n_texts.to(tl.int64) * n_tokens * N_HEADS * n_columns
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
        opened: Not 0 for open experts. Shape ``(batch, operators)``.
        n_kernel: Taps of the convolution.
        is_bounded: Whether a text's first and last token are never in scope.
    """
    n_texts, n_tokens = mask.shape
    n_channels, n_operators = second.shape
    cue, allowed = out.new_empty(2, n_texts, n_operators, n_tokens, dtype=torch.float32)
    _cue_kernel[(n_texts, triton.cdiv(n_tokens, _TILE))](
        out, mask, opened, second, cue, allowed, n_tokens,
        N_OPERATORS=n_operators, N_CHANNELS=n_channels,
        CHANNELS=triton.next_power_of_2(n_channels), N_KERNEL=n_kernel, IS_BOUNDED=is_bounded,
        TILE=_TILE, BLOCK=_block(n_tokens),
    )  # fmt: skip
    return cue, allowed


class KernelLayer:
    """One layer's weights: one matrix for the hidden state, and packed constants."""

    def __init__(self, layer: BoolAttnLayer, folded: FoldedLayer, precision: Tensor) -> None:
        config, (n_kernel, n_heads, n) = layer.config, folded.shape
        n_inner = folded.second.shape[0] // n
        n_hidden = folded.first.shape[1] - 3 * n - 1
        taps, inner = folded.first.split([n_kernel * n_heads * n, n * n_inner])
        taps = taps.view(n_kernel, n_heads, n, -1).transpose(1, 2)
        inner = inner.view(n, n_inner, -1)
        own = torch.arange(n, device=precision.device)
        weight = torch.cat(
            [taps[..., :n_hidden].flatten(0, 2), inner[..., :n_hidden].flatten(0, 1)]
        )
        starts = torch.cat(
            [taps[..., n_hidden + 2 * n].flatten(), inner[..., n_hidden + 2 * n].flatten()]
        )
        if isinstance(layer.reduce, torch.nn.Linear):
            starts = starts + weight @ layer.reduce.bias.float()
            weight = weight @ layer.reduce.weight.float()
        tap_starts, inner_starts = starts.split([len(starts) - n * n_inner, n * n_inner])
        parts = (
            taps[:, own, :, n_hidden + own].transpose(0, 1),  # indexing moved the operators first
            tap_starts,
            precision,
            inner_starts,
            inner[own, :, n_hidden + 2 * n + 1 + own],
            folded.second.view(n, n_inner, n_heads, n)[own, :, :, own],
            folded.bias.view(n_heads, n).T,
        )
        self.constants = torch.cat([part.flatten() for part in parts]).contiguous()
        self.weight = weight.to(layer.scope.hidden_weight.dtype)
        head_size = layer.head_size
        n_extra = n + -(head_size + n) % 8
        self.n_columns = head_size + n_extra
        self.n_operators = n
        self.options: dict[str, Any] = {
            "N_OPERATORS": n,
            "N_HEADS": n_heads,
            "HEADS": max(16, triton.next_power_of_2(n_heads)),
            "N_KERNEL": n_kernel,
            "N_INNER": n_inner,
            "INNER": max(16, min(64, triton.next_power_of_2(n_inner))),
            "HEAD_SIZE": head_size,
            "DIM": triton.next_power_of_2(head_size),
            "N_EXTRA": n_extra,
            "EXTRA": triton.next_power_of_2(n_extra),
            "HAS_NOT": folded.has_not,
            "WINDOW": config.window,
            "TILE": _TILE,
        }

    def __call__(self, hidden: Tensor, cues: KernelCues, _index: int) -> KernelBias:
        """Compute what needs the hidden state; the kernel runs in attention."""
        return KernelBias(F.linear(hidden, self.weight), cues, self)


@dataclass(frozen=True)
class KernelBias:
    """One layer's bias, before the kernel."""

    out: Tensor
    cues: KernelCues
    layer: KernelLayer

    @cached_property
    def factors(self) -> Factors:
        """The bias as factors."""
        layer, (n_texts, n_tokens) = self.layer, self.cues.mask.shape
        n_heads, head_size = layer.options["N_HEADS"], layer.options["HEAD_SIZE"]
        nothing = self.out.new_zeros(1).expand(n_texts, n_heads, n_tokens, head_size).contiguous()
        query, key = (part[..., head_size:] for part in self.append(nothing, nothing))
        return Factors(query, key, head_size**-0.5)

    def dense(self) -> Tensor:
        """Return the full bias. Shape ``(batch, heads, tokens, tokens)``."""
        return self.factors.dense()

    def append(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys with the factors as extra dimensions."""
        layer = self.layer
        if query.stride() != key.stride() or query.stride(-1) != 1:
            query, key = query.contiguous(), key.contiguous()
        n_texts, n_heads, n_tokens, _ = query.shape
        wide = query.new_empty(2, n_texts, n_tokens, n_heads, layer.n_columns)
        _layer_kernel[(n_texts, triton.cdiv(n_tokens, _TILE), layer.n_operators)](
            self.out, self.cues.cue, self.cues.allowed, self.cues.mask, layer.constants,
            query, key, wide, n_texts, n_tokens, *query.stride()[:3],
            **layer.options, BLOCK=_block(n_tokens),
        )  # fmt: skip
        query, key = wide.transpose(2, 3).unbind()
        return query, key


def _block(n_tokens: int) -> int:
    """Tokens that a program reads at once when it goes over a text."""
    return min(1024, triton.next_power_of_2(n_tokens))
