"""The bias predictor: how strongly a token in scope is lifted or pressed down.

May import: boolattn.attention.config, boolattn.attention.position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001 - mypy and readers
from boolattn.attention.position import position_weight


@dataclass(frozen=True)
class Bias:
    """What one layer's bias predictor says.

    Attributes:
        position: Gaussian weight around the cues. Shape ``(batch, operators, tokens)``.
        strength: Never negative. Shape ``(batch, tokens, operators, heads)``.
    """

    position: Tensor
    strength: Tensor


class BiasPredictor(nn.Module):
    r"""Hidden state and distance to the cue in, a strength for each head out.

    .. math:: b_e = \mathrm{softplus}\big(\mathrm{FFN}_e([H; w_e]) \odot \sigma(W_{op} o_e)\big)

    The experts of all operators are stacked: one matrix product reads the hidden state for all.
    In the light form the hidden state arrives already projected to ``rank`` and that projection
    is the first layer of every expert's FFN.
    """

    def __init__(self, config: BoolAttnConfig, feature_size: int, n_heads: int) -> None:
        super().__init__()
        self.config = config
        n_operators = config.n_operators
        n_inner = config.rank or feature_size // 2
        self.n_inner = n_inner
        self.inner = nn.Linear(feature_size, n_operators * n_inner) if not config.rank else None
        bound = 1 / math.sqrt(feature_size + 1)
        if config.rank:
            self.inner_bias = nn.Parameter(_uniform(bound, n_operators, n_inner))
        self.position_weight = nn.Parameter(_uniform(bound, n_operators, n_inner))
        bound = 1 / math.sqrt(n_inner)
        self.outer_weight = nn.Parameter(_uniform(bound, n_operators, n_inner, n_heads))
        self.outer_bias = nn.Parameter(_uniform(bound, n_operators, 1, n_heads))
        self.operator = nn.Linear(config.d_o, n_heads)
        self.sigma = nn.Parameter(torch.full((n_operators,), float(config.sigma)))

    def forward(
        self,
        hidden: Tensor,
        cue: Tensor,
        squared: Tensor,
        operators: Tensor,
        position: Tensor | None = None,
    ) -> Bias:
        """Say how strong the bias of every token is.

        Args:
            hidden: What enters the layer's self-attention. Shape ``(batch, tokens, features)``.
            cue: Cue probabilities, 0 on padding. Shape ``(batch, operators, tokens)``.
            squared: Squared relative positions. Shape ``(operators, tokens, cues)``.
            operators: Operator embeddings. Shape ``(operators, d_o)``.
            position: Weight around the cues, where it is known; left out, it is worked out.
        """
        if position is None:
            position = position_weight(self.config, cue, squared, self.sigma)
        near = position.transpose(1, 2)[..., None].to(hidden.dtype)
        inner = torch.addcmul(self._read(hidden), near, self.position_weight).relu_()
        # (batch, tokens, operators, inner) seen as one matrix for each operator.
        experts = inner.flatten(0, 1).transpose(0, 1)
        scores = torch.baddbmm(self.outer_bias, experts, self.outer_weight)
        scores = F.softplus(scores * torch.sigmoid(self.operator(operators))[:, None])
        strength = scores.view(len(scores), *hidden.shape[:2], -1).permute(1, 2, 0, 3)
        return Bias(position, strength)

    def _read(self, hidden: Tensor) -> Tensor:
        """First layer of every expert. Shape ``(batch, tokens, operators, inner)``."""
        if self.inner is None:
            return hidden[:, :, None] + self.inner_bias
        read: Tensor = self.inner(hidden)
        return read.view(*hidden.shape[:2], self.config.n_operators, self.n_inner)


def _uniform(bound: float, *shape: int) -> Tensor:
    """Values as a linear layer is born with."""
    return torch.empty(shape).uniform_(-bound, bound)
