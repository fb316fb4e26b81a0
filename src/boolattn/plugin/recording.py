"""Thread-local state: the forward passes in progress, and the recording of what they compute."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from boolattn.attention.boolattn import AnyCues
    from boolattn.attention.gate import Gate
    from boolattn.attention.layer import CueState, LayerBias


@dataclass
class Record:
    """What BoolAttn computed while recording, with gradients.

    Biases and attention weights, ``(batch, heads, tokens, tokens)`` with the bias, are those of
    the last pass, by layer number; cues and gates are of each pass, also if no gate was open.
    """

    wants_attention: bool = False
    cue_states: list[CueState] = field(default_factory=list)
    biases: dict[int, LayerBias] = field(default_factory=dict)
    attention: dict[int, Tensor] = field(default_factory=dict)


@dataclass
class ForwardPass:
    """One forward pass of one encoder."""

    mask: Tensor  # 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
    gate: Gate | None  # from labels or the lexicon; a learned gate sets it before the first layer
    cues: AnyCues | None = None  # ``None`` if no expert is open; then the layers are not changed
    idle: frozenset[int] = frozenset()  # layers that are not changed


@dataclass
class LatePass:
    """What is known of a pass that skips the model's hook: a call of ``model.forward``.

    sentence-transformers calls encoders so. Labels and mask are known at the first layer.
    """

    input_ids: Tensor | None
    embedded: Tensor | None = None  # input of the first layer, in a family without a stack
    this: ForwardPass | None = None  # once the first layer has begun


class _Current(threading.local):
    """State of one thread."""

    record: Record | None = None

    def __init__(self) -> None:
        #: By id of the encoder's hooks: one encoder may run while another does.
        self.passes: dict[int, ForwardPass] = {}
        self.late: dict[int, LatePass] = {}


current = _Current()


@contextmanager
def recording(*, attention: bool = False) -> Iterator[Record]:
    """Record what BoolAttn computes in this thread's forward passes.

    With ``attention`` also the attention weights, as full matrices.
    """
    outer, current.record = current.record, Record(wants_attention=attention)
    try:
        yield current.record
    finally:
        current.record = outer
