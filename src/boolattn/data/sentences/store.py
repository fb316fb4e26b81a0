"""A folder that caches generated sentences and triplets as JSON lines.

Generating 20,000 sentences takes about 15 s, for which a GPU should not wait twice.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from boolattn.data.sentences.generator import (
    Mixture,
    Scope,
    Sentence,
    Triplet,
    generate,
    generate_triplets,
)
from boolattn.data.taxa.phrases import CueSpan
from boolattn.jsonl import read_jsonl, write_jsonl
from boolattn.logic.operators import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

#: Added to the seed of evaluation sentences, so that they differ from those of training.
HELD_OUT_SEED = 1_000_003

_TRIPLET = ("anchor", "positive", "negative")


@dataclass(frozen=True)
class SentenceStore:
    """Generates sentences, or reads them from a folder that has them already.

    Attributes:
        folder: The cache; without one, nothing is cached.
    """

    folder: Path | None = None

    def sentences(self, n: int, seed: int, mixture: Mixture | None = None) -> list[Sentence]:
        """Return what :func:`boolattn.data.sentences.generate` makes."""
        rows = self._rows(
            f"{mixture_name(mixture)}-{n}-{seed}",
            lambda: map(_row, generate(n, seed, mixture)),
        )
        return list(map(_sentence, rows)) if rows else list(generate(n, seed, mixture))

    def triplets(self, n: int, seed: int) -> list[Triplet]:
        """Return what :func:`boolattn.data.sentences.generate_triplets` makes."""
        rows = self._rows(
            f"triplets-{n}-{seed}",
            lambda: (
                {name: _row(getattr(one, name)) for name in _TRIPLET}
                for one in generate_triplets(n, seed)
            ),
        )
        if not rows:
            return list(generate_triplets(n, seed))
        return [Triplet(*(_sentence(row[name]) for name in _TRIPLET)) for row in rows]

    def _rows(
        self, name: str, make: Callable[[], Iterable[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Return the rows of a cached file, written first if it is missing; empty without one."""
        if self.folder is None:
            return []
        path = self.folder / f"{name}-{source_digest()}.jsonl.xz"
        if not path.is_file():
            write_jsonl(path, make())
        return [row for _, row in read_jsonl(path)]


def mixture_name(mixture: Mixture | None = None) -> str:
    """Return a name that no other mixture has.

    >>> mixture_name(), mixture_name(Mixture(unseen=True)), mixture_name(Mixture(varied=0.5))[:7]
    ('sentences', 'unseen', 'varied-')
    """
    if mixture is None or mixture == Mixture():
        return "sentences"
    if mixture == Mixture(unseen=True):
        return "unseen"
    # As floats, because 1 and 1.0 are the same share.
    shares = {name: float(share) for name, share in asdict(mixture).items()}
    content = json.dumps(shares, sort_keys=True)
    kind = "varied" if mixture.varied else "mixture"
    return f"{kind}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return a hash of the tables and the code that sentences are generated from."""
    digest = hashlib.sha256()
    names = ("generator.py", "contents.py", "contents.toml", "varied.py", "varied.toml")
    taxa = ("wordings.toml", "groups.toml", "places.toml", "phrases.py", "queries.py")
    for folder, parts in (("sentences", names), ("taxa", taxa)):
        for name in parts:
            digest.update(files("boolattn.data").joinpath(folder, name).read_bytes())
    return digest.hexdigest()[:8]


def _row(sentence: Sentence) -> dict[str, Any]:
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
