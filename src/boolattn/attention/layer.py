"""The scope and bias experts of one encoder layer: the reference of every faster form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from boolattn.attention.bias import BiasPredictor
from boolattn.attention.config import BoolAttnConfig  # noqa: TC001
from boolattn.attention.factors import AttentionBias, Factors, bias_factors
from boolattn.attention.gate import Gate  # noqa: TC001
from boolattn.attention.position import position_weight
from boolattn.attention.scope import Scope, ScopePredictor


@dataclass(frozen=True)
class CueState:
    """Cues and gate of a batch, computed before the first layer and used by every layer.

    Attributes:
        mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
        scopable: 1 for tokens that can be in scope. Same shape.
        gate: Which experts are open.
        cue_logits: Shape ``(batch, operators, tokens)``.
        cue: Cue probabilities, 0 on padding. Same shape.
    """

    mask: Tensor
    scopable: Tensor
    gate: Gate
    cue_logits: Tensor
    cue: Tensor


@dataclass(frozen=True)
class LayerBias(AttentionBias):
    """One layer's scopes, and its bias as factors."""

    scope: Scope
    factors: Factors


class BoolAttnLayer(nn.Module):
    """Scope and bias experts of one encoder layer.

    A strength that is above 0 from the start disturbs the encoder before anything is learned
    (error 7); corrected, a learned factor of each operator and head multiplies it, 0 at first.
    """

    factor: Tensor | None

    def __init__(self, config: BoolAttnConfig, hidden_size: int, n_heads: int) -> None:
        super().__init__()
        self.config = config
        n_features = config.rank or hidden_size
        self.head_size = hidden_size // n_heads
        self.reduce = nn.Linear(hidden_size, config.rank) if config.rank else nn.Identity()
        self.scope = ScopePredictor(config, n_features, n_heads)
        self.bias = BiasPredictor(config, n_features, n_heads)
        factor = nn.Parameter(torch.zeros(config.n_operators, n_heads))
        self.register_parameter("factor", factor if config.use_factor else None)

    def forward(self, hidden: Tensor, cues: CueState, operators: Tensor) -> LayerBias:
        r"""Compute the bias that is added to this layer's scores.

        .. math:: \sum_{e \in \{and, or\}} G_e\, f_e\, s_i s_j b_j \;-\; G_{not}\, f_{not}\, s_j b_j

        Args:
            hidden: Input of self-attention. Shape ``(batch, tokens, hidden)``.
            cues: From :meth:`BoolAttn.find_cues`.
            operators: Operator embeddings. Shape ``(operators, d_o)``.
        """
        hidden = self.reduce(hidden)
        cue = cues.cue.transpose(1, 2).to(hidden.dtype)
        mask, scopable = (part.to(hidden.dtype) for part in (cues.mask, cues.scopable))
        scope = self.scope(hidden, cue, mask, operators, scopable)
        position = position_weight(self.config, cues.cue, self.bias.sigma)
        strength = self.bias(hidden, position, operators)
        if self.config.fixed_bias is not None:
            # The predictor keeps a gradient, of 0.
            strength = 0.0 * strength + self.config.fixed_bias
        if self.factor is not None:
            strength = strength * self.factor
        weight = strength * cues.gate.open[:, None, :, None]
        weight = scope.inside * weight.to(scope.inside.dtype)
        has_not, is_paper = "not" in self.config.operators, self.config.is_paper
        factors = bias_factors(
            scope.inside, weight, self.head_size, has_not=has_not, is_paper=is_paper
        )
        return LayerBias(scope, factors)
