"""The scope predictor: which tokens are in the scope of an operator, for each head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.bias import uniform
from boolattn.attention.config import BoolAttnConfig  # noqa: TC001
from boolattn.attention.gate import straight_through

#: Uniform draws are clipped by this, because at 0 and 1 the noise is infinite.
NOISE_EPS = 1e-6


@dataclass(frozen=True)
class Scope:
    """Output of one layer's scope predictor.

    Attributes:
        logits: Without noise; minus that of a bounded threshold, so that a token above 0 is in
            scope. Shape ``(batch, tokens, operators, heads)``.
        inside: 1 in scope, 0 outside and on tokens that cannot be in scope, with
            straight-through gradients. Same shape.
    """

    logits: Tensor
    inside: Tensor


class ScopePredictor(nn.Module):
    r"""Conv1D over hidden state and cue, FiLM by operator, Gumbel-sigmoid, threshold.

    .. math:: S_e = \gamma(o_e) \odot \mathrm{Conv1D}_e([H; p_e]) + \beta(o_e), \qquad
              s = \mathbf{1}[P(S) > \theta_e]

    A learned :math:`\theta` leaves the range of a probability, and then every token is in scope or
    none (error 6); bounded, it is :math:`\sigma(t_e)`.

    The experts of all operators are stacked: one output channel for each operator and head. The
    convolution is one matrix product followed by shifts, which needs no transposed hidden state.
    """

    def __init__(self, config: BoolAttnConfig, feature_size: int, n_heads: int) -> None:
        super().__init__()
        self.config = config
        self.shape = (config.kernel, config.n_operators, n_heads)
        # Initialised as a Conv1d of (feature_size + 1) channels.
        bound = 1 / math.sqrt((feature_size + 1) * config.kernel)
        self.hidden_weight = nn.Parameter(uniform(bound, math.prod(self.shape), feature_size))
        self.cue_weight = nn.Parameter(uniform(bound, *self.shape))
        self.bias = nn.Parameter(uniform(bound, config.n_operators, n_heads))
        self.film = nn.Linear(config.d_o, 2 * n_heads)  # scale and shift
        first = torch.full((config.n_operators,), config.threshold)
        self.threshold = nn.Parameter(first.logit() if config.bounded_scope else first)

    def forward(
        self,
        hidden: Tensor,
        cue: Tensor,
        mask: Tensor,
        operators: Tensor,
        scopable: Tensor | None = None,
    ) -> Scope:
        """Predict which tokens are in scope.

        Args:
            hidden: Input of the layer's self-attention. Shape ``(batch, tokens, features)``.
            cue: Cue probabilities, 0 on padding. Shape ``(batch, tokens, operators)``.
            mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
            operators: Operator embeddings. Shape ``(operators, d_o)``.
            scopable: 1 for tokens that can be in scope, by default all. Shape as the mask.
        """
        scale, shift = self.film(operators).chunk(2, dim=-1)
        shift = torch.addcmul(shift, scale, self.bias)
        logits = torch.addcmul(shift, scale, self.conv(hidden, cue, mask))
        if self.training and self.config.use_noise:
            probability = gumbel_sigmoid(logits, self.config.scope_temperature)
        else:
            probability = torch.sigmoid(logits / self.config.scope_temperature)
        threshold: Tensor = self.threshold
        if self.config.bounded_scope:
            logits = logits / self.config.scope_temperature - threshold[:, None]
            threshold = torch.sigmoid(threshold)
        margin = probability - threshold[:, None]
        allowed = (mask if scopable is None else scopable)[..., None, None]
        return Scope(logits, straight_through(margin > 0, margin) * allowed)

    def conv(self, hidden: Tensor, cue: Tensor, mask: Tensor) -> Tensor:
        """Convolve ``[H; p]`` without the bias. Shape ``(batch, tokens, operators, heads)``."""
        taps = F.linear(hidden, self.hidden_weight).view(*hidden.shape[:2], *self.shape)
        taps = torch.addcmul(taps, cue[:, :, None, :, None], self.cue_weight)
        reach = self.config.kernel // 2
        # Padding must not change its neighbours.
        taps = F.pad(taps * mask[:, :, None, None, None], (0, 0, 0, 0, 0, 0, reach, reach))
        n_tokens = hidden.shape[1]
        # unbind: its backward pass is one stack, where indexing makes a tensor for each tap.
        shifted = [tap[:, k : k + n_tokens] for k, tap in enumerate(taps.unbind(2))]
        return torch.stack(shifted).sum(0) if len(shifted) > 3 else sum(shifted[1:], shifted[0])


def gumbel_sigmoid(logits: Tensor, temperature: float) -> Tensor:
    r"""Sample a relaxed Bernoulli: :math:`\sigma((z + g_1 - g_2)/\tau)`, g standard Gumbel.

    The difference of two Gumbel draws is one logistic draw. It comes from torch's global
    generator, which gradient checkpointing restores.
    """
    noise = torch.logit(torch.rand_like(logits, dtype=torch.float32), eps=NOISE_EPS)
    return torch.sigmoid((logits + noise.to(logits.dtype)) / temperature)
