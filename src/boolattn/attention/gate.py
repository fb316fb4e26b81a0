"""The operator gate: which experts a text opens.

May import: boolattn.attention.config, boolattn.attention.sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001 - mypy and readers
from boolattn.attention.sampling import straight_through

#: Owner of the phrases of a lexicon that hold a cue word and announce nothing.
NO_OWNER = -1


@dataclass(frozen=True)
class Gate:
    """Which experts are open.

    Attributes:
        open: 0 or 1, with a gradient where it was learned. Shape ``(batch, operators)``.
        logits: The learned gate's scores, else ``None``. Same shape.
        is_open: Whether any is open, where that is known without looking: on a GPU a look
            makes the program wait.
    """

    open: Tensor
    logits: Tensor | None = None
    is_open: bool | None = None


class LearnedGate(nn.Module):
    r"""A classifier over the text: FFN, sigmoid at temperature 0.1, hard threshold.

    The paper's: it reads the mean of the embedding output over unpadded tokens.
    """

    def __init__(
        self, config: BoolAttnConfig, hidden_size: int, n_features: int | None = None
    ) -> None:
        super().__init__()
        self.config = config
        inner = config.rank or hidden_size // 2
        self.inner = nn.Linear(n_features or hidden_size, inner)
        self.outer = nn.Linear(inner, config.n_operators)

    def forward(self, hidden: Tensor, mask: Tensor) -> Gate:
        """Open experts. ``hidden``: ``(batch, tokens, hidden)``; ``mask``: ``(batch, tokens)``."""
        features = self.features(hidden, mask.to(hidden.dtype))
        logits = self.outer(F.relu(self.inner(features)))
        probability = torch.sigmoid(logits / self.config.gate_temperature)
        is_open = probability > self.config.gate_threshold
        return Gate(straight_through(is_open, probability), logits)

    def features(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Make one vector of a text. ``(batch, tokens, hidden)`` -> ``(batch, features)``."""
        weights = mask / mask.sum(-1, keepdim=True).clamp(min=1)
        return torch.einsum("bl,bld->bd", weights, hidden)


