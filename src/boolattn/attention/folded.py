"""The experts with folded weights, for encoding without gradients on a GPU.

FiLM, threshold, operator factor and all constants become one matrix and some constants for each
layer. Up to rounding, values are those of :class:`~boolattn.attention.layer.BoolAttnLayer`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.gate import CuePredictor
from boolattn.attention.layer import BiasPredictor, BoolAttnLayer, ScopePredictor

#: The modules that can be folded.
_FOLDABLE = (
    *(BoolAttnLayer, ScopePredictor, BiasPredictor, CuePredictor),
    *(nn.Linear, nn.Conv1d, nn.Identity, nn.ModuleDict),
)
_MAX_LOGIT = 7.5e3  # the largest logit of an unbounded threshold; finite, as it is added to others


class FoldedLayer:
    """One layer's weights.

    Attributes:
        sizes: Constants of the kernels, in their order.
        weight: Taps of the scopes ``(kernel, operators, heads)``, then the experts' first layers
            ``(operators, inner)``, for the hidden state. Shape ``(columns, features)``.
        constants: In float32, flat and one after the other: of the taps for the cues; what is added
            to taps and first layers; of the first layers for the position weights; the second
            layers ``(operators, inner, heads)``; what is added to their scores ``(operators,
            heads)``; the factors of the strengths, as these.
    """

    def __init__(self, layer: BoolAttnLayer, operators: Tensor) -> None:
        scope, bias = layer.scope, layer.bias
        n_kernel, n, n_heads = scope.shape
        # Above 0 is in scope.
        scale, shift = scope.film(operators).float().chunk(2, -1)
        shift = torch.addcmul(shift, scale, scope.bias.float())
        scale, shift = (part / layer.config.scope_temperature for part in (scale, shift))
        threshold = scope.threshold.float()
        if not layer.config.bounded_scope:
            threshold = torch.logit(threshold.clamp(0, 1)).clamp(-_MAX_LOGIT, _MAX_LOGIT)
        taps = scope.hidden_weight.float().unflatten(0, scope.shape) * scale[..., None]
        tap_start = shift.new_zeros(scope.shape)
        tap_start[n_kernel // 2] = shift - threshold[:, None]
        cue, near = scope.cue_weight.float() * scale, bias.position_weight.float()
        n_inner, head_size = near.shape[1], layer.head_size
        if bias.inner is None:
            inner_start = bias.inner_bias.float()
            inner = torch.eye(n_inner, device=near.device).repeat(n, 1)
        else:
            inner_start, inner = bias.inner.bias.float(), bias.inner.weight.float()
        strength = torch.sigmoid(bias.operator(operators)).float()
        outer = bias.outer_weight.float() * strength[:, None]
        outer_bias = bias.outer_bias.float()[:, 0] * strength
        factor = torch.ones_like(strength) if layer.factor is None else layer.factor.float()
        weight = torch.cat([taps.flatten(0, 2), inner])
        start = torch.cat([tap_start.flatten(), inner_start.flatten()])
        if isinstance(layer.reduce, nn.Linear):
            start = start + weight @ layer.reduce.bias.float()
            weight = weight @ layer.reduce.weight.float()
        constants = (cue, start, near, outer, outer_bias, factor)
        self.constants = torch.cat([part.flatten() for part in constants])
        # With columns that are no multiple of 8 the product is slow.
        weight = F.pad(weight, (0, 0, 0, -len(weight) % 8))
        self.weight = weight.to(operators.dtype)
        widths = (n_inner, min(64, n_lanes(n_inner)), head_size, n_lanes(head_size))
        self.sizes = (n, n_heads, len(weight), n_kernel, *widths)


def n_lanes(n: int) -> int:
    """Return the lanes that hold ``n`` numbers: a power of two; products have at least 16."""
    return max(16, 1 << (n - 1).bit_length())


def fold_cue(cue: CuePredictor, operators: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cue predictor's first matrix and constants, and its second matrix.

    The first has a column for each tap and channel of the convolution, then for each operator.
    """
    n_channels, _, n_kernel = cue.conv.weight.shape
    hidden, context = cue.row(operators).split([cue.conv.in_channels, n_channels], -1)
    start = hidden.new_zeros(n_kernel, n_channels)
    start[n_kernel // 2] = cue.conv.bias
    first = torch.cat([cue.conv.weight.permute(2, 0, 1).flatten(0, 1), hidden]).T.contiguous()
    return first, torch.cat([start.flatten(), cue.bias]), context.T.contiguous()


def are_foldable(modules: Iterable[nn.Module]) -> bool:
    """Whether modules are as BoolAttn builds them; others, or hooks, compute what they want."""
    return all(
        type(part) in _FOLDABLE
        and not (part._forward_pre_hooks or part._forward_hooks)
        and not (part._backward_pre_hooks or part._backward_hooks)
        and part._compiled_call_impl is None
        for part in modules
    )
