"""Settings of BoolAttn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from boolattn.errors import ConfigError, GateError
from boolattn.settings import check_types

#: The operator axis of every tensor: AND, OR, NOT.
OPERATORS = ("and", "or", "not")
_CHOICES = {
    "variant": ("corrected", "paper"),
    "gate": ("label", "lexicon", "learned"),
    "gate_reads": ("mean", "context"),
    "form": ("factored", "dense"),
}
#: Settings that files of older versions lack, as they were then.
OLDER = {"gate_reads": "mean", "bounded_scope": False, "operator_bias": True}
_KERNELS = ("kernel", "cue_kernel", "gate_kernel")
_COUNTS = (*_KERNELS, "d_o", "cue_channels", "gate_channels", "window", "rank")
#: Upper limits of values above 0.
_LIMITS = dict.fromkeys(("sigma", "scope_temperature", "gate_temperature"), math.inf)
_LIMITS |= dict.fromkeys(("threshold", "gate_threshold"), 1)
#: Upper limits of values of at least 0, or ``None``.
_FROM_0 = {"gate_dropout": 1, "gate_token_dropout": 1, "fixed_bias": math.inf, "cue_seed": math.inf}


@dataclass(frozen=True, kw_only=True)
class BoolAttnConfig:
    """Settings of BoolAttn, checked on construction.

    The defaults are the paper's values; values that the paper does not give are marked *ours*.

    Attributes:
        operators: The experts, in the order AND, OR, NOT.
        variant: ``corrected``, or ``paper``: as published, with its six errors.
        gate: What opens the experts in a call without operator labels: nothing (``label``, for
            oracle labels), the cue lexicon (``lexicon``), or a trained classifier (``learned``).
        gate_reads: Input of a learned gate: the ``mean`` of the tokens, as in the paper, or their
            ``context`` as well (*ours*). Default: ``mean`` for the paper variant, else
            ``context``. ``None`` for every other gate, so that equal plug-ins have equal settings.
        form: ``factored`` appends the bias to queries and keys; ``dense`` adds the full matrix.
        d_o: Size of an operator embedding.
        kernel: Width of the scope predictor's convolution; odd (*ours*).
        cue_kernel: Width of the corrected cue predictor's convolution; 1 for no context (*ours*).
        cue_channels: Channels of that convolution (*ours*).
        window: Largest relative position of AND and OR; larger ones are clipped.
        sigma: Initial width of the Gaussian around a cue; trainable.
        threshold: Initial scope probability above which a token is in scope; trainable.
        bounded_scope: Whether that threshold stays between 0 and 1, and a text's first and last
            token ([CLS], [SEP]) are never in scope. Default: only in the corrected variant.
        operator_bias: Whether the factor of an operator's bias has a constant, as in files of
            older versions; the paper has none.
        scope_temperature: Temperature of the Gumbel-sigmoid (*ours*).
        use_noise: Whether training samples scopes and uses the gate's dropout; without it, runs
            can be compared.
        gate_temperature: Divides the learned gate's logits.
        gate_threshold: Probability above which the learned gate opens (*ours*).
        gate_kernel: Width of the contextual gate's convolution; odd (*ours*).
        gate_channels: Channels of that convolution, at most ``rank`` (*ours*).
        gate_dropout: Dropout of the contextual gate's features (*ours*).
        gate_token_dropout: Share of tokens masked from the contextual gate in training (*ours*).
        rank: Width of a projection of the hidden state shared by operators, scope and bias (the
            light form); ``None`` for the paper's size.
        layers: Encoder layers with a bias, from 0; ``None`` for all.
        fixed_bias: Strength of every bias instead of the predicted one, for ablations: 0 leaves
            attention as it is, log 2 is that of an untrained predictor; ``None`` predicts.
        cue_seed: Seed of an order in which cue probabilities move to other tokens of their text,
            for ablations; ``None`` leaves them where they were predicted.
    """

    operators: tuple[str, ...] = OPERATORS
    variant: str = "corrected"
    gate: str = "label"
    gate_reads: str | None = None
    form: str = "factored"
    d_o: int = 10
    kernel: int = 3
    cue_kernel: int = 5
    cue_channels: int = 8
    window: int = 5
    sigma: float = 2.0
    threshold: float = 0.5
    bounded_scope: bool | None = None
    operator_bias: bool = False
    scope_temperature: float = 1.0
    use_noise: bool = True
    gate_temperature: float = 0.1
    gate_threshold: float = 0.5
    gate_kernel: int = 5
    gate_channels: int = 32
    gate_dropout: float = 0.1
    gate_token_dropout: float = 0.05
    rank: int | None = None
    layers: tuple[int, ...] | None = None
    fixed_bias: float | None = None
    cue_seed: int | None = None

    def __post_init__(self) -> None:
        self._check_counts()
        check_types(self)
        # A file or a caller may give lists, which cannot be hashed.
        object.__setattr__(self, "operators", tuple(self.operators))
        if self.layers is not None:
            object.__setattr__(self, "layers", tuple(self.layers))
        self._check_operators()
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices and (name, value) != ("gate_reads", None):
                raise ConfigError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
        self._set_gate_reads()
        if self.bounded_scope is None:
            object.__setattr__(self, "bounded_scope", not self.is_paper)
        self._check_numbers()
        layers = (0,) if self.layers is None else self.layers
        if not layers or layers[0] < 0 or list(layers) != sorted(set(layers)):
            raise ConfigError(f"layers must be layer numbers from 0, in order; got {layers}")

    def _check_operators(self) -> None:
        if not (own := self.operators):
            raise ConfigError(f"operators must name at least one of {', '.join(OPERATORS)}")
        if unknown := [name for name in own if name not in OPERATORS]:
            raise ConfigError(f"unknown operator {unknown[0]!r}; known: {', '.join(OPERATORS)}")
        if list(own) != [name for name in OPERATORS if name in own]:
            raise ConfigError(
                f"operators must be in the order {', '.join(OPERATORS)}; got {', '.join(own)}"
            )

    def _set_gate_reads(self) -> None:
        default = "mean" if self.is_paper else "context"
        reads = (self.gate_reads or default) if self.gate == "learned" else None
        object.__setattr__(self, "gate_reads", reads)
        if self.is_paper and reads == "context":
            raise ConfigError("the paper variant's learned gate needs gate_reads='mean'")

    def _check_counts(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if name == "rank" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be an integer of at least 1; got {value!r}")
            if name in _KERNELS and value % 2 == 0:
                raise ConfigError(f"{name} must be odd; got {value}")

    def _check_numbers(self) -> None:
        for name, limit in _LIMITS.items():
            if not 0 < (value := getattr(self, name)) < limit:
                raise ConfigError(f"{name} must be above 0 and below {limit}; got {value}")
        for name, limit in _FROM_0.items():
            if not 0 <= ((value := getattr(self, name)) or 0) < limit:
                raise ConfigError(f"{name} must be at least 0 and below {limit}; got {value}")

    @property
    def n_operators(self) -> int:
        """Length of the operator axis."""
        return len(self.operators)

    @property
    def is_paper(self) -> bool:
        """Whether this is the paper variant."""
        return self.variant == "paper"

    @property
    def can_fold(self) -> bool:
        """Whether folded weights give the same values: not for the paper variant or ablations."""
        return not self.is_paper and self.fixed_bias is None and self.cue_seed is None

    def index(self, operator: str) -> int:
        """Position of an operator on the operator axis."""
        if operator not in OPERATORS:
            raise GateError(f"unknown operator {operator!r}; known: {', '.join(OPERATORS)}")
        if operator not in self.operators:
            raise GateError(
                f"this model has no expert for {operator!r}; it has {', '.join(self.operators)}"
            )
        return self.operators.index(operator)
