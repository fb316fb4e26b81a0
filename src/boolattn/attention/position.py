"""Relative position to the cue, and its Gaussian weight."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001

#: A squared distance whose weight and gradient are exactly 0.
UNREACHABLE = 1e12
#: Tokens of the longest text for which all pairs of tokens are compared.
N_COMPARED = 64
#: ``exp`` of minus this is 0 in float32.
_UNDERFLOW = 104.0


def is_traced(device: torch.device) -> bool:
    """Whether a compiler or a CUDA graph records; a graph's tensors live in its own memory."""
    is_captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return torch.compiler.is_compiling() or is_captured


def squared_distance(config: BoolAttnConfig, n_tokens: int, device: torch.device) -> Tensor:
    """Return squared relative positions. Shape ``(operators, tokens, cues)``.

    For AND and OR the distance is symmetric and clipped to the window. NOT acts forward only:
    the paper's ``max(0, i - c)`` gives every earlier token distance 0, where the weight is
    largest (error 2); in the corrected variant an earlier token has weight 0.
    """
    at = torch.arange(n_tokens, device=device, dtype=torch.float32)
    offset = at[:, None] - at
    mutual = offset.clamp(-config.window, config.window).square()
    forward = offset.clamp(min=0).square()
    if not config.is_paper:
        forward = forward.masked_fill(offset < 0, UNREACHABLE)
    return torch.stack([forward if name == "not" else mutual for name in config.operators])


def words(mask: Tensor) -> Tensor:
    """Mark all tokens of a text but the first and the last, [CLS] and [SEP]. As the mask."""
    count = (mask != 0).cumsum(-1)
    return (mask != 0) & (count > 1) & (count < count[:, -1:])


def position_precision(sigma: Tensor) -> Tensor:
    """Return what squared distances are multiplied by; training can move sigma to 0."""
    return 0.5 / sigma.float().square().clamp(min=1e-4)


def position_weight(config: BoolAttnConfig, cue: Tensor, sigma: Tensor) -> Tensor:
    r"""Weight of every token, by the nearest probable cue. Shape as ``cue``.

    .. math:: w_i = \max_c \; p_c \exp(-r_{ic}^2 / 2\sigma^2)

    The paper has one cue position ``c``, undefined for several cues (error 4); the paper variant
    takes the most probable, ``c = argmax p``, without the factor ``p``. In training only the
    index of the maximum is computed over all pairs, so that no pairwise tensor is saved for the
    backward pass. Long texts need no pairwise tensor.

    Args:
        config: The settings.
        cue: Cue probabilities. Shape ``(batch, operators, tokens)``.
        sigma: Width for each operator. Shape ``(operators,)``, without gradients also
            ``(layers, operators)``, for the weights of several layers.
    """
    precision = position_precision(sigma)
    n_tokens = cue.shape[-1]
    if n_tokens > N_COMPARED and not config.is_paper and not is_traced(cue.device):
        rows = zip(cue.unbind(1), precision, config.operators, strict=True)
        return torch.stack([_along(*row, config.window) for row in rows], 1)
    squared = squared_distance(config, n_tokens, cue.device)
    if config.is_paper:
        # (operators, cues, tokens) at each operator's most probable cue.
        at = torch.arange(len(sigma), device=cue.device)
        distance = squared.transpose(1, 2)[at, cue.argmax(-1)]
        return torch.exp(-distance * precision[:, None])
    reach = torch.exp(-squared * precision[..., None, None])
    if not torch.is_grad_enabled():
        return (reach.unsqueeze(-4) * cue[:, :, None]).amax(-1)
    with torch.no_grad():
        nearest = (reach * cue[:, :, None]).argmax(-1)
        distance = squared.expand(len(cue), -1, -1, -1).gather(-1, nearest[..., None])[..., 0]
    return cue.gather(-1, nearest) * torch.exp(-distance * precision[:, None])


def _along(cue: Tensor, precision: Tensor, operator: str, window: int) -> Tensor:
    """Return one operator's weights, in memory that grows with the tokens; ``(batch, tokens)``.

    Only cues within reach are compared: for AND and OR those of the window, because beyond it
    the distance is clipped; for NOT those whose weight is not 0 in float32.
    """
    if operator == "not":
        before = min(cue.shape[-1] - 1, math.ceil(math.sqrt(_UNDERFLOW / precision.item())))
        after = 0
    else:
        before = after = window
    near = F.pad(cue, (before, after)).unfold(-1, before + after + 1, 1)
    offset = torch.arange(-before, after + 1, device=cue.device)
    weight = (near * torch.exp(-offset.square() * precision)).amax(-1)
    if operator == "not":
        return weight
    beyond = cue.amax(-1, keepdim=True) * torch.exp(-(window**2) * precision)
    return torch.maximum(weight, beyond)
