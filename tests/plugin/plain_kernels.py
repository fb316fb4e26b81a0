"""What the GPU's kernels compute of folded weights, in plain torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from boolattn.attention.factors import AttentionBias, bias_factors
from boolattn.attention.folded import FoldedLayer, fold_cue
from boolattn.attention.layer import position_weight, words


class KernelWeights:
    """All layers' weights, as in ``boolattn.attention.gpu.kernel_bias``."""

    def __init__(self, plugin):
        self.plugin, self.cue = plugin, fold_cue(plugin.cue, plugin.operators)
        layers = plugin.layers.items()
        self.layers = {int(name): FoldedLayer(layer, plugin.operators) for name, layer in layers}

    def find_cues(self, hidden, mask, opened):
        first, start, second = self.cue
        n_channels, n = second.shape
        out = hidden @ first + start
        taps = out[..., :-n].unflatten(-1, (-1, n_channels))
        context = convolved(taps, mask).relu()
        cue = torch.sigmoid(context @ second + out[..., -n:]) * mask[..., None]
        scopable = words(mask) if self.plugin.config.bounded_scope else mask
        return Cues(self, mask, cue, scopable[..., None] * opened[:, None] != 0)


@dataclass
class Cues:
    """What the layers of a pass share."""

    weights: KernelWeights
    mask: torch.Tensor
    cue: torch.Tensor
    allowed: torch.Tensor

    def bias(self, index, hidden):
        layer, plugin = self.weights.layers[index], self.weights.plugin
        n, n_heads, _, n_kernel, n_inner, _, head_size, _ = layer.sizes
        shapes = [(n_kernel, n, n_heads)] * 2 + [(n, n_inner)] * 2
        shapes += [(n, n_inner, n_heads), (n, n_heads), (n, n_heads)]
        parts = layer.constants.to(hidden.dtype).split(
            [torch.Size(shape).numel() for shape in shapes]
        )
        constants = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        cue_taps, tap_start, inner_start, near, outer, outer_bias, factor = constants
        out = (hidden @ layer.weight.T)[..., : tap_start.numel() + near.numel()]
        taps, inner = out.split([tap_start.numel(), near.numel()], -1)
        taps = taps.unflatten(-1, tap_start.shape) + tap_start
        taps = taps + self.cue[:, :, None, :, None] * cue_taps
        inside = (convolved(taps, self.mask) > 0) & self.allowed[..., None]
        sigma = plugin.layers[str(index)].bias.sigma
        position = position_weight(plugin.config, self.cue.transpose(1, 2), sigma).transpose(1, 2)
        inner = inner.unflatten(-1, near.shape) + inner_start + position[..., None] * near
        scores = torch.einsum("blei,eih->bleh", inner.relu(), outer) + outer_bias
        bias = AttentionBias()
        weight = torch.where(inside, F.softplus(scores) * factor, 0.0)
        bias.factors = bias_factors(inside.to(weight.dtype), weight, head_size)
        return bias


def convolved(taps, mask):
    """Add the taps of a convolution, ``(batch, tokens, taps, …)``, from the neighbours."""
    taps = taps * mask.view(*mask.shape, *[1] * (taps.dim() - 2))
    n_taps, n_tokens = taps.shape[2], taps.shape[1]
    around = (0, 0) * (taps.dim() - 2) + (n_taps // 2, n_taps // 2)
    padded = F.pad(taps, around)
    return sum(padded[:, k : k + n_tokens, k] for k in range(n_taps))
