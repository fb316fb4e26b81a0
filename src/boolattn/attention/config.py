"""Settings of BoolAttn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from boolattn.errors import ConfigError
from boolattn.settings import build, check_types, limited

OPERATORS = ("and", "or", "not")  # the operator axis of every tensor


@dataclass(frozen=True, kw_only=True)
class BoolAttnConfig:
    """Settings of BoolAttn, checked on construction.

    The defaults are the paper's values; values that the paper does not give are marked *ours*.

    >>> BoolAttnConfig(gate="lexicon").variant
    'corrected'
    """

    operators: ClassVar[tuple[str, ...]] = OPERATORS  # the experts
    #: ``paper`` is as published, with its seven errors
    variant: str = limited("corrected", choices=("corrected", "paper"))
    #: What opens the experts in a call without operator labels: nothing (``label``, for oracle
    #: labels), the cue lexicon, or a trained classifier (``learned``)
    gate: str = limited("label", choices=("label", "lexicon", "learned"))
    #: Input of a learned gate: the ``mean`` of the tokens, as in the paper and by default in its
    #: variant, or their ``context`` as well (*ours*); ``None`` for every other gate
    gate_reads: str | None = limited(None, choices=("mean", "context"))
    d_o: int = limited(10, above=0)  # size of an operator embedding
    kernel: int = limited(3, above=0, is_odd=True)  # of the scope predictor's convolution (*ours*)
    #: Of the corrected cue predictor's convolution, 1 for no context; and its channels (*ours*)
    cue_kernel: int = limited(5, above=0, is_odd=True)
    cue_channels: int = limited(8, above=0)
    window: int = limited(5, above=0)  # largest relative position of AND and OR
    sigma: float = limited(2.0, above=0)  # initial width of the Gaussian around a cue; trainable
    #: Initial scope probability above which a token is in scope; trainable
    threshold: float = limited(0.5, above=0, below=1)
    #: Whether that threshold stays between 0 and 1, and a text's first and last token ([CLS],
    #: [SEP]) are never in scope. Default: only in the corrected variant
    bounded_scope: bool | None = None
    #: Whether a learned factor of each operator and head, 0 at first, multiplies the strength: an
    #: untrained plug-in changes nothing. Default: in the corrected variant without ``fixed_bias``
    use_factor: bool | None = None
    scope_temperature: float = limited(1.0, above=0)  # of the Gumbel-sigmoid (*ours*)
    use_noise: bool = True  # whether training samples scopes and uses the gate's dropout
    gate_temperature: float = limited(0.1, above=0)  # divides the learned gate's logits
    #: Probability above which the learned gate opens (*ours*)
    gate_threshold: float = limited(0.5, above=0, below=1)
    #: Of the contextual gate's convolution, with its channels, at most ``rank`` (*ours*)
    gate_kernel: int = limited(5, above=0, is_odd=True)
    gate_channels: int = limited(32, above=0)
    gate_dropout: float = limited(0.1, least=0, below=1)  # of the contextual gate's features
    gate_token_dropout: float = limited(0.05, least=0, below=1)  # share of its tokens masked
    #: Width of a projection of the hidden state shared by operators, scope and bias (the light
    #: form); ``None`` for the paper's size
    rank: int | None = limited(None, above=0)
    layers: tuple[int, ...] | None = None  # encoder layers with a bias, from 0; ``None`` for all
    #: For ablations: the strength of every bias instead of the predicted one. 0 leaves attention as
    #: it is, log 2 is an untrained predictor's
    fixed_bias: float | None = None
    #: For ablations: seed of an order in which cue probabilities move to other tokens of their text
    cue_seed: int | None = None

    def __post_init__(self) -> None:
        check_types(self, least=0)
        if self.layers is not None:
            # A file or a caller may give a list, which cannot be hashed.
            object.__setattr__(self, "layers", tuple(self.layers))
        layers = (0,) if self.layers is None else self.layers
        if not layers or layers[0] < 0 or list(layers) != sorted(set(layers)):
            raise ConfigError(f"layers must be layer numbers from 0, in order; got {layers}")
        # What depends on the variant, the gate and a fixed bias.
        default = "mean" if self.is_paper else "context"
        reads = (self.gate_reads or default) if self.gate == "learned" else None
        object.__setattr__(self, "gate_reads", reads)
        if self.is_paper and reads == "context":
            raise ConfigError("the paper variant's learned gate needs gate_reads='mean'")
        if self.bounded_scope is None:
            object.__setattr__(self, "bounded_scope", not self.is_paper)
        if self.use_factor is None:
            object.__setattr__(self, "use_factor", not self.is_paper and self.fixed_bias is None)

    @classmethod
    def of_saved(cls, values: Mapping[str, Any], source: str) -> BoolAttnConfig:
        """Build the settings of a saved plug-in; older ones name what has no choice any more."""
        values = {name: values[name] for name in values if name not in ("operators", "form")}
        return build(cls, values, source=source)

    @property
    def is_paper(self) -> bool:
        """Whether this is the paper variant."""
        return self.variant == "paper"

    @property
    def can_fold(self) -> bool:
        """Whether folded weights give the same values: not for the paper variant or ablations."""
        return not self.is_paper and self.fixed_bias is None and self.cue_seed is None
