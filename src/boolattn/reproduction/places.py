"""Where a reproduction reads and writes. May import: nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where things are.

    Attributes:
        runs: Finished runs: small, and what is kept.
        work: Everything large that can be made again.
        made: Generated sentences.
        keep: Whether trained models stay, under ``work/models``.
        command: What was typed, kept with each run.
    """

    runs: Path
    work: Path
    made: Path
    keep: bool = False
    command: str = ""
