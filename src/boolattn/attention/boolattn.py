"""BoolAttn: cue, scope, bias and gate put together into one bias for each layer.

May import: boolattn.attention.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from boolattn.attention.bias import Bias, BiasPredictor
from boolattn.attention.config import BoolAttnConfig  # noqa: TC001 - mypy and readers
from boolattn.attention.cue import cue_predictor
from boolattn.attention.factors import Factors
from boolattn.attention.gate import Gate, LexiconGate, learned_gate
from boolattn.attention.position import REMEMBERED, position_weight, squared_distance
from boolattn.attention.scope import Scope, ScopePredictor


@dataclass(frozen=True)
class CueState:
    """What was read off a batch before its first layer; every layer uses it.

    Attributes:
        mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
        gate: Which experts are open.
        cue_logits: Shape ``(batch, operators, tokens)``.
        cue: Cue probabilities, 0 on padding. Same shape.
        squared: Squared relative positions. Shape ``(operators, tokens, cues)``.
        positions: Weights around the cues by layer, ``(batch, operators, tokens)`` each, where
            they were worked out for all layers at once.
    """

    mask: Tensor
    gate: Gate
    cue_logits: Tensor
    cue: Tensor
    squared: Tensor
    positions: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerBias:
    """One layer's bias, and the parts it was made of."""

    scope: Scope
    bias: Bias
    factors: Factors


class BoolAttnLayer(nn.Module):
    """Scope and bias experts of one encoder layer, and their sum."""

    def __init__(self, config: BoolAttnConfig, hidden_size: int, n_heads: int) -> None:
        super().__init__()
        self.config = config
        n_features = config.rank or hidden_size
        # Fused kernels on GPUs want a head width that 8 divides, the appended factors included.
        head_size = hidden_size // n_heads
        self.n_blank = -(head_size + config.n_operators) % 8
        self.score_scale = head_size**-0.5
        self.reduce = nn.Linear(hidden_size, config.rank) if config.rank else nn.Identity()
        self.scope = ScopePredictor(config, n_features, n_heads)
        self.bias = BiasPredictor(config, n_features, n_heads)

    def forward(
        self,
        hidden: Tensor,
        cues: CueState,
        operators: Tensor,
        position: Tensor | None = None,
    ) -> LayerBias:
        r"""Compute the bias that is added to this layer's scores.

        .. math:: \sum_{e \in \{and, or\}} G_e\, s_i s_j b_j \;-\; G_{not}\, s_j b_j

        Args:
            hidden: What enters self-attention. Shape ``(batch, tokens, hidden)``.
            cues: From :meth:`BoolAttn.find_cues`.
            operators: Operator embeddings. Shape ``(operators, d_o)``.
            position: This layer's of ``cues.positions``.
        """
        hidden = self.reduce(hidden)
        cue = cues.cue.transpose(1, 2).to(hidden.dtype)
        scope = self.scope(hidden, cue, cues.mask.to(hidden.dtype), operators)
        bias = self.bias(hidden, cues.cue, cues.squared, operators, position)
        # Divided by what attention will multiply it with.
        weight = bias.strength * (cues.gate.open / self.score_scale)[:, None, :, None]
        weight = scope.inside * weight.to(scope.inside.dtype)
        return LayerBias(scope, bias, self._factors(scope.inside, weight))

    def _factors(self, inside: Tensor, weight: Tensor) -> Factors:
        """AND and OR act between tokens in scope; NOT, last on its axis, on single tokens."""
        n_texts, n_tokens, _, n_heads = inside.shape
        blank = inside.new_zeros(1).expand(n_texts, n_tokens, self.n_blank, n_heads)
        query, key = [inside, blank], [weight, blank]
        if "not" in self.config.operators:
            mutual, pressed = weight.split([self.config.n_operators - 1, 1], 2)
            pushed = -pressed
            everywhere = torch.ones_like(pushed)
            # The letter is a mask of shape (L, 1), constant along the keys, which softmax
            # cancels (defect 1); corrected, the same numbers stand along the keys.
            asks, answers = (pushed, everywhere) if self.config.is_paper else (everywhere, pushed)
            query = [inside[:, :, :-1], asks, blank]
            key = [mutual, answers, blank]
        return Factors(
            torch.cat(query, 2).permute(0, 3, 1, 2),
            torch.cat(key, 2).permute(0, 3, 1, 2),
            self.score_scale,
        )


class BoolAttn(nn.Module):
    """The plug-in: operator embeddings, cue predictor, gate, and one expert set a layer.

    Args:
        config: The plug-in's settings.
        hidden_size: Width of the encoder.
        n_heads: Attention heads of the encoder.
        n_layers: Layers of the encoder.
        lexicon: The compiled cue lexicon, where ``config.gate`` is ``lexicon``.
    """

    #: For whoever puts it into an encoder: what has to be taken back.
    attached: Any = None

    def __init__(
        self,
        config: BoolAttnConfig,
        *,
        hidden_size: int,
        n_heads: int,
        n_layers: int,
        lexicon: LexiconGate | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.operators = nn.Parameter(torch.randn(config.n_operators, config.d_o))
        self.cue = cue_predictor(config, hidden_size)
        self.gate = learned_gate(config, hidden_size) if config.gate == "learned" else lexicon
        chosen = range(n_layers) if config.layers is None else config.layers
        self.layers = nn.ModuleDict(
            {str(index): BoolAttnLayer(config, hidden_size, n_heads) for index in chosen}
        )

    def find_cues(self, hidden: Tensor, mask: Tensor, gate: Gate) -> CueState:
        """Find the cues of a batch.

        Args:
            hidden: What enters the first layer. Shape ``(batch, tokens, hidden)``.
            mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
            gate: A label's, the lexicon's or the learned one's.
        """
        mask = mask.to(hidden.dtype)
        logits = self.cue(hidden, mask, self.operators)
        cue = torch.sigmoid(logits.float()) * mask[:, None]
        squared = squared_distance(self.config, hidden.shape[1], hidden.device)
        return CueState(mask, gate, logits, cue, squared, self._positions(cue, squared))

    def _positions(self, cue: Tensor, squared: Tensor) -> dict[str, Tensor]:
        """Weight tokens by their cues for all layers at once, which differ only in sigma.

        Only in training, where it spares a GPU many small kernels, and only for short texts, for
        which all layers' pairs of tokens take little memory.
        """
        is_short = not torch.compiler.is_compiling() and cue.shape[-1] <= REMEMBERED
        if not (is_short and torch.is_grad_enabled()):
            return {}
        parts: dict[str, Any] = dict(self.layers.items())
        sigma = torch.cat([part.bias.sigma for part in parts.values()])
        n_layers = len(parts)
        weights = position_weight(
            self.config, cue.repeat(1, n_layers, 1), squared.repeat(n_layers, 1, 1), sigma
        )
        return dict(zip(parts, weights.chunk(n_layers, 1), strict=True))

    def compile_parts(self, **options: Any) -> None:
        """Compile the cue predictor and the experts, in place.

        They are many small operations: on a GPU, starting each of them takes longer than the work
        itself. All layers share one compiled graph; the first calls are slow.

        Args:
            **options: Passed to ``torch.compile``.
        """
        for part in (self.cue, *self.layers.values()):
            part.compile(**{"dynamic": True, **options})

    def forward(self, index: int, hidden: Tensor, cues: CueState) -> LayerBias:
        """Compute the bias of the encoder layer ``index``."""
        name = str(index)
        position = cues.positions.get(name)
        bias: LayerBias = self.layers[name](hidden, cues, self.operators, position)
        return bias
