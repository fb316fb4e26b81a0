"""What the current thread's forward pass knows: its batch, and who is listening.

Kept for each thread apart, so that a service can encode in several threads at once.
May import: boolattn.attention.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from boolattn.attention.boolattn import CueState, LayerBias
    from boolattn.attention.gate import Gate


@dataclass
class Record:
    """What BoolAttn computed in the forward passes made while recording.

    Tensors keep their gradients, so a loss can be built on them.

    Attributes:
        cue_states: Cues and gates, one for each forward pass, also where no gate was open.
        biases: Every layer's bias by layer number, of the last pass; empty where none was added.
        attention: Attention weights with the bias by layer number, of the last pass; filled only
            when asked for. Shape ``(batch, heads, tokens, tokens)``.
    """

    wants_attention: bool = False
    cue_states: list[CueState] = field(default_factory=list)
    biases: dict[int, LayerBias] = field(default_factory=dict)
    attention: dict[int, Tensor] = field(default_factory=dict)


@dataclass
class ForwardPass:
    """One forward pass of one encoder: opened at the model, read at the entrance of its layers.

    Attributes:
        mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
        gate: A label's or the lexicon's; ``None`` until a learned gate has read the batch.
        cues: ``None`` where no expert is open: then the layers are left alone.
    """

    mask: Tensor
    gate: Gate | None
    cues: CueState | None = None


class _Current(threading.local):
    """The thread's own state."""

    record: Record | None = None

    def __init__(self) -> None:
        #: By the encoder's hooks: an encoder may run while another one runs.
        self.passes: dict[int, ForwardPass] = {}


current = _Current()


@contextmanager
def recording(*, attention: bool = False) -> Iterator[Record]:
    """Keep what BoolAttn computes in this thread's forward passes.

    Args:
        attention: Whether to work out attention weights too, which costs the full matrices.
    """
    outer, current.record = current.record, Record(wants_attention=attention)
    try:
        yield current.record
    finally:
        current.record = outer
