"""Relative position to the cue, and the Gaussian weight that falls off with it.

May import: boolattn.attention.config.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001 - mypy and readers

#: A squared distance whose weight is exactly 0, with a gradient of exactly 0 as well.
UNREACHABLE = 1e12
#: Longest text whose distances are kept from one batch to the next: those of queries. All of
#: them together take 1 MiB.
REMEMBERED = 64


def squared_distance(config: BoolAttnConfig, n_tokens: int, device: torch.device) -> Tensor:
    """Look up :func:`_squared_distance`: it depends on nothing that is learned."""
    # What a CUDA graph computes lives in the graph's own memory, and is not to be remembered.
    is_captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if torch.compiler.is_compiling() or is_captured or n_tokens > REMEMBERED:
        return _squared_distance(config, n_tokens, device)
    return _remembered(config, n_tokens, device)


@lru_cache(maxsize=REMEMBERED)
def _remembered(config: BoolAttnConfig, n_tokens: int, device: torch.device) -> Tensor:
    # Made outside inference mode, or a later training step could not use it.
    with torch.inference_mode(False):
        return _squared_distance(config, n_tokens, device)


def _squared_distance(config: BoolAttnConfig, n_tokens: int, device: torch.device) -> Tensor:
    """Squared relative position of every token to every possible cue.

    AND and OR reach both ways and stop counting at the window. NOT reaches forward only: the
    paper's ``max(0, i - c)`` puts every earlier token at distance 0, where the weight is
    largest (defect 2); corrected, an earlier token has no weight at all.

    Returns:
        Shape ``(operators, tokens, cues)``.
    """
    at = torch.arange(n_tokens, device=device, dtype=torch.float32)
    offset = at[:, None] - at
    mutual = offset.clamp(-config.window, config.window).square()
    forward = offset.clamp(min=0).square()
    if not config.is_paper:
        forward = forward.masked_fill(offset < 0, UNREACHABLE)
    return torch.stack([forward if name == "not" else mutual for name in config.operators])


def position_weight(config: BoolAttnConfig, cue: Tensor, squared: Tensor, sigma: Tensor) -> Tensor:
    r"""Weight of every token by its nearest, surest cue.

    .. math:: w_i = \max_c \; p_c \exp(-r_{ic}^2 / 2\sigma^2)

    The paper has one cue position ``c``, undefined where there are several (defect 4): its
    variant takes the likeliest, ``c = argmax p``, without the factor ``p``. In training only
    the index of the maximum is found over all pairs, so no pairwise tensor is kept for the
    backward pass.

    Args:
        config: The plug-in's settings.
        cue: Cue probabilities. Shape ``(batch, operators, tokens)``.
        squared: From :func:`squared_distance`. Shape ``(operators, tokens, cues)``.
        sigma: Spread of each operator. Shape ``(operators,)``.

    Returns:
        Shape ``(batch, operators, tokens)``.
    """
    # A sigma that training drives through 0 must not divide by it.
    precision = 0.5 / sigma.float().square().clamp(min=1e-4)
    if config.is_paper:
        # (operators, cues, tokens) picked at each row's likeliest cue.
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
