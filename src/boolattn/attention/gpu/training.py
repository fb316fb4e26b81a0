"""The experts in training on a GPU: one Triton kernel forward and one backward a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from triton import cdiv, next_power_of_2

from boolattn.attention.gpu import kernel_bias
from boolattn.attention.gpu.kernels import near_kernel
from boolattn.attention.gpu.training_kernels import (
    append_backward_kernel,
    append_kernel,
    near_backward_kernel,
)
from boolattn.attention.scope import NOISE_EPS

if TYPE_CHECKING:
    from torch import Tensor

    from boolattn.attention.append import Shared, Sizes
    from boolattn.attention.config import BoolAttnConfig

#: Tokens of a tile, and most programs that sum the gradients of one operator's weights.
_TILE, _MOST_PROGRAMS = 16, 128


def _constants(out: Tensor, second: Tensor, sizes: Sizes) -> tuple[int, ...]:
    """Return what both kernels are compiled for."""
    inner = min(64, max(16, next_power_of_2(sizes.n_inner)))
    return (
        *(sizes.n_operators, sizes.n_heads, out.shape[-1], second.shape[-1], sizes.n_kernel),
        *(sizes.n_inner, inner, sizes.has_not, sizes.head_size),
        max(16, next_power_of_2(sizes.head_size)),
        *(max(16, next_power_of_2(sizes.n_heads)), _TILE),
    )


class KernelAppend(torch.autograd.Function):
    """Does what ``append.Append`` does."""

    @staticmethod
    def forward(  # noqa: PLR0913
        context: Any,  # noqa: ANN401
        query: Tensor,
        key: Tensor,
        out: Tensor,
        second: Tensor,
        opened: Tensor,
        shared: Shared,
        uniform: Tensor | None,
        sizes: Sizes,
    ) -> tuple[Tensor, Tensor]:
        """Return queries and keys, ``(batch, heads, tokens, dim + factors)``."""
        query, key = kernel_bias.alike(query, key)
        n_texts, n_heads, n_tokens, head_size = query.shape
        n, n_extra = sizes.n_operators, sizes.n_operators + sizes.n_padding
        wide = query.new_empty(2, n_texts, n_tokens, n_heads, head_size + n_extra)
        kept = second.new_empty(2, -(-n_texts // 4) * 4, n, n_tokens, n_heads)  # aligned
        given = (out, second, opened, shared.allowed, shared.mask)
        kernel_bias.launch(
            append_kernel,
            (n_texts, cdiv(n_tokens, _TILE), n),
            (*given, out if uniform is None else uniform, query, key, wide, kept[0], kept[1]),
            (n_tokens, *query.stride()[:3]),
            (
                *(*_constants(out, second, sizes), n_extra, next_power_of_2(n_extra)),
                *(uniform is not None, sizes.temperature, NOISE_EPS),
            ),
        )
        context.save_for_backward(*given, kept)
        context.sizes = sizes
        return wide[0].transpose(1, 2), wide[1].transpose(1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, wide_query: Tensor, wide_key: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return gradients of queries, keys, the product, the layer's weights and the gate."""
        *given, kept = context.saved_tensors
        sizes: Sizes = context.sizes
        out, second, n = given[0], given[1], sizes.n_operators
        at_query, at_key = kernel_bias.alike(wide_query, wide_key)
        n_texts, n_tokens, _ = out.shape
        n_programs = min(_MOST_PROGRAMS, n_texts * cdiv(n_tokens, _TILE))
        constants = _constants(out, second, sizes)
        heads = at_query.new_empty(2, n_texts, n_tokens, sizes.n_heads, sizes.head_size)
        at_out, at_second = torch.empty_like(out), second.new_empty(n_programs, *second.shape)
        at_opened = second.new_empty(n_texts, n, n_tokens)
        kernel_bias.launch(
            append_backward_kernel,
            (n_programs, n, cdiv(sizes.n_inner, constants[6])),
            (*given, kept[0], kept[1], at_query, at_key, heads, at_out, at_second, at_opened),
            (n_texts, n_tokens, *at_query.stride()[:3]),
            constants,
        )
        by_gate = at_opened.sum(2) if context.needs_input_grad[4] else None
        wide = (part.transpose(1, 2) for part in heads)
        return (*wide, at_out, at_second.sum(0), by_gate, None, None, None)


class KernelNear(torch.autograd.Function):
    """All layers' position weights, as ``position.position_weight`` gives them."""

    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401
        cue: Tensor,
        precisions: Tensor,
        config: BoolAttnConfig,
    ) -> Tensor:
        """Return weights ``(layers, batch, operators, tokens)``.

        Args:
            context: Of the backward pass.
            cue: Cue probabilities, ``(batch, operators, tokens)``.
            precisions: Of all layers, ``(layers, operators)``.
            config: The settings.
        """
        n_texts, n, n_tokens = cue.shape
        near = cue.new_empty(len(precisions), -(-n_texts // 4) * 4, n, n_tokens)
        nearest = torch.empty_like(near, dtype=torch.int32)
        grid = (n_texts, cdiv(n_tokens, _TILE), precisions.numel())
        constants = (n, config.operators[-1] == "not", config.window, _TILE)
        block = min(1024, int(next_power_of_2(n_tokens)))
        tensors = (cue.contiguous(), precisions, near, nearest)
        kernel_bias.launch(near_kernel, grid, tensors, (n_tokens,), (*constants, block, True))
        context.save_for_backward(tensors[0], precisions, nearest)
        context.grid, context.constants = grid, constants
        return near[:, :n_texts]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, at_near: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        """Return gradients of cues and precisions."""
        cue, precisions, nearest = context.saved_tensors
        at_cue, at_precisions = torch.zeros_like(cue), torch.zeros_like(precisions)
        kernel_bias.launch(
            near_backward_kernel,
            context.grid,
            (cue, precisions, nearest, at_near.contiguous(), at_cue, at_precisions),
            (cue.shape[-1],),
            context.constants,
        )
        return at_cue, at_precisions, None
