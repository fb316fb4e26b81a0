"""SetBERT's Boolean sentences: and.jsonl, or.jsonl and not.jsonl in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.errors import ConfigError, DataError
from boolattn.jsonl import find_file, read_jsonl
from boolattn.logic.operators import OPERATORS, Operator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TRAIN_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class GivenSentence:
    """A sentence, with sentences of the same and of another meaning."""

    operator: Operator
    text: str
    same: tuple[str, ...]
    other: tuple[str, ...]


def read_setbert(folder: Path, split: str = "train") -> Iterator[GivenSentence]:
    """Read ``and.jsonl``, ``or.jsonl`` and ``not.jsonl``: the first 80% are train."""
    if split not in ("train", "test"):
        raise ConfigError(f"SetBERT's sentences have no split {split!r}; they have train, test")
    for operator in OPERATORS:
        path = find_file(
            folder, f"{operator.value}.jsonl", remedy="make it with the scripts of quanmai/SetBERT"
        )
        rows = list(read_jsonl(path, {"G": str, "P": list, "N": list}))
        cut = int(len(rows) * _TRAIN_SHARE)
        for number, row in rows[:cut] if split == "train" else rows[cut:]:
            if not all(isinstance(text, str) for text in [*row["P"], *row["N"]]):
                raise DataError(f"{path}:{number}: 'P' and 'N' must be lists of sentences")
            yield GivenSentence(operator, row["G"], tuple(row["P"]), tuple(row["N"]))
