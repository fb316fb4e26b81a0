"""The cue predictor: which tokens are cues of an operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001


class PaperCuePredictor(nn.Module):
    r"""The paper variant: :math:`p = \sigma(W_c (H + W_o o + b_o) + b_c)`.

    The operator only shifts every logit of a text by one constant, so all operators have the
    same cues (error 3), and a token's context is ignored (error 5).
    """

    def __init__(self, config: BoolAttnConfig, hidden_size: int) -> None:
        super().__init__()
        self.operator = nn.Linear(config.d_o, hidden_size)
        self.score = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Tensor, mask: Tensor, operators: Tensor) -> Tensor:
        """Return logits of every token as a cue. Shape ``(batch, operators, tokens)``.

        Args:
            hidden: Input of the first layer. Shape ``(batch, tokens, hidden)``.
            mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
            operators: Operator embeddings. Shape ``(operators, d_o)``.
        """
        shifted = hidden[:, None] + self.operator(operators)[None, :, None]
        logits: Tensor = self.score(shifted).squeeze(-1)
        return logits


class CuePredictor(nn.Module):
    r"""The corrected variant: a convolution for context, then one linear layer for each operator.

    .. math:: z_{e,i} = r_e \cdot [H_i ;\, \mathrm{relu}(\mathrm{Conv}(H)_i)] + b_e, \qquad
              r_e = W_r o_e

    The weights come from the operator's embedding, so each operator has its own direction. With
    the convolution "as" can be a cue in "as well as" and none in "as large as".
    """

    def __init__(self, config: BoolAttnConfig, hidden_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(
            hidden_size, config.cue_channels, config.cue_kernel, padding=config.cue_kernel // 2
        )
        n_features = hidden_size + config.cue_channels
        self.row = nn.Linear(config.d_o, n_features, bias=False)
        # Weights of unit length and a low bias: before training few tokens are cues.
        nn.init.normal_(self.row.weight, std=(config.d_o * n_features) ** -0.5)
        self.bias = nn.Parameter(torch.full((config.n_operators,), -2.0))

    def forward(self, hidden: Tensor, mask: Tensor, operators: Tensor) -> Tensor:
        """Return logits of every token as a cue; shapes as in the paper variant."""
        # Padding is set to zero, so that it acts like the convolution's own padding.
        visible = (hidden * mask[..., None]).transpose(1, 2)
        context = F.relu(self.conv(visible)).transpose(1, 2)
        features = torch.cat([hidden, context], dim=-1)
        logits: Tensor = features @ self.row(operators).T + self.bias
        return logits.transpose(1, 2)


def cue_predictor(config: BoolAttnConfig, hidden_size: int) -> nn.Module:
    """Build the cue predictor of the chosen variant."""
    kind = PaperCuePredictor if config.is_paper else CuePredictor
    return kind(config, hidden_size)


def shuffle(cue: Tensor, mask: Tensor, seed: int) -> Tensor:
    """Move cue probabilities to other tokens of their text, which keeps their rate.

    The order depends on the seed and on the text's length alone, so a text has the same cues in
    every batch. Shapes ``(batch, operators, tokens)`` and ``(batch, tokens)``.
    """
    is_token = mask != 0
    rank = is_token.cumsum(-1)
    # Hashed integers are the same on every device, and a CUDA graph can record them.
    keys = rank + 4096 * rank[:, -1:] + 1_000_003 * (seed + 1)
    for _ in range(2):
        keys = (keys ^ (keys >> 16)) * 73_244_475 % 2**32
    sources, targets = (
        order.masked_fill(~is_token, 2**32).argsort(stable=True) for order in (keys, rank)
    )
    moved = torch.zeros_like(sources).scatter(-1, targets, sources)
    return cue.gather(-1, moved[:, None].expand_as(cue))
