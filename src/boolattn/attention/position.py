"""Relative position to the cue, and its Gaussian weight."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001

#: A squared distance whose weight and gradient are exactly 0.
UNREACHABLE = 1e12
#: Tokens of the longest text whose distances are cached; the whole cache takes 1 MiB.
N_CACHED = 64


def squared_distance(config: BoolAttnConfig, n_tokens: int, device: torch.device) -> Tensor:
    """Return :func:`_squared_distance`, cached for short texts."""
    # A tensor made in a CUDA graph lives in the graph's memory and cannot be cached.
    is_captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if torch.compiler.is_compiling() or is_captured or n_tokens > N_CACHED:
        return _squared_distance(config, n_tokens, device)
    return _cached(config, n_tokens, device)


@lru_cache(maxsize=N_CACHED)
def _cached(config: BoolAttnConfig, n_tokens: int, device: torch.device) -> Tensor:
    # Made outside inference mode, or a later training step could not use it.
    with torch.inference_mode(False):
        return _squared_distance(config, n_tokens, device)


def _squared_distance(config: BoolAttnConfig, n_tokens: int, device: torch.device) -> Tensor:
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


def position_weight(config: BoolAttnConfig, cue: Tensor, squared: Tensor, sigma: Tensor) -> Tensor:
    r"""Weight of every token, by the nearest probable cue. Shape ``(batch, operators, tokens)``.

    .. math:: w_i = \max_c \; p_c \exp(-r_{ic}^2 / 2\sigma^2)

    The paper has one cue position ``c``, undefined for several cues (error 4); the paper variant
    takes the most probable, ``c = argmax p``, without the factor ``p``. In training only the
    index of the maximum is computed over all pairs, so that no pairwise tensor is saved for the
    backward pass.

    Args:
        config: The settings.
        cue: Cue probabilities. Shape ``(batch, operators, tokens)``.
        squared: From :func:`squared_distance`. Shape ``(operators, tokens, cues)``.
        sigma: Width for each operator. Shape ``(operators,)``.
    """
    # Training can move sigma to 0.
    precision = 0.5 / sigma.float().square().clamp(min=1e-4)
    if config.is_paper:
        # (operators, cues, tokens) at each row's most probable cue.
        nearest = cue.argmax(-1)
        rows = torch.arange(len(sigma), device=cue.device)
        return torch.exp(-squared.transpose(1, 2)[rows, nearest] * precision[:, None])
    reach = torch.exp(-squared * precision[:, None, None])
    if not torch.is_grad_enabled():
        return (reach * cue[:, :, None]).amax(-1)
    with torch.no_grad():
        nearest = (reach * cue[:, :, None]).argmax(-1)
        distance = squared.expand(len(cue), -1, -1, -1).gather(-1, nearest[..., None])[..., 0]
    return cue.gather(-1, nearest) * torch.exp(-distance * precision[:, None])
