"""Triton kernels of the experts in training; launched by ``training``.

They compute what ``append.Append`` does in torch's operations, which are their reference.
"""

from __future__ import annotations

import triton
import triton.language as tl

from boolattn.attention.gpu.kernels import widen


@triton.jit
def append_kernel(
    out, second, opened, allowed, mask, uniform, query, key, wide, probability, soft,
    n_tokens, text_stride, head_stride, row_stride,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, WIDTH: tl.constexpr, SECOND: tl.constexpr,
    N_KERNEL: tl.constexpr, N_INNER: tl.constexpr, INNER: tl.constexpr, HAS_NOT: tl.constexpr,
    HEAD_SIZE: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr, TILE: tl.constexpr,
    N_EXTRA: tl.constexpr, EXTRA: tl.constexpr,
    HAS_NOISE: tl.constexpr, TEMPERATURE: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Write queries and keys with one operator's factors, and what the backward pass needs."""
    text, e = tl.program_id(0), tl.program_id(2)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    heads = tl.arange(0, HEADS)
    is_row, is_head = rows < n_tokens, heads < N_HEADS
    where = is_row[:, None] & is_head[None]
    first = text.to(tl.int64) * n_tokens
    kind = out.dtype.element_ty
    out += first * WIDTH
    second += e * SECOND
    logit = tl.zeros([TILE, HEADS], tl.float32)
    for k in tl.static_range(N_KERNEL):
        at = rows + k - N_KERNEL // 2
        is_token = (at >= 0) & (at < n_tokens)
        is_token = is_token & (tl.load(mask + first + at, is_token, 0) != 0)
        column = (k * N_OPERATORS + e) * N_HEADS + heads
        is_tap = is_token[:, None] & is_head[None]
        logit += tl.load(out + at[:, None] * WIDTH + column[None], is_tap, 0).to(tl.float32)
    if HAS_NOISE:
        draw = ((first + rows[:, None]) * N_OPERATORS + e) * N_HEADS + heads[None]
        draw = tl.load(uniform + draw, where, 0.5)
        draw = tl.minimum(tl.maximum(draw, EPS), 1 - EPS)
        logit += tl.log(draw / (1 - draw)) / TEMPERATURE
    chance = tl.sigmoid(logit)
    is_inside = chance > tl.load(second + (N_INNER + 1) * N_HEADS)
    is_inside = is_inside & (tl.load(allowed + first + rows, is_row, 0) != 0)[:, None]

    score = logit * 0 + tl.load(second + N_INNER * N_HEADS + heads, is_head, 0)[None]
    for start in tl.static_range(0, N_INNER, INNER):
        inner = start + tl.arange(0, INNER)
        is_inner = inner < N_INNER
        column = N_KERNEL * N_OPERATORS * N_HEADS + e * N_INNER + inner
        there = is_row[:, None] & is_inner[None]
        value = tl.load(out + rows[:, None] * WIDTH + column[None], there, 0)
        value = tl.maximum(value, 0).to(kind)
        outer = second + inner[:, None] * N_HEADS + heads[None]
        outer = tl.load(outer, is_inner[:, None] & is_head[None], 0).to(kind)
        score = tl.dot(value, outer, score, input_precision="ieee")
    strength = tl.where(score > 20, score, tl.log(1 + tl.exp(tl.minimum(score, 20))))
    own = ((first * N_OPERATORS + e * n_tokens) + rows[:, None]) * N_HEADS + heads[None]
    tl.store(probability + own, chance, where)
    tl.store(soft + own, strength, where)
    # Attention multiplies the factors by its scale.
    is_open = tl.load(opened + text * N_OPERATORS + e).to(tl.float32)
    weight = tl.where(is_inside, strength * is_open * tl.sqrt(HEAD_SIZE * 1.0), 0)
    inside = is_inside.to(tl.float32)
    if e == (N_OPERATORS - 1 if HAS_NOT else -1):
        inside, weight = inside * 0 + 1, -weight
    widen(
        query, key, wide, inside, weight, text, e, rows, heads, is_head, n_tokens,
        text_stride, head_stride, row_stride,
        N_OPERATORS, N_HEADS, HEAD_SIZE, DIM, TILE, N_EXTRA, EXTRA,
    )  # fmt: skip


@triton.jit
def _at_inside(
    at_query, at_key, allowed, probability, soft, first, e, rows, heads, n_tokens, strength,
    head_stride, row_stride,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, HAS_NOT: tl.constexpr,
):  # fmt: skip
    """Return gradients of scopes and of factors at keys; probabilities and strengths."""
    is_row = (rows >= 0) & (rows < n_tokens)
    where = is_row[:, None] & (heads < N_HEADS)[None]
    place = heads[None] * head_stride + rows[:, None] * row_stride
    by_key = tl.load(at_key + place, where, 0).to(tl.float32)
    by_query = tl.load(at_query + place, where, 0).to(tl.float32)
    own = ((first * N_OPERATORS + e * n_tokens) + rows[:, None]) * N_HEADS + heads[None]
    chance, strong = tl.load(probability + own, where, 0), tl.load(soft + own, where, 0)
    # The factor of NOT at queries is constant.
    is_mutual = tl.where(e == (N_OPERATORS - 1 if HAS_NOT else -1), 0.0, 1.0)
    found = by_key * strong * strength + by_query * is_mutual
    is_allowed = tl.load(allowed + first + rows, is_row, 0) != 0
    return tl.where(is_allowed[:, None], found, 0), by_key, chance, strong


@triton.jit
def append_backward_kernel(
    out, second, opened, allowed, mask, probability, soft, at_query, at_key,
    at_heads, at_out, at_second, at_opened,
    n_texts, n_tokens, text_stride, head_stride, row_stride,
    N_OPERATORS: tl.constexpr, N_HEADS: tl.constexpr, WIDTH: tl.constexpr, SECOND: tl.constexpr,
    N_KERNEL: tl.constexpr, N_INNER: tl.constexpr, INNER: tl.constexpr, HAS_NOT: tl.constexpr,
    HEAD_SIZE: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write gradients of queries, keys and the product; of weights one sum for each program.

    A program takes every n-th tile of tokens, one operator and some of its channels.
    """
    e, chunk = tl.program_id(1), tl.program_id(2)
    heads, columns = tl.arange(0, HEADS), tl.arange(0, DIM)
    is_head = heads < N_HEADS
    inner = chunk * INNER + tl.arange(0, INNER)
    is_inner = inner < N_INNER
    n_taps: tl.constexpr = N_KERNEL * N_OPERATORS * N_HEADS
    n_columns: tl.constexpr = n_taps + N_OPERATORS * N_INNER
    kind = out.dtype.element_ty
    second += e * SECOND
    place = inner[:, None] * N_HEADS + heads[None]
    is_outer = is_inner[:, None] & is_head[None]
    outer = tl.load(second + place, is_outer, 0).to(kind)
    threshold = tl.load(second + (N_INNER + 1) * N_HEADS)
    at_outer = tl.zeros([INNER, HEADS], tl.float32)
    at_bias = tl.zeros([HEADS], tl.float32)
    at_threshold = tl.zeros([TILE], tl.float32)
    n_tiles = (n_tokens + TILE - 1) // TILE
    for tile in range(tl.program_id(0), n_texts * n_tiles, tl.num_programs(0)):
        text = (tile // n_tiles).to(tl.int64)
        rows = tile % n_tiles * TILE + tl.arange(0, TILE)
        is_row = rows < n_tokens
        first = text * n_tokens
        by_query = at_query + text * text_stride
        by_key = at_key + text * text_stride
        scale = tl.sqrt(HEAD_SIZE * 1.0)
        if e == (N_OPERATORS - 1 if HAS_NOT else -1):
            scale = -scale
        strength = tl.load(opened + text * N_OPERATORS + e).to(tl.float32) * scale
        at_inside, at_weight, chance, strong = _at_inside(
            by_query + HEAD_SIZE + e, by_key + HEAD_SIZE + e, allowed, probability, soft, first,
            e, rows, heads, n_tokens, strength, head_stride, row_stride,
            N_OPERATORS, N_HEADS, HAS_NOT,
        )  # fmt: skip
        is_inside = chance > threshold
        is_inside = is_inside & (tl.load(allowed + first + rows, is_row, 0) != 0)[:, None]
        at_weight = tl.where(is_inside, at_weight, 0)
        at_score = (at_weight * strength * (1 - tl.exp(-strong))).to(kind)
        # The channels of this program.
        there = is_row[:, None] & is_inner[None]
        row = (first + rows[:, None]) * WIDTH
        to = row + n_taps + e * N_INNER + inner[None]
        value = tl.maximum(tl.load(out + to, there, 0), 0).to(kind)
        at_outer = tl.dot(tl.trans(value), at_score, at_outer, input_precision="ieee")
        at_value = tl.dot(at_score, tl.trans(outer), input_precision="ieee")
        tl.store(at_out + to, tl.where(value > 0, at_value, 0).to(kind), there)
        if chunk == 0:
            at_bias += tl.sum(at_score.to(tl.float32), 0)
            at_threshold -= tl.sum(at_inside, 1)
            by_gate = tl.sum(at_weight * strong * scale, 1)
            tl.store(at_opened + first * N_OPERATORS + e * n_tokens + rows, by_gate, is_row)
            is_token = is_row & (tl.load(mask + first + rows, is_row, 0) != 0)
            for k in tl.static_range(N_KERNEL):
                # A token's last tap belongs to the token before it.
                at_tap, _, odds, _ = _at_inside(
                    by_query + HEAD_SIZE + e, by_key + HEAD_SIZE + e, allowed, probability, soft,
                    first, e, rows - k + N_KERNEL // 2, heads, n_tokens, strength, head_stride,
                    row_stride, N_OPERATORS, N_HEADS, HAS_NOT,
                )  # fmt: skip
                at_tap = tl.where(is_token[:, None], at_tap * odds * (1 - odds), 0)
                tap = row + (k * N_OPERATORS + e) * N_HEADS + heads[None]
                tl.store(at_out + tap, at_tap.to(kind), is_row[:, None] & is_head[None])
            if e == 0:
                rest = n_columns + tl.arange(0, 8)
                is_rest = is_row[:, None] & (rest < WIDTH)[None]
                tl.store(at_out + row + rest[None], tl.zeros([TILE, 8], kind), is_rest)
            is_column = is_row[:, None] & (columns < HEAD_SIZE)[None]
            n_all = tl.cast(n_texts, tl.int64) * n_tokens * N_HEADS * HEAD_SIZE
            for head in range(e, N_HEADS, N_OPERATORS):
                source = head * head_stride + rows[:, None] * row_stride + columns[None]
                copy = at_heads + ((first + rows[:, None]) * N_HEADS + head) * HEAD_SIZE
                copy += columns[None]
                tl.store(copy, tl.load(by_query + source, is_column, 0), is_column)
                tl.store(copy + n_all, tl.load(by_key + source, is_column, 0), is_column)
    at_second += (tl.program_id(0) * N_OPERATORS + e) * SECOND
    tl.store(at_second + place, at_outer, is_outer)
    if chunk == 0:
        tl.store(at_second + N_INNER * N_HEADS + heads, at_bias, is_head)
        last = (N_INNER + 1) * N_HEADS + tl.arange(0, 4)
        found = tl.where(tl.arange(0, 4) == 0, tl.sum(at_threshold), 0)
        tl.store(at_second + last, found, last < SECOND)


@triton.jit
def near_backward_kernel(
    cue, precisions, nearest, at_near, at_cue, at_precisions,
    n_tokens,
    N_OPERATORS: tl.constexpr, HAS_NOT: tl.constexpr, WINDOW: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Add the gradients of cues and precisions, by the cue of which a token has its weight."""
    text, place = tl.program_id(0), tl.program_id(2)
    e = place % N_OPERATORS
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_row = rows < n_tokens
    n_texts = tl.num_programs(0)
    layer = (place // N_OPERATORS).to(tl.int64)
    own = ((layer * ((n_texts + 3) // 4 * 4) + text) * N_OPERATORS + e) * n_tokens + rows
    at = tl.load(nearest + own, is_row, -1)
    is_row = is_row & (at >= 0)
    gradient = at_near + ((layer * n_texts + text) * N_OPERATORS + e) * n_tokens + rows
    gradient = tl.load(gradient, is_row, 0)
    distance = tl.abs(rows - at)
    if e != (N_OPERATORS - 1 if HAS_NOT else -1):
        distance = tl.minimum(distance, WINDOW)
    squared = (distance * distance).to(tl.float32)
    gradient *= tl.exp(-tl.load(precisions + place) * squared)
    source = (text * N_OPERATORS + e) * n_tokens + at
    by_precision = -tl.sum(gradient * squared * tl.load(cue + source, is_row, 0))
    tl.atomic_add(at_cue + source, gradient, is_row)
    tl.atomic_add(at_precisions + place, by_precision)
