"""The bias predictor: how much the attention to a token in scope is changed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001


class BiasPredictor(nn.Module):
    r"""Predicts a strength for each head from the hidden state and the distance to the cue.

    .. math:: b_e = \mathrm{softplus}\big(\mathrm{FFN}_e([H; w_e]) \odot \sigma(W_{op} o_e)\big)

    The experts of all operators are stacked in one matrix product. With a ``rank`` the hidden
    state is already projected, and that projection is the first layer of every expert's FFN.
    """

    def __init__(self, config: BoolAttnConfig, feature_size: int, n_heads: int) -> None:
        super().__init__()
        n_operators = config.n_operators
        n_inner = config.rank or feature_size // 2
        self.inner = nn.Linear(feature_size, n_operators * n_inner) if not config.rank else None
        bound = 1 / math.sqrt(feature_size + 1)
        if config.rank:
            self.inner_bias = nn.Parameter(uniform(bound, n_operators, n_inner))
        self.position_weight = nn.Parameter(uniform(bound, n_operators, n_inner))
        bound = 1 / math.sqrt(n_inner)
        self.outer_weight = nn.Parameter(uniform(bound, n_operators, n_inner, n_heads))
        self.outer_bias = nn.Parameter(uniform(bound, n_operators, 1, n_heads))
        self.operator = nn.Linear(config.d_o, n_heads, bias=False)
        self.sigma = nn.Parameter(torch.full((n_operators,), float(config.sigma)))

    def forward(self, hidden: Tensor, position: Tensor, operators: Tensor) -> Tensor:
        """Return strengths, at least 0. Shape ``(batch, tokens, operators, heads)``.

        Args:
            hidden: Input of the layer's self-attention. Shape ``(batch, tokens, features)``.
            position: Gaussian weight around the cues. Shape ``(batch, operators, tokens)``.
            operators: Operator embeddings. Shape ``(operators, d_o)``.
        """
        if self.inner is None:
            inner = hidden[:, :, None] + self.inner_bias
        else:
            inner = self.inner(hidden).unflatten(-1, self.position_weight.shape)
        near = position.transpose(1, 2)[..., None].to(hidden.dtype)
        inner = torch.addcmul(inner, near, self.position_weight).relu_()
        # (batch, tokens, operators, inner) as one matrix for each operator.
        experts = inner.flatten(0, 1).transpose(0, 1)
        scores = torch.baddbmm(self.outer_bias, experts, self.outer_weight)
        scores = F.softplus(scores * torch.sigmoid(self.operator(operators))[:, None])
        return scores.view(len(scores), *hidden.shape[:2], -1).permute(1, 2, 0, 3)


def uniform(bound: float, *shape: int) -> Tensor:
    """Initial values of a linear layer or a convolution."""
    return torch.empty(shape).uniform_(-bound, bound)
