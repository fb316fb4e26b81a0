"""Every number of BoolAttn in one frozen place, checked when it is made.

May import: boolattn.errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from boolattn.errors import ConfigError, GateError

#: The operator axis of every tensor: AND, OR, NOT.
OPERATORS = ("and", "or", "not")
VARIANTS = ("corrected", "paper")
GATES = ("label", "lexicon", "learned")
FORMS = ("factored", "dense")
GATE_READS = ("mean", "context")
_CHOICES = {"variant": VARIANTS, "gate": GATES, "gate_reads": GATE_READS, "form": FORMS}
_COUNTS = (
    "d_o",
    "kernel",
    "cue_kernel",
    "cue_channels",
    "gate_kernel",
    "gate_channels",
    "window",
    "rank",
)


@dataclass(frozen=True, kw_only=True)
class BoolAttnConfig:
    """How a Boolean query bends attention.

    The defaults are the paper's numbers; what the paper leaves open is marked *ours*.

    Attributes:
        operators: The experts that exist, in the order AND, OR, NOT.
        variant: ``corrected`` mends the paper's five defects, ``paper`` keeps its letter.
        gate: Who opens the experts when a call brings no label: nobody (``label``), the cue
            lexicon on token ids (``lexicon``), or a trained classifier (``learned``).
        gate_reads: What a learned gate reads: the ``mean`` of the words, the paper's, or words
            in ``context`` as well (*ours*). Left out: ``context``, under ``paper`` the mean.
            ``None`` under every other gate, so that equal plug-ins have equal settings.
        form: ``factored`` appends the bias to queries and keys; ``dense`` adds the full matrix.
        d_o: Size of an operator embedding.
        kernel: Width of the scope predictor's convolution; odd (*ours*).
        cue_kernel: Width of the corrected cue predictor's convolution; 1 reads each token alone
            (*ours*).
        cue_channels: Channels of that convolution (*ours*).
        window: Farthest relative position that AND and OR still tell apart.
        sigma: Width at birth of the Gaussian around a cue; learned.
        threshold: Scope probability at birth above which a token is in scope; learned.
        scope_temperature: Temperature of the Gumbel-sigmoid (*ours*).
        use_noise: Whether training samples scopes; without noise they are thresholded as in
            evaluation, which comparisons of two runs need.
        gate_temperature: Divides the learned gate's logits.
        gate_threshold: Probability above which the learned gate opens (*ours*).
        gate_kernel: Width of the contextual gate's convolution; odd (*ours*).
        gate_channels: Channels of that convolution, in the light form at most ``rank`` (*ours*).
        gate_dropout: Share of its features dropped while it learns (*ours*).
        gate_token_dropout: Share of tokens it does not see while it learns (*ours*).
        rank: ``None`` for the paper's size; a number reads the hidden state through one
            projection of that width, shared by operators, scope and bias (the light form).
        layers: Which encoder layers get a bias, counted from 0; ``None`` for all.
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

    def __post_init__(self) -> None:
        # Lists are as good as tuples to write, but cannot be hashed.
        object.__setattr__(self, "operators", tuple(self.operators))
        if self.layers is not None:
            object.__setattr__(self, "layers", tuple(self.layers))
        _check_operators(self.operators)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices and (name, value) != ("gate_reads", None):
                raise ConfigError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
        self._settle_gate()
        self._check_numbers()
        if self.layers is not None:
            _check_layers(self.layers)

    def _settle_gate(self) -> None:
        usual = "mean" if self.is_paper else "context"
        reads = (self.gate_reads or usual) if self.gate == "learned" else None
        object.__setattr__(self, "gate_reads", reads)
        if self.is_paper and reads == "context":
            raise ConfigError(
                "the paper's learned gate reads the mean; set gate_reads='mean', or "
                "variant='corrected'"
            )

    def _check_numbers(self) -> None:
        for name in _COUNTS:
            _check_count(name, getattr(self, name), is_odd=name.endswith("kernel"))
        for name in ("sigma", "scope_temperature", "gate_temperature"):
            _check_between(name, getattr(self, name), math.inf)
        for name in ("threshold", "gate_threshold"):
            _check_between(name, getattr(self, name), 1)
        for name in ("gate_dropout", "gate_token_dropout"):
            if not 0 <= (share := getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be at least 0 and below 1; got {share}")

    @property
    def n_operators(self) -> int:
        """Length of the operator axis."""
        return len(self.operators)

    @property
    def is_paper(self) -> bool:
        """Whether the paper's letter is kept."""
        return self.variant == "paper"

    def index(self, operator: str) -> int:
        """Position of an operator on the operator axis."""
        if operator not in OPERATORS:
            raise GateError(f"unknown operator {operator!r}; known: {', '.join(OPERATORS)}")
        if operator not in self.operators:
            raise GateError(
                f"this model has no expert for {operator!r}; it has {', '.join(self.operators)}"
            )
        return self.operators.index(operator)


def _check_operators(operators: tuple[str, ...]) -> None:
    if not operators:
        raise ConfigError(f"operators must name at least one of {', '.join(OPERATORS)}")
    if unknown := [name for name in operators if name not in OPERATORS]:
        raise ConfigError(f"unknown operator {unknown[0]!r}; known: {', '.join(OPERATORS)}")
    if list(operators) != [name for name in OPERATORS if name in operators]:
        raise ConfigError(
            f"operators must keep the order {', '.join(OPERATORS)}; got {', '.join(operators)}"
        )


def _check_count(name: str, value: int | None, *, is_odd: bool) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and (not is_whole or value < 1):
        raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
    if is_odd and value is not None and value % 2 == 0:
        raise ConfigError(f"{name} must be odd, so that a token is its own centre; got {value}")


def _check_between(name: str, value: float, limit: float) -> None:
    if not 0 < value < limit:
        raise ConfigError(f"{name} must lie between 0 and {limit}, both left out; got {value}")


def _check_layers(layers: tuple[int, ...]) -> None:
    if not layers or layers[0] < 0 or list(layers) != sorted(set(layers)):
        raise ConfigError(f"layers must be rising layer numbers from 0 on, got {layers}")
