"""BoolAttn: one attention bias for each layer, from cue, scope, bias and gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import torch
from torch import Tensor, nn

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001
from boolattn.attention.cue import cue_predictor, shuffle
from boolattn.attention.experts import ExpertCues, near_function
from boolattn.attention.folding import FoldedWeights, Parts, are_own
from boolattn.attention.gate import Gate, LexiconGate, learned_gate
from boolattn.attention.layer import BoolAttnLayer, CueState
from boolattn.attention.position import N_CACHED, position_precision, position_weight, words

if TYPE_CHECKING:
    from boolattn.attention.cue import CuePredictor
    from boolattn.attention.factors import AttentionBias
    from boolattn.attention.folded import FoldedCues
    from boolattn.attention.gpu.kernel_bias import KernelCues


#: Cues of the reference, of training, of folded weights, and of the GPU kernels.
AnyCues: TypeAlias = "CueState | ExpertCues | FoldedCues | KernelCues"


class BoolAttn(nn.Module):
    """The plug-in: operator embeddings, cue predictor, gate, and the experts of each layer.

    Args:
        config: The plug-in's settings.
        hidden_size: Of the encoder.
        n_heads: Attention heads of the encoder.
        n_layers: Layers of the encoder.
        lexicon: The compiled cue lexicon, if ``config.gate`` is ``lexicon``.
    """

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
        self._fold_on, self._folded = (
            cast("tuple[str, ...]", ()),
            cast("FoldedWeights | None", None),
        )
        self.operators = nn.Parameter(torch.randn(config.n_operators, config.d_o))
        self.cue = cue_predictor(config, hidden_size)
        self.gate = learned_gate(config, hidden_size) if config.gate == "learned" else lexicon
        chosen = range(n_layers) if config.layers is None else config.layers
        self.layers = nn.ModuleDict(
            {str(index): BoolAttnLayer(config, hidden_size, n_heads) for index in chosen}
        )

    def find_cues(
        self, hidden: Tensor, mask: Tensor, gate: Gate, *, may_fold: bool = False
    ) -> AnyCues:
        """Predict the cues of a batch.

        Args:
            hidden: Input of the first layer. Shape ``(batch, tokens, hidden)``.
            mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
            gate: From oracle labels, the lexicon or the learned gate.
            may_fold: Whether folded weights may be used, which give no scope logits.
        """
        if may_fold and (folded := self._current_fold()) is not None:
            return folded.find_cues(hidden, mask, gate)
        scopable = words(mask) if self.config.bounded_scope else mask
        mask, scopable = mask.to(hidden.dtype), scopable.to(hidden.dtype)
        logits = self.cue(hidden, mask, self.operators)
        cue = torch.sigmoid(logits.float()) * mask[:, None]
        if self.config.cue_seed is not None:
            cue = shuffle(cue, mask, self.config.cue_seed)
        may_fold = may_fold and torch.is_grad_enabled() and hidden.device.type in self._fold_on
        if torch.compiler.is_compiling() or not (may_fold and are_own(self.layers.modules())):
            may_fold = False
        positions = self._positions(cue, near_function(cue) if may_fold else None)
        found = CueState(mask, scopable, gate, logits, cue, positions)
        if not may_fold:
            return found
        layers: dict[int, Any] = {int(name): layer for name, layer in self.layers.items()}
        return ExpertCues.find(found, layers, self.operators)

    def _positions(self, cue: Tensor, function: Any = None) -> dict[str, Tensor]:  # noqa: ANN401
        """Compute the position weights of all layers at once; layers differ only in sigma.

        Only in training, where it saves many small GPU kernels; without a ``function`` of kernels
        only for short texts, where the pairs of tokens of all layers take little memory.
        """
        if function is not None:
            sigmas = torch.stack([cast("Any", layer).bias.sigma for layer in self.layers.values()])
            near = function.apply(cue, position_precision(sigmas), self.config)
            return dict(zip(self.layers, near.unbind(), strict=True))
        is_short = not torch.compiler.is_compiling() and cue.shape[-1] <= N_CACHED
        if not (is_short and torch.is_grad_enabled()):
            return {}
        layers: dict[str, Any] = dict(self.layers.items())
        n = len(layers)
        sigma = torch.cat([layer.bias.sigma for layer in layers.values()])
        weights = position_weight(self.config, cue.repeat(1, n, 1), sigma)
        return dict(zip(layers, weights.chunk(n, 1), strict=True))

    def fold(self, *devices: str) -> None:
        """Fold the weights, for faster encoding and training; on all devices by default.

        Retrievers do so on a CPU. On a GPU it is for those who ask: of all GPUs the kernels were
        run on an H200 alone. With gradients the weights of all layers are put together in every
        pass, for fewer operations; not while recording or compiling.

        Kept in ``eval`` mode without gradients, autocast, recording or a compiler, and made anew
        after ``train()`` or when a parameter or a module was changed, replaced or moved; not used
        with modules that are not BoolAttn's own, or with hooks. A write to ``parameter.data`` in
        ``eval`` mode is not noticed: call this again.
        """
        own = (*self._fold_on, *(devices or ("cpu", "cuda")))
        self._fold_on, self._folded = own if self.config.can_fold else (), None

    def train(self, mode: bool = True) -> Self:
        """Set the mode; folded weights do not outlive training, not even in recorded graphs."""
        if mode:
            self._folded = None
        return super().train(mode)

    def _current_fold(self) -> FoldedWeights | None:
        """Return the folded weights where they can be used."""
        device = self.operators.device.type
        if device not in self._fold_on or self.training or torch.is_grad_enabled():
            return None
        if torch.compiler.is_compiling() or torch.is_autocast_enabled(device):
            return None
        if self.operators.is_inference():
            return None  # such tensors do not count their changes
        if self._folded is None or not self._folded.is_current():
            cue = cast("CuePredictor", self.cue)
            layers: dict[int, Any] = {int(name): layer for name, layer in self.layers.items()}
            modules = [self, *cue.modules(), *self.layers.modules()]
            self._folded = FoldedWeights(Parts(self.config, self.operators, cue, layers), modules)
        return self._folded if self._folded.is_own else None

    def forward(self, index: int, hidden: Tensor, cues: AnyCues) -> AttentionBias:
        """Compute the bias of the encoder layer ``index``."""
        if not isinstance(cues, CueState):
            return cues.bias(index, hidden)
        name = str(index)
        position = cues.positions.get(name)
        bias: AttentionBias = self.layers[name](hidden, cues, self.operators, position)
        return bias
