"""The cue predictor: which tokens announce an operator.

May import: boolattn.attention.config.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001 - mypy and readers


class PaperCuePredictor(nn.Module):
    r"""The paper's letter: :math:`p = \sigma(W_c (H + W_o o + b_o) + b_c)`.

    The operator only shifts every logit of a text by one constant, so all operators point at
    the same tokens (defect 3), and each token is read alone (defect 5).
    """

    def __init__(self, config: BoolAttnConfig, hidden_size: int) -> None:
        super().__init__()
        self.operator = nn.Linear(config.d_o, hidden_size)
        self.score = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Tensor, mask: Tensor, operators: Tensor) -> Tensor:
        """Score every token as a cue of every operator.

        Args:
            hidden: What enters the first layer. Shape ``(batch, tokens, hidden)``.
            mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
            operators: Operator embeddings. Shape ``(operators, d_o)``.

        Returns:
            Logits. Shape ``(batch, operators, tokens)``.
        """
        shifted = hidden[:, None] + self.operator(operators)[None, :, None]
        logits: Tensor = self.score(shifted).squeeze(-1)
        return logits


class CuePredictor(nn.Module):
    r"""Corrected: a narrow convolution for context, then one read-out an operator.

    .. math:: z_{e,i} = r_e \cdot [H_i ;\, \mathrm{relu}(\mathrm{Conv}(H)_i)] + b_e, \qquad
              r_e = W_r o_e

    The read-out row comes from the operator's embedding, so AND and NOT have directions of their
    own; the convolution lets "as" be a cue in "as well as" and nothing in "as large as".
    """

    def __init__(self, config: BoolAttnConfig, hidden_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(
            hidden_size, config.cue_channels, config.cue_kernel, padding=config.cue_kernel // 2
        )
        n_features = hidden_size + config.cue_channels
        self.row = nn.Linear(config.d_o, n_features, bias=False)
        # Rows of unit length, and most tokens no cue: a fresh predictor claims nothing loudly.
        nn.init.normal_(self.row.weight, std=(config.d_o * n_features) ** -0.5)
        self.bias = nn.Parameter(torch.full((config.n_operators,), -2.0))

    def forward(self, hidden: Tensor, mask: Tensor, operators: Tensor) -> Tensor:
        """Score every token as a cue of every operator; shapes as in the paper's form."""
        # Padding is zeroed first: beyond its end a text alone meets the convolution's zeros.
        visible = (hidden * mask[..., None]).transpose(1, 2)
        context = F.relu(self.conv(visible)).transpose(1, 2)
        features = torch.cat([hidden, context], dim=-1)
        logits: Tensor = features @ self.row(operators).T + self.bias
        return logits.transpose(1, 2)


def cue_predictor(config: BoolAttnConfig, hidden_size: int) -> nn.Module:
    """Build the cue predictor of the chosen variant."""
    kind = PaperCuePredictor if config.is_paper else CuePredictor
    return kind(config, hidden_size)
