"""The operator gate: which experts are open for a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001

NO_OWNER = -1  # owner of lexicon phrases that contain a cue word and are no cue, like "not only"


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

        The hidden state, the first layer's input, is ``(batch, tokens, hidden)``, the mask of 0
        and 1 ``(batch, tokens)``, the operators' embeddings ``(operators, d_o)``.
        """
        shifted = hidden[:, None] + self.operator(operators)[None, :, None]
        return cast("Tensor", self.score(shifted).squeeze(-1))


class CuePredictor(nn.Module):
    r"""The corrected variant: a convolution for context, then one linear layer for each operator.

    .. math:: z_{e,i} = r_e \cdot [H_i ;\, \mathrm{relu}(\mathrm{Conv}(H)_i)] + b_e, \qquad
              r_e = W_r o_e

    The weights come from the operator's embedding, so each operator has its own direction. With
    the convolution "as" can be a cue in "as well as" and none in "as large as".
    """

    def __init__(self, config: BoolAttnConfig, hidden_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(hidden_size, config.cue_channels, config.cue_kernel, padding="same")
        n_features = hidden_size + config.cue_channels
        self.row = nn.Linear(config.d_o, n_features, bias=False)
        # Weights of unit length and a low bias: before training few tokens are cues.
        nn.init.normal_(self.row.weight, std=(config.d_o * n_features) ** -0.5)
        self.bias = nn.Parameter(torch.full((len(config.operators),), -2.0))

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
    return (PaperCuePredictor if config.is_paper else CuePredictor)(config, hidden_size)


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


@dataclass(frozen=True)
class Gate:
    """Which experts are open."""

    open: Tensor  # 0 or 1, with a gradient if it was learned. Shape ``(batch, operators)``.
    logits: Tensor | None = None  # of the learned gate. Same shape.
    is_open: bool | None = None  # whether any is, if known without synchronising with a GPU


class LearnedGate(nn.Module):
    """The paper's gate: FFN over the mean embedding of the tokens, sigmoid, hard threshold."""

    def __init__(
        self, config: BoolAttnConfig, hidden_size: int, n_features: int | None = None
    ) -> None:
        super().__init__()
        self.config = config
        inner = config.rank or hidden_size // 2
        self.inner = nn.Linear(n_features or hidden_size, inner)
        self.outer = nn.Linear(inner, len(config.operators))

    def forward(self, hidden: Tensor, mask: Tensor) -> Gate:
        """Open experts. ``hidden``: ``(batch, tokens, hidden)``; ``mask``: ``(batch, tokens)``."""
        features = self.features(hidden, mask.to(hidden.dtype))
        logits = self.outer(F.relu(self.inner(features)))
        probability = torch.sigmoid(logits / self.config.gate_temperature)
        is_open = probability > self.config.gate_threshold
        return Gate(straight_through(is_open, probability), logits)

    def features(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return one vector for each text. ``(batch, tokens, hidden)`` -> ``(batch, features)``."""
        weights = mask / mask.sum(-1, keepdim=True).clamp(min=1)
        return torch.einsum("bl,bld->bd", weights, hidden)


class ContextGate(LearnedGate):
    r"""A learned gate over a convolution of the tokens, besides their mean.

    .. math:: G = \mathrm{FFN}([\max_i \mathrm{relu}(\mathrm{Conv}(X)_i) ;\,
              \mathrm{mean}_i X_i]), \qquad X = \mathrm{LayerNorm}(H)

    The mean has no word order, and a single cue changes it little. The convolution separates
    "not only" from "not", and its maximum over the text lets a single position decide. Dropout
    of tokens and features in training reduces overfitting to the cues of the training data.
    """

    def __init__(self, config: BoolAttnConfig, hidden_size: int) -> None:
        n_channels = min(config.gate_channels, config.rank or config.gate_channels)
        super().__init__(config, hidden_size, hidden_size + n_channels)
        self.norm = nn.LayerNorm(hidden_size)
        self.conv = nn.Conv1d(hidden_size, n_channels, config.gate_kernel, padding="same")

    def features(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return one vector for each text; shapes as in :class:`LearnedGate`."""
        # A frozen gate draws no random numbers.
        is_trained = torch.is_grad_enabled() and self.outer.weight.requires_grad
        is_dropping, seen = self.training and self.config.use_noise and is_trained, mask
        if is_dropping:
            seen = mask * (torch.rand_like(mask) >= self.config.gate_token_dropout)
        # Padding is set to zero, so that it acts like the convolution's own padding.
        visible = self.norm(hidden) * seen[..., None]
        context = F.relu(self.conv(visible.transpose(1, 2))).transpose(1, 2)
        # After relu nothing is below 0, so zeros on padding do not change the maximum.
        strongest = (context * mask[..., None]).amax(1)
        mean = visible.sum(1) / mask.sum(-1, keepdim=True).clamp(min=1)
        features = torch.cat([strongest, mean.to(strongest.dtype)], dim=-1)
        return F.dropout(features, self.config.gate_dropout, training=is_dropping)


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Return exactly ``hard``, with the gradient of ``soft``."""
    value = hard.to(soft.dtype)
    return value + (soft - soft.detach()) if soft.requires_grad else value


def learned_gate(config: BoolAttnConfig, hidden_size: int) -> LearnedGate:
    """Build the learned gate of the settings."""
    return (ContextGate if config.gate_reads == "context" else LearnedGate)(config, hidden_size)


class LexiconGate(nn.Module):
    """Opens an expert if the token ids contain one of its cues.

    The lexicon is compiled to id sequences for one tokenizer and saved as buffers. As in the
    lexicon itself, a token covered by several cues belongs to the longest.

    Args:
        cues: Token ids of the cues, -1 beyond a cue's end. Shape ``(cues, longest)``.
        owners: Index of each cue's operator among AND, OR, NOT, or ``NO_OWNER``. ``(cues,)``.
        word_flags: For each vocabulary id, bit 0: continues the word before it; bit 1: the next
            token can continue it. uint8. Shape ``(vocabulary,)``.
    """

    cues: Tensor
    owners: Tensor
    word_flags: Tensor

    def __init__(self, cues: Tensor, owners: Tensor, word_flags: Tensor) -> None:
        super().__init__()
        for name, value in (("cues", cues), ("owners", owners), ("word_flags", word_flags)):
            self.register_buffer(name, value)

    def forward(self, input_ids: Tensor, mask: Tensor) -> Gate:
        """Open experts. Both shapes ``(batch, tokens)``."""
        return Gate(self.cue_mask(input_ids, mask).any(-1).to(torch.float32))

    def cue_mask(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Mark the tokens of every cue. Boolean, shape ``(batch, operators, tokens)``."""
        n_tokens, longest = input_ids.shape[1], self.cues.shape[1]
        ids = F.pad(input_ids.masked_fill(mask == 0, -2), (0, longest), value=-2)
        lengths = (self.cues >= 0).sum(-1)
        hit = self._is_whole_word(input_ids, lengths)
        # Slices, because unfold and boolean indexing fix the length when exported; one at a time,
        # because a cased vocabulary has about a thousand spellings.
        for k in range(longest):
            cue = self.cues[:, k]
            hit = hit & ((ids[:, k : k + n_tokens, None] == cue) | (cue < 0))
        # The longest of an owner's cues that start at a token covers the tokens of the others.
        owned = (hit & (self.owners == owner) for owner in (NO_OWNER, 0, 1, 2))
        reach = torch.stack([torch.where(hits, lengths, 0).amax(-1) for hits in owned], 1)
        # Each cue's length is copied from its first token to all its tokens.
        covered = reach
        for step in range(1, longest):
            moved = F.pad(reach, (step, 0))[..., :n_tokens]
            covered = torch.maximum(covered, torch.where(moved > step, moved, 0))
        return ((covered == covered.amax(1, keepdim=True)) & (covered > 0))[:, 1:]

    def _is_whole_word(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Whether a cue of each length may start at each token. ``(batch, tokens, cues)``."""
        # Tokens added after the lexicon was compiled are treated as its last one.
        known = input_ids.clamp(max=len(self.word_flags) - 1)
        flags = self.word_flags[known].to(torch.int64)
        # joined[i]: token i continues the word of token i - 1.
        joined = F.pad((flags & 1)[:, 1:] & (flags >> 1)[:, :-1], (1, int(self.cues.shape[1]) + 1))
        n_tokens = input_ids.shape[1]
        ends = torch.arange(n_tokens, device=input_ids.device)[:, None] + lengths
        return (joined[:, :n_tokens, None] == 0) & (joined[:, ends] == 0)
