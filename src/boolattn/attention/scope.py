"""The scope predictor: which tokens an operator governs, head by head.

May import: boolattn.attention.config, boolattn.attention.sampling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001 - mypy and readers
from boolattn.attention.sampling import gumbel_sigmoid, straight_through


@dataclass(frozen=True)
class Scope:
    """What one layer's scope predictor says.

    Attributes:
        logits: Modulated scores, before noise. Shape ``(batch, tokens, operators, heads)``.
        inside: 1 in scope, 0 outside and on padding; gradients pass straight through to the
            logits and the thresholds. Same shape.
    """

    logits: Tensor
    inside: Tensor


class ScopePredictor(nn.Module):
    r"""Conv1D over hidden state and cue, FiLM by operator, Gumbel-sigmoid, threshold.

    .. math:: S_e = \gamma(o_e) \odot \mathrm{Conv1D}_e([H; p_e]) + \beta(o_e), \qquad
              s = \mathbf{1}[P(S) > \theta_e]

    The experts of all operators are stacked, one output channel an operator and head. The
    convolution is written as one matrix product followed by shifts, so that the hidden state is
    read once, by all channels, and never transposed.
    """

    def __init__(self, config: BoolAttnConfig, feature_size: int, n_heads: int) -> None:
        super().__init__()
        self.config = config
        self.shape = (config.kernel, config.n_operators, n_heads)
        # Born as a Conv1d of (feature_size + 1) channels would be.
        bound = 1 / math.sqrt((feature_size + 1) * config.kernel)
        self.hidden_weight = nn.Parameter(
            torch.empty(math.prod(self.shape), feature_size).uniform_(-bound, bound)
        )
        self.cue_weight = nn.Parameter(torch.empty(self.shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(config.n_operators, n_heads).uniform_(-bound, bound))
        self.film = nn.Linear(config.d_o, 2 * n_heads)  # scale and shift
        self.threshold = nn.Parameter(torch.full((config.n_operators,), config.threshold))

    def forward(self, hidden: Tensor, cue: Tensor, mask: Tensor, operators: Tensor) -> Scope:
        """Say which tokens are in scope.

        Args:
            hidden: What enters the layer's self-attention. Shape ``(batch, tokens, features)``.
            cue: Cue probabilities, 0 on padding. Shape ``(batch, tokens, operators)``.
            mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
            operators: Operator embeddings. Shape ``(operators, d_o)``.
        """
        scale, shift = self.film(operators).chunk(2, dim=-1)
        shift = torch.addcmul(shift, scale, self.bias)
        logits = torch.addcmul(shift, scale, self.conv(hidden, cue, mask))
        return Scope(logits, self._threshold(logits) * mask[..., None, None])

    def conv(self, hidden: Tensor, cue: Tensor, mask: Tensor) -> Tensor:
        """Convolve ``[H; p]`` without the bias. Shape ``(batch, tokens, operators, heads)``."""
        taps = F.linear(hidden, self.hidden_weight).view(*hidden.shape[:2], *self.shape)
        taps = torch.addcmul(taps, cue[:, :, None, :, None], self.cue_weight)
        reach = self.config.kernel // 2
        if reach == 0:
            return taps[:, :, 0]
        # What a padded position holds must not reach its neighbours.
        taps = F.pad(taps * mask[:, :, None, None, None], (0, 0, 0, 0, 0, 0, reach, reach))
        n_tokens = hidden.shape[1]
        # Taken apart at once: the way back then is one stack, not a tensor of zeros for each.
        shifted = [tap[:, k : k + n_tokens] for k, tap in enumerate(taps.unbind(2))]
        return torch.stack(shifted).sum(0) if len(shifted) > 3 else sum(shifted[1:], shifted[0])

    def _threshold(self, logits: Tensor) -> Tensor:
        if self.training and self.config.use_noise:
            probability = gumbel_sigmoid(logits, self.config.scope_temperature)
        else:
            probability = torch.sigmoid(logits / self.config.scope_temperature)
        margin = probability - self.threshold[:, None]
        return straight_through(margin > 0, margin)