class ContextGate(LearnedGate):
    r"""A learned gate that reads words with their neighbours, beside the mean.

    .. math:: G = \mathrm{FFN}([\max_i \mathrm{relu}(\mathrm{Conv}(X)_i) ;\,
              \mathrm{mean}_i X_i]), \qquad X = \mathrm{LayerNorm}(H)

    A mean knows no order, and one cue among twenty words moves it by a twentieth. The
    convolution tells "not only" from "not", and its maximum over the text lets one place decide.
    Such a gate soon knows every cue of its training by heart; so while it learns, whole tokens
    and single features are dropped, and other words must do.
    """

    def __init__(self, config: BoolAttnConfig, hidden_size: int) -> None:
        n_channels = min(config.gate_channels, config.rank or config.gate_channels)
        super().__init__(config, hidden_size, hidden_size + n_channels)
        self.norm = nn.LayerNorm(hidden_size)
        self.conv = nn.Conv1d(
            hidden_size, n_channels, config.gate_kernel, padding=config.gate_kernel // 2
        )

    def features(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Make one vector of a text; shapes as in the paper's form."""
        is_learning = self._is_learning()
        seen = mask
        if is_learning:
            seen = mask * (torch.rand_like(mask) >= self.config.gate_token_dropout)
        # Padding is zeroed first: beyond its end a text alone meets the convolution's zeros.
        visible = self.norm(hidden) * seen[..., None]
        context = F.relu(self.conv(visible.transpose(1, 2))).transpose(1, 2)
        # None is below 0, so zeros on padding win nothing.
        strongest = (context * mask[..., None]).amax(1)
        mean = visible.sum(1) / mask.sum(-1, keepdim=True).clamp(min=1)
        features = torch.cat([strongest, mean.to(strongest.dtype)], dim=-1)
        return F.dropout(features, self.config.gate_dropout, training=is_learning)

    def _is_learning(self) -> bool:
        """Whether to drop anything; a frozen gate must leave the encoder its random numbers."""
        return (
            self.training
            and self.config.use_noise
            and torch.is_grad_enabled()
            and self.outer.weight.requires_grad
        )


def learned_gate(config: BoolAttnConfig, hidden_size: int) -> LearnedGate:
    """Build the learned gate that the settings ask for."""
    kind = ContextGate if config.gate_reads == "context" else LearnedGate
    return kind(config, hidden_size)


class LexiconGate(nn.Module):
    """Opens an expert where one of its cues stands in the token ids.

    The lexicon is compiled to id sequences once, for one tokenizer, and kept as buffers, so a
    saved plug-in reads plain text wherever its encoder runs. As in the lexicon itself, the
    longest cue wins every token it covers.

    Args:
        config: The plug-in's settings.
        cues: Token ids of the cues, -1 beyond a cue's end. Shape ``(cues, longest)``.
        owners: Index of each cue's operator among AND, OR, NOT; -1 for a phrase that holds a cue
            word and announces nothing. Shape ``(cues,)``.
        word_flags: For each vocabulary id, bit 0: goes on with the word before it; bit 1: can
            be gone on with. uint8. Shape ``(vocabulary,)``.
    """

    cues: Tensor
    owners: Tensor
    word_flags: Tensor

    def __init__(
        self, config: BoolAttnConfig, cues: Tensor, owners: Tensor, word_flags: Tensor
    ) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("cues", cues)
        self.register_buffer("owners", owners)
        self.register_buffer("word_flags", word_flags)

    def forward(self, input_ids: Tensor, mask: Tensor) -> Gate:
        """Open experts. Both shapes ``(batch, tokens)``."""
        return Gate(self.cue_mask(input_ids, mask).any(-1).to(torch.float32))

    def cue_mask(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Mark the tokens of every cue. Boolean, shape ``(batch, operators, tokens)``."""
        n_tokens, longest = input_ids.shape[1], self.cues.shape[1]
        ids = F.pad(input_ids.masked_fill(mask == 0, -2), (0, longest), value=-2)
        lengths = (self.cues >= 0).sum(-1)
        hit = self._is_whole_word(input_ids, lengths)
        # Slices rather than unfold and boolean indexing, which fix the length when exported; one
        # at a time, because a cased vocabulary has a thousand spellings.
        for k in range(longest):
            hit = hit & (
                (ids[:, k : k + n_tokens, None] == self.cues[:, k]) | (self.cues[:, k] < 0)
            )
        # Of the cues of one owner that start at one token the longest covers all the others do.
        owners = (NO_OWNER, 0, 1, 2)
        reach = torch.stack(
            [torch.where(hit & (self.owners == o), lengths, 0).amax(-1) for o in owners], 1
        )
        covered = _spread(reach, longest)
        wins = (covered == covered.amax(1, keepdim=True)) & (covered > 0)
        return torch.stack([wins[:, owners.index(o)] for o in self._owners()], 1)

    def _owners(self) -> list[int]:
        return [("and", "or", "not").index(name) for name in self.config.operators]

    def _is_whole_word(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Whether a cue of each length may start at each token. ``(batch, tokens, cues)``."""
        # Ids that came later than the lexicon, of added tokens, read as the last one known.
        known = input_ids.clamp(max=len(self.word_flags) - 1)
        flags = self.word_flags[known].to(torch.int64)
        goes_on, can_go_on = flags & 1, flags >> 1
        # joined[i]: token i continues the word of token i - 1.
        joined = F.pad(goes_on[:, 1:] & can_go_on[:, :-1], (1, int(self.cues.shape[1]) + 1))
        n_tokens = input_ids.shape[1]
        starts = torch.arange(n_tokens, device=input_ids.device)
        ends = starts[:, None] + lengths
        return (joined[:, :n_tokens, None] == 0) & (joined[:, ends] == 0)


def _spread(reach: Tensor, longest: int) -> Tensor:
    """Carry each cue's length from its first token over all its tokens, the last axis."""
    spread, n_tokens = reach, reach.shape[-1]
    for step in range(1, longest):
        moved = F.pad(reach, (step, 0))[..., :n_tokens]
        spread = torch.maximum(spread, torch.where(moved > step, moved, 0))
    return spread
