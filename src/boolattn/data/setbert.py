"""SetBERT's Boolean sentences: and.jsonl, or.jsonl and not.jsonl in a folder."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.data.sentences import CueSpan, Sentence, Triplet
from boolattn.errors import ConfigError, DataError
from boolattn.jsonl import find_file, read_jsonl
from boolattn.query.lexicon import find_cues
from boolattn.query.tree import OPERATORS, Operator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TRAIN_SHARE = 0.8
#: The paper's equivalents of the plain cues, and how often one replaces its cue (*ours*).
EQUIVALENTS = {
    "and": ("as well as", "are also", "including"),
    "not": ("other than", "excluding"),
}
REPLACED = 0.5


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


def label_setbert(
    sentences: Iterator[GivenSentence], seed: int
) -> Iterator[tuple[Sentence, Triplet | None]]:
    """Label sentences as the paper does: cues are replaced by equivalents, and found as words.

    The triplet is ``None`` where a sentence has none of the same or none of another meaning. There
    are no scopes.
    """
    rng = random.Random(f"setbert {seed}")
    for sentence in sentences:
        anchor = _label(sentence.text, rng, sentence.operator)
        triplet = None
        if sentence.same and sentence.other:
            positive = _label(rng.choice(sentence.same), rng, sentence.operator)
            triplet = Triplet(anchor, positive, _label(rng.choice(sentence.other), rng))
        yield anchor, triplet


def _label(text: str, rng: random.Random, *known: Operator) -> Sentence:
    def replace(cue: re.Match[str]) -> str:
        others = EQUIVALENTS[cue.group().lower()]
        return rng.choice(others) if rng.random() < REPLACED else cue.group()

    text = re.sub(r"(?i)\b(and|not)\b", replace, text)
    cues = tuple(CueSpan(cue.operator, cue.start, cue.end) for cue in find_cues(text))
    used = {*known, *(cue.operator for cue in cues)}
    operators = tuple(operator for operator in OPERATORS if operator in used)
    return Sentence(text=text, template="", operators=operators, cues=cues, scopes=(), operands=())
