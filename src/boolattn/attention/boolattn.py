"""BoolAttn: one attention bias for each layer, from cue, scope, bias and gate."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor, nn

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001
from boolattn.attention.folded import are_foldable
from boolattn.attention.gate import Gate, LexiconGate, cue_predictor, learned_gate, shuffle
from boolattn.attention.layer import BoolAttnLayer, CueState, is_traced, words

if TYPE_CHECKING:
    from types import ModuleType

    from boolattn.attention.factors import AttentionBias
    from boolattn.attention.gpu.kernel_bias import KernelCues, KernelWeights


@cache
def kernels(device: torch.device) -> ModuleType | None:
    """Return the module that launches GPU kernels; ``None`` on a CPU or without Triton."""
    if device.type != "cuda":
        return None
    try:
        return import_module("boolattn.attention.gpu.kernel_bias")
    except ImportError:
        return None


def current_state(tensors: list[Tensor]) -> list[int]:
    """Return addresses and counts of changes; ``map`` is quick."""
    return [*map(Tensor.data_ptr, tensors), *map(attrgetter("_version"), tensors)]


class BoolAttn(nn.Module):
    """The plug-in: operator embeddings, cue predictor, gate, and the experts of each layer.

    The sizes are the encoder's. ``lexicon`` is the compiled cue lexicon, if that is the gate.
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
        self._may_fold = False
        #: Addresses and versions of the weights, and what was folded of them.
        self._folded: tuple[list[int], KernelWeights] | None = None
        #: Addresses and versions of the factors, and the layers where all are 0.
        self._idle: tuple[list[int], frozenset[int]] | None = None
        self.operators = nn.Parameter(torch.randn(len(config.operators), config.d_o))
        self.cue = cue_predictor(config, hidden_size)
        self.gate = learned_gate(config, hidden_size) if config.gate == "learned" else lexicon
        chosen = range(n_layers) if config.layers is None else config.layers
        layers = {str(index): BoolAttnLayer(config, hidden_size, n_heads) for index in chosen}
        self.layers = nn.ModuleDict(layers)

    def find_cues(
        self, hidden: Tensor, mask: Tensor, gate: Gate, *, may_fold: bool = False
    ) -> CueState | KernelCues:
        """Predict the cues of a batch.

        ``hidden``, the first layer's input, is ``(batch, tokens, hidden)``, the mask of 0 and 1
        ``(batch, tokens)``. With ``may_fold`` folded weights may be used, without scope logits.
        """
        if may_fold and (folded := self._current_fold()) is not None:
            return folded.find_cues(hidden, mask, gate.open)
        scopable = words(mask) if self.config.bounded_scope else mask
        mask, scopable = mask.to(hidden.dtype), scopable.to(hidden.dtype)
        logits = self.cue(hidden, mask, self.operators)
        cue = torch.sigmoid(logits.float()) * mask[:, None]
        if self.config.cue_seed is not None:
            cue = shuffle(cue, mask, self.config.cue_seed)
        return CueState(mask, scopable, gate, logits, cue)

    def idle_layers(self) -> frozenset[int]:
        """Return the layers that a pass leaves out: without gradients those with factors of 0.

        The factors are looked at once, and again after they change or after a pass with gradients,
        because a look makes a GPU wait. A compiler and a CUDA graph get every layer. A write to
        ``factor.data`` in ``eval`` mode is not noticed.
        """
        if is_traced(self.operators.device):
            return frozenset()
        if torch.is_grad_enabled():
            # A step may follow, and fused optimizers do not count their changes.
            self._folded = self._idle = None
        if torch.is_grad_enabled() or not self.config.use_factor:
            return frozenset()
        factors = [cast("Any", layer).factor for layer in self.layers.values()]
        # Tensors of inference mode do not count their changes.
        state = [] if any(map(Tensor.is_inference, factors)) else current_state(factors)
        if self._idle is None or self._idle[0] != state or not state:
            layers = zip(self.layers, torch.stack(factors).flatten(1).any(1).tolist(), strict=True)
            self._idle = state, frozenset(int(name) for name, is_set in layers if not is_set)
        return self._idle[1]

    def fold(self) -> None:
        """Fold the weights, for faster encoding on a GPU with Triton.

        It must be asked for: of all GPUs the kernels were run on an H200 alone.

        Kept in ``eval`` mode without gradients, autocast, recording or a compiler, and made anew
        after ``train()`` or when a parameter or a module was changed, replaced or moved; not used
        with modules that are not BoolAttn's own, or with hooks. A write to ``parameter.data`` in
        ``eval`` mode is not noticed: call this again.
        """
        self._may_fold, self._folded = True, None

    def train(self, mode: bool = True) -> Self:
        """Set the mode; what was computed of the weights does not outlive recorded training."""
        if mode:
            self._folded = self._idle = None
        return super().train(mode)

    def _current_fold(self) -> KernelWeights | None:
        """Return the folded weights where they can be used."""
        device = self.operators.device
        if not self._may_fold or self.training or torch.is_grad_enabled():
            return None
        if torch.compiler.is_compiling() or torch.is_autocast_enabled(device.type):
            return None
        # Tensors of inference mode do not count their changes.
        is_counted, launcher = not self.operators.is_inference(), kernels(device)
        if launcher is None or not (is_counted and self.config.can_fold):
            return None
        modules = [*self.cue.modules(), *self.layers.modules()]
        if not are_foldable(modules):
            return None
        weights = [w for module in modules for w in module._parameters.values() if w is not None]
        state = current_state([self.operators, *weights])
        if self._folded is None or self._folded[0] != state:
            self._folded = state, launcher.KernelWeights(self)
        return self._folded[1]

    def forward(self, index: int, hidden: Tensor, cues: CueState | KernelCues) -> AttentionBias:
        """Compute the bias of the encoder layer ``index``."""
        if not isinstance(cues, CueState):
            return cues.bias(index, hidden)
        return cast("AttentionBias", self.layers[str(index)](hidden, cues, self.operators))
