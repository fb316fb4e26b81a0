"""Triton kernels of the folded experts, for encoding on a GPU; launched by ``kernel_bias``.

The first two find the cues of a batch and all layers' position weights. The third writes one
layer's strengths; the last runs the attention of short texts with the bias, of large experts after
the third.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def cue_kernel(
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
            is_text = tl.load(mask + token, token < n_tokens, 0) != 0
            first = tl.minimum(first, tl.min(tl.where(is_text, token, n_tokens)))
            last = tl.maximum(last, tl.max(tl.where(is_text, token, 0)))
        scopable = is_token & (rows != first) & (rows != last)
    for e in tl.static_range(N_OPERATORS):
        weight = tl.load(second + channels * N_OPERATORS + e, channels < N_CHANNELS, 0)
        logit = tl.sum(context * weight.to(tl.float32)[None], 1)
        direct = out + rows * width + N_KERNEL * N_CHANNELS + e
        logit += tl.load(direct, is_row, 0).to(tl.float32)
        to = (text * N_OPERATORS + e) * n_tokens + rows
        tl.store(cue + to, tl.where(is_token, tl.sigmoid(logit), 0), is_row)
        is_open = tl.load(opened + text * N_OPERATORS + e).to(tl.float32)
        tl.store(allowed + to, scopable.to(tl.float32) * is_open, is_row)


@triton.jit
def near_kernel(
    cue, precisions, out,
    n_tokens,
    N_OPERATORS: tl.constexpr, WINDOW: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write all layers' position weights, ``(layers, batch, operators, tokens)``.

    Only cues whose weight is not 0 in float32 are compared.
    """
    text, expert = tl.program_id(0), tl.program_id(2)
    e = expert % N_OPERATORS
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_row = rows < n_tokens
    precision = tl.load(precisions + expert)
    cue += (text * N_OPERATORS + e) * n_tokens
    near = tl.zeros_like(rows).to(tl.float32)
    if e == N_OPERATORS - 1:  # NOT
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
    # Every layer starts at a multiple of 4 texts, and so of 16 bytes.
    layer = (expert // N_OPERATORS).to(tl.int64) * ((tl.num_programs(0) + 3) // 4 * 4)
    to = ((layer + text) * N_OPERATORS + e) * n_tokens + rows
    tl.store(out + to, near, is_row)


@triton.jit
def _expert(
    out, cue, allowed, mask, near, constants, text, e, rows, heads, is_head, n_tokens,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, WIDTH: tl.constexpr,
    N_KERNEL: tl.constexpr, N_INNER: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Return one operator's scope and its strength in scope, ``(rows, heads)`` each."""
    is_row = rows < n_tokens
    n_taps: tl.constexpr = N_KERNEL * N_OPERATORS * N_HEADS
    out += text.to(tl.int64) * n_tokens * WIDTH
    offset = (text * N_OPERATORS + e) * n_tokens
    cue += offset
    allowed += offset
    mask += text * n_tokens
    # Constants: cue weights and starts of the taps, the bias predictor's, then the factors.
    starts = constants + n_taps
    inner_starts = starts + n_taps
    near_weights = inner_starts + N_OPERATORS * N_INNER
    outer = near_weights + N_OPERATORS * N_INNER
    outer_bias = outer + N_OPERATORS * N_INNER * N_HEADS
    factors = outer_bias + N_OPERATORS * N_HEADS

    logit = rows[:, None] * 0.0 + heads[None] * 0.0
    score = logit + tl.load(outer_bias + e * N_HEADS + heads, is_head, 0)[None]
    for k in tl.static_range(N_KERNEL):
        at = rows + k - N_KERNEL // 2
        is_token = (at >= 0) & (at < n_tokens)
        is_token = is_token & (tl.load(mask + at, is_token, 0) != 0)
        column = (k * N_OPERATORS + e) * N_HEADS + heads
        where = is_token[:, None] & is_head[None]
        tap = tl.load(out + at[:, None] * WIDTH + column[None], where, 0).to(tl.float32)
        probability = tl.load(cue + at, is_token, 0)
        tap += probability[:, None] * tl.load(constants + column, is_head, 0)[None]
        tap += tl.load(starts + column, is_head, 0)[None]
        logit += tl.where(where, tap, 0)
    is_inside = (logit > 0) & (tl.load(allowed + rows, is_row, 0) != 0)[:, None]

    position = tl.load(near + offset + rows, is_row, 0)
    for first in tl.static_range(0, N_INNER, INNER):
        inner = first + tl.arange(0, INNER)
        is_inner = inner < N_INNER
        channel = e * N_INNER + inner
        there = is_row[:, None] & is_inner[None]
        value = tl.load(out + rows[:, None] * WIDTH + n_taps + channel[None], there, 0)
        value = value.to(tl.float32) + tl.load(inner_starts + channel, is_inner, 0)[None]
        value += position[:, None] * tl.load(near_weights + channel, is_inner, 0)[None]
        value = tl.maximum(value, 0)
        matrix = outer + channel[:, None] * N_HEADS + heads[None]
        matrix = tl.load(matrix, is_inner[:, None] & is_head[None], 0)
        kind = out.dtype.element_ty
        score = tl.dot(value.to(kind), matrix.to(kind), score, input_precision="ieee")
    strength = tl.where(score > 20, score, tl.log(1 + tl.exp(tl.minimum(score, 20))))
    strength *= tl.load(factors + e * N_HEADS + heads, is_head, 0)[None]
    return is_inside.to(tl.float32), tl.where(is_inside, strength, 0)


@triton.jit
def scope_kernel(
    out, cue, allowed, mask, near, constants, scopes,
    n_tokens,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, WIDTH: tl.constexpr,
    N_KERNEL: tl.constexpr, N_INNER: tl.constexpr, INNER: tl.constexpr,
    HEADS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write strengths, -3e38 out of scope: ``(batch, operators, heads, tokens)``."""
    text, e = tl.program_id(0), tl.program_id(2)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    heads = tl.arange(0, HEADS)
    is_head = heads < N_HEADS
    inside, weight = _expert(
        out, cue, allowed, mask, near, constants, text, e, rows, heads, is_head, n_tokens,
        N_OPERATORS, N_HEADS, WIDTH, N_KERNEL, N_INNER, INNER,
    )  # fmt: skip
    to = ((text * N_OPERATORS + e) * N_HEADS + heads[None]) * n_tokens + rows[:, None]
    where = (rows < n_tokens)[:, None] & is_head[None]
    tl.store(scopes + to, tl.where(inside > 0, weight, -3e38), where)


@triton.jit
def attention_kernel(
    out, cue, allowed, mask, near, constants, query, key, value, pairs, result,
    n_tokens, text_stride, head_stride, row_stride,
    value_text_stride, value_head_stride, value_row_stride,
    pair_text_stride, pair_row_stride, pair_column_stride,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, WIDTH: tl.constexpr,
    N_KERNEL: tl.constexpr, N_INNER: tl.constexpr, INNER: tl.constexpr,
    HEAD_SIZE: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr,
    IS_SPLIT: tl.constexpr, HAS_PAIRS: tl.constexpr,
):  # fmt: skip
    """Attention of one head of a short text; a program holds all its pairs of tokens.

    Where the kernel is split, ``out`` is the result of ``scope_kernel``.
    """
    text, head = tl.program_id(0), tl.program_id(1)
    rows, columns = tl.arange(0, TILE), tl.arange(0, DIM)
    is_row = rows < n_tokens
    where = is_row[:, None] & (columns < HEAD_SIZE)[None]
    start = text.to(tl.int64) * text_stride + head * head_stride
    offset = start + rows[:, None] * row_stride + columns[None]
    q, k = tl.load(query + offset, where, 0), tl.load(key + offset, where, 0)
    score = tl.dot(q, tl.trans(k), input_precision="ieee") * (HEAD_SIZE**-0.5)
    for e in tl.static_range(N_OPERATORS):
        if IS_SPLIT:
            at = ((text * N_OPERATORS + e) * N_HEADS + head) * n_tokens + rows
            weight = tl.load(out + at, is_row, -3e38)
            inside = (weight > -1e38).to(tl.float32)
            weight = tl.where(inside > 0, weight, 0)
        else:
            lane = tl.arange(0, 16)  # the fewest columns of a product
            scopes, strengths = _expert(
                out, cue, allowed, mask, near, constants, text, e, rows, head + lane, lane < 1,
                n_tokens, N_OPERATORS, N_HEADS, WIDTH, N_KERNEL, N_INNER, INNER,
            )  # fmt: skip
            inside, weight = tl.sum(scopes, 1), tl.sum(strengths, 1)
        if e == N_OPERATORS - 1:  # NOT
            score -= weight[None]
        else:
            score += inside[:, None] * weight[None]
    is_seen = is_row[:, None] & is_row[None]
    if HAS_PAIRS:
        offset = rows[:, None] * pair_row_stride + rows[None] * pair_column_stride
        is_seen = tl.load(pairs + text.to(tl.int64) * pair_text_stride + offset, is_seen, 0) != 0
    # Finite, or a token that sees none would be NaN.
    score = tl.where(is_seen, score, -3e38)
    score = tl.exp(score - tl.max(score, 1)[:, None])
    score = tl.where(is_row[None], score, 0)
    total = tl.sum(score, 1)
    start = text.to(tl.int64) * value_text_stride + head * value_head_stride
    v = tl.load(value + start + rows[:, None] * value_row_stride + columns[None], where, 0)
    attended = tl.dot(score.to(v.dtype), v, input_precision="ieee") / total[:, None]
    to = ((text.to(tl.int64) * n_tokens + rows[:, None]) * N_HEADS + head) * HEAD_SIZE
    tl.store(result + to + columns[None], attended.to(v.dtype), where)
