"""The folded experts on a GPU: one matrix product of torch and one Triton kernel for each layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from triton import cdiv, next_power_of_2

from boolattn.attention.factors import SHORT, AttentionBias, Factors, bias_factors
from boolattn.attention.folded import FoldedLayer, fold_cue, n_lanes
from boolattn.attention.gpu.kernels import attention_kernel, cue_kernel, near_kernel, scope_kernel
from boolattn.attention.layer import position_precision

#: Tokens of one program.
_TILE = 16
#: Of a number whose attention runs in the own kernel: it is slow without tensor cores.
_MOST_BYTES = 2
#: Most channels of an expert that attention's program of every head reads itself.
_FEW_INNER = 32
#: Compiled kernels by what Triton compiles them for.
_COMPILED: dict[tuple[object, ...], Any] = {}


def launch(
    kernel: Any,  # noqa: ANN401 - Triton's type
    grid: tuple[int, int, int],
    tensors: tuple[Tensor, ...],
    numbers: tuple[int, ...],
    constants: tuple[Any, ...],
    n_warps: int = 4,
) -> None:
    """Launch a kernel; Triton analyses only arguments that it has not seen.

    Its analysis takes longer than the launch. It looks at types, numbers, and whether addresses
    are multiples of 16; here all of them are, or nothing is kept.
    """
    address, device = 0, tensors[0].device
    for tensor in tensors:
        address |= tensor.data_ptr()
    if device.index != torch.cuda.current_device():  # where Triton launches
        with torch.cuda.device(device):
            launch(kernel, grid, tensors, numbers, constants, n_warps)
        return
    key = (kernel, device, *[tensor.dtype for tensor in tensors], numbers, constants)
    compiled = None if address % 16 else _COMPILED.get(key)
    if compiled is not None:
        compiled[grid](*tensors, *numbers, *constants)
        return
    compiled = kernel[grid](*tensors, *numbers, *constants, num_warps=n_warps)
    if not address % 16:
        if len(_COMPILED) > 4096:
            _COMPILED.clear()
        _COMPILED[key] = compiled


@dataclass(frozen=True)
class KernelCues:
    """What the layers of a pass share.

    But for the mask, shapes are ``(batch, operators, tokens)``, and up to three texts more.
    """

    mask: Tensor  # not 0 for tokens. Shape ``(batch, tokens)``.
    cue: Tensor  # cue probabilities, 0 on padding
    allowed: Tensor  # 1 for tokens that can be in the scope of an open expert
    near: dict[int, Tensor]  # position weights by layer
    layers: dict[int, FoldedLayer]

    def bias(self, index: int, hidden: Tensor) -> KernelBias:
        """Compute what needs the hidden state of layer ``index``; attention runs the kernel."""
        layer = self.layers[index]
        out = F.linear(hidden, layer.weight)
        inputs = (out, self.cue, self.allowed, self.mask, self.near[index], layer.constants)
        return KernelBias(inputs, layer)


class KernelWeights:
    """All layers' weights, and those of the cue predictor."""

    def __init__(self, plugin: Any) -> None:  # noqa: ANN401 - above this one
        self._config, operators = plugin.config, plugin.operators
        with torch.inference_mode(False), torch.no_grad():
            self._cue = fold_cue(plugin.cue, operators)
            self._layers = {int(n): FoldedLayer(x, operators) for n, x in plugin.layers.items()}
            sigmas = torch.stack([layer.bias.sigma for layer in plugin.layers.values()])
            self._precisions = position_precision(sigmas)  # shape ``(layers, operators)``

    def find_cues(self, hidden: Tensor, mask: Tensor, opened: Tensor) -> KernelCues:
        """Find the cues of a batch and all layers' position weights.

        Arguments as in :meth:`BoolAttn.find_cues`, of the gate 1 for open experts.
        """
        layers, precisions, config = self._layers, self._precisions, self._config
        first, start, second = self._cue
        out = F.linear(hidden, first.T, start)
        mask, opened = mask.contiguous(), opened.contiguous()
        n_texts, n_tokens = mask.shape
        n_channels, n = second.shape
        shape = (2 + len(layers), -(-n_texts // 4) * 4, n, n_tokens)  # multiples of 16 bytes
        values = out.new_empty(shape, dtype=torch.float32)
        cue, allowed, near = values[0], values[1], values[2:]
        block = min(1024, int(next_power_of_2(n_tokens)))
        n_tiles, channels = cdiv(n_tokens, _TILE), next_power_of_2(n_channels)
        launch(
            cue_kernel,
            (n_texts, n_tiles, 1),
            (out, mask, opened, second, cue, allowed),
            (n_tokens,),
            (n, n_channels, channels, config.cue_kernel, config.bounded_scope, _TILE, block),
        )
        launch(
            near_kernel,
            (n_texts, n_tiles, precisions.numel()),
            (cue, precisions, near),
            (n_tokens,),
            (n, config.window, _TILE, block),
        )
        return KernelCues(mask, cue, allowed, dict(zip(layers, near.unbind(), strict=True)), layers)


@dataclass
class KernelBias(AttentionBias):
    """One layer's bias, before the kernel, which takes the ``inputs``."""

    inputs: tuple[Tensor, ...]
    layer: FoldedLayer

    @cached_property
    def scopes(self) -> Tensor:
        """Strengths, -3e38 out of scope. Shape ``(batch, operators, heads, tokens)``."""
        (n, n_heads, *_), (n_texts, n_tokens, _) = self.layer.sizes, self.inputs[0].shape
        scopes = self.inputs[1].new_empty(n_texts, n, n_heads, n_tokens)
        launch(
            scope_kernel,
            (n_texts, cdiv(n_tokens, _TILE), n),
            (*self.inputs, scopes),
            (n_tokens,),
            (*self.layer.sizes[:6], n_lanes(n_heads), _TILE),
        )
        return scopes

    @cached_property
    def factors(self) -> Factors:
        """The bias as factors."""
        scopes = self.scopes.permute(0, 3, 1, 2)
        inside = scopes > -1e38
        weight = torch.where(inside, scopes, 0.0)
        inside = inside.to(weight.dtype)
        return bias_factors(inside, weight, self.layer.sizes[6])

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor | None:
        """Run attention of a short text: ``(batch, tokens, heads, dim)``, or ``None`` for others.

        All but the result have the shapes that ``scaled_dot_product_attention`` takes.
        """
        n_texts, n_heads, n_tokens, head_size = query.shape
        if n_tokens > SHORT or query.element_size() > _MOST_BYTES:
            return None
        pairs, strides = self.inputs[3], (0, 0, 0)
        if mask is not None:
            if mask.dtype != torch.bool or mask.shape[1] != 1:
                return None
            pairs = mask.expand(n_texts, 1, n_tokens, n_tokens)
            strides = (pairs.stride(0), pairs.stride(2), pairs.stride(3))
        if query.stride() != key.stride() or query.stride(-1) != 1:
            query, key = query.contiguous(), key.contiguous()
        if value.stride(-1) != 1:
            value = value.contiguous()
        result = query.new_empty(n_texts, n_tokens, n_heads, head_size)
        is_split = self.layer.sizes[4] > _FEW_INNER
        inputs = (self.scopes, *self.inputs[1:]) if is_split else self.inputs
        tile = 16 if n_tokens <= 16 else 1 << (n_tokens - 1).bit_length()
        launch(
            attention_kernel,
            (n_texts, n_heads, 1),
            (*inputs, query, key, value, pairs, result),
            (n_tokens, *query.stride()[:3], *value.stride()[:3], *strides),
            (*self.layer.sizes, tile, is_split, mask is not None),
            8 if tile > 64 else 4,  # 8 warps of fewer rows read beyond their tile
        )
        return result
