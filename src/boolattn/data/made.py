"""What is generated, made once and kept: sentences and triplets as lines of JSON in a folder.

20,000 sentences take about a quarter of a minute, for which a GPU need not wait twice.
May import: boolattn.data, boolattn.logic.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from boolattn.data.sentences import (
    Mixture,
    Scope,
    Sentence,
    Triplet,
    generate,
    generate_triplets,
)
from boolattn.data.taxa.phrases import CueSpan
from boolattn.files import read_jsonl, write_jsonl
from boolattn.logic.operators import Operator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Sets the sentences that heads are measured on apart from those they learn from.
HELD_OUT_SEED = 1_000_003

_TRIPLET = ("anchor", "positive", "negative")


@dataclass(frozen=True)
class Store:
    """Gives generated sentences, from a folder where it has them, and puts them there if not.

    Attributes:
        folder: Where they are kept; left out, nothing is.
    """

    folder: Path | None = None

    def sentences(self, n: int, seed: int, mixture: Mixture | None = None) -> list[Sentence]:
        """Return what :func:`boolattn.data.sentences.generate` makes."""
        if self.folder is None:
            return list(generate(n, seed, mixture))
        path = self._path(mixture_name(mixture), n, seed)
        if not path.is_file():
            write_jsonl(path, (_plain(one) for one in generate(n, seed, mixture)))
        return [_sentence(row) for _, row in read_jsonl(path)]

    def triplets(self, n: int, seed: int) -> list[Triplet]:
        """Return what :func:`boolattn.data.sentences.generate_triplets` makes."""
        if self.folder is None:
            return list(generate_triplets(n, seed))
        path = self._path("triplets", n, seed)
        if not path.is_file():
            made = generate_triplets(n, seed)
            rows = ({name: _plain(getattr(one, name)) for name in _TRIPLET} for one in made)
            write_jsonl(path, rows)
        return [
            Triplet(*(_sentence(row[name]) for name in _TRIPLET)) for _, row in read_jsonl(path)
        ]

    def _path(self, kind: str, n: int, seed: int) -> Path:
        if self.folder is None:
            raise ValueError("no folder")
        return self.folder / f"{kind}-{n}-{seed}-{source_digest()}.jsonl.xz"


def mixture_name(mixture: Mixture | None = None) -> str:
    """Name a mixture: no two that differ have one name.

    >>> mixture_name(), mixture_name(Mixture(unseen=True)), mixture_name(Mixture(wide=0.5))[:5]
    ('sentences', 'unseen', 'wide-')
    """
    if mixture is None or mixture == Mixture():
        return "sentences"
    if mixture == Mixture(unseen=True):
        return "unseen"
    # As numbers, because 1 and 1.0 are one share.
    shares = {name: float(share) for name, share in asdict(mixture).items()}
    content = json.dumps(shares, sort_keys=True)
    kind = "wide" if mixture.wide else "mixture"
    return f"{kind}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Name the words and the code that sentences are made from: other ones, other sentences."""
    digest = hashlib.sha256()
    home = files("boolattn.data")
    names = ("sentences.toml", "sentences.py", "sentence_contents.py", "wide.toml", "wide.py")
    taxa = ("wordings.toml", "groups.toml", "places.toml", "phrases.py", "queries.py")
    for part in [home.joinpath(name) for name in names] + [home.joinpath("taxa", n) for n in taxa]:
        digest.update(part.read_bytes())
    return digest.hexdigest()[:8]


def _plain(sentence: Sentence) -> dict[str, Any]:
    return {
        "text": sentence.text,
        "template": sentence.template,
        "operators": [operator.value for operator in sentence.operators],
        "cues": [[cue.start, cue.end, cue.operator.value] for cue in sentence.cues],
        "scopes": [[scope.operator.value, scope.spans] for scope in sentence.scopes],
        "operands": sentence.operands,
    }


def _sentence(row: dict[str, Any]) -> Sentence:
    return Sentence(
        text=row["text"],
        template=row["template"],
        operators=tuple(Operator(name) for name in row["operators"]),
        cues=tuple(CueSpan(Operator(name), start, end) for start, end, name in row["cues"]),
        scopes=tuple(Scope(Operator(name), _spans(spans)) for name, spans in row["scopes"]),
        operands=tuple(_spans(spans) for spans in row["operands"]),
    )


def _spans(spans: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((start, end) for start, end in spans)
