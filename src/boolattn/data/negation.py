"""Negation scope: CD-SCO (*SEM 2012) and the SFU review corpus, which the user provides."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.jsonl import read_lines
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# CD-SCO: chapter, sentence, token number, word, lemma, part of speech, syntax; then for each
# negation a triple (cue, scope, event), or one column "***" for a sentence without any.
_FIXED = 7
_NO_NEGATION = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation:
    """One sentence with one negation, or with all where the corpus does not separate them."""

    tokens: tuple[str, ...]  # the words
    cue: tuple[bool, ...]  # whether a token is or contains the cue ("in" of "infrequent")
    scope: tuple[bool, ...]  # whether a token, or the rest of a word beside its cue, is negated
    cue_text: tuple[str, ...]  # the cue's characters in each token, empty elsewhere
    source: str  # file and line of the sentence

    @property
    def has_negation(self) -> bool:
        """Whether there is a cue."""
        return any(self.cue)


@checked
def read_cd_sco(path: Path) -> Iterator[Negation]:
    """Read a CD-SCO file: one record for each negation, one for a sentence without any."""
    for first, rows in _sentences(path):
        for offset, row in enumerate(rows):
            _check_columns(row, len(rows[0]), f"{path}:{first + offset}")
        tokens = tuple(row[3] for row in rows)
        is_plain = rows[0][_FIXED] == _NO_NEGATION
        for column in [_FIXED] if is_plain else range(_FIXED, len(rows[0]), 3):
            cue = tuple("" if is_plain or row[column] == "_" else row[column] for row in rows)
            yield Negation(
                tokens=tokens,
                cue=tuple(map(bool, cue)),
                scope=tuple(not is_plain and row[column + 1] != "_" for row in rows),
                cue_text=cue,
                source=f"{path}:{first}",
            )


@checked
def read_sfu(path: Path) -> Iterator[Negation]:
    """Read an SFU file: one record for each sentence; the tags do not separate its negations."""
    for first, rows in _sentences(path, comment="# "):
        for offset, row in enumerate(rows):
            where = f"{path}:{first + offset}"
            if len(row) != 3:
                raise DataError(f"{where}: three columns are expected, there are {len(row)}")
            if row[1] not in _SFU_TAGS:
                known = ", ".join(_SFU_TAGS)
                raise DataError(f"{where}: unknown tag {row[1]!r}; known: {known}")
        yield Negation(
            tokens=tuple(row[0] for row in rows),
            cue=tuple(row[1].endswith("_negcue") for row in rows),
            scope=tuple(row[1].endswith("_neg") for row in rows),
            cue_text=tuple(row[0] if row[1].endswith("_negcue") else "" for row in rows),
            source=f"{path}:{first}",
        )


_SFU_TAGS = ("O", "B_negcue", "I_negcue", "B_neg", "I_neg")

#: Readers by the name of the corpus.
READERS: Mapping[str, Callable[[Path], Iterator[Negation]]] = {
    "cd-sco": read_cd_sco,
    "sfu": read_sfu,
}


def find_negation(corpus: str, folder: Path) -> dict[str, Path]:
    """Find the files of "cd-sco" or "sfu" in a folder, by split, under their published names."""
    if corpus not in _NAMES:
        raise ConfigError(f"no negation corpus {corpus!r}; there are {', '.join(_NAMES)}")
    found = {
        split: path
        for split, pattern in _NAMES[corpus].items()
        for path in sorted(folder.glob("*"))
        if fnmatch(path.name.lower(), pattern)
    }
    if not found:
        names = ", ".join(_NAMES[corpus].values())
        raise MissingDataError(f"no {corpus} in {folder}; put files there that fit {names}")
    return found


# The published names contain dates and may end in a compression.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "cd-sco": {
        "train": "*cd-sco*train*.txt*",
        "dev": "*cd-sco*dev*.txt*",
        "test": "*cd-sco*test*gold*.txt*",
    },
    "sfu": {"train": "sfu*train*.conll*", "dev": "sfu*dev*.conll*", "test": "sfu*test*.conll*"},
}


def _check_columns(row: list[str], n_columns: int, where: str) -> None:
    is_plain = len(row) == _FIXED + 1 and row[_FIXED] == _NO_NEGATION
    if not is_plain and (len(row) <= _FIXED or (len(row) - _FIXED) % 3):
        raise DataError(f"{where}: 8 columns, or 7 and some triples, are expected, got {len(row)}")
    if len(row) != n_columns:
        raise DataError(f"{where}: {len(row)} columns, but the sentence began with {n_columns}")


def _sentences(path: Path, comment: str = "") -> Iterator[tuple[int, list[list[str]]]]:
    """Yield the first line number and the rows of each block between empty lines."""
    first, rows = 0, list[list[str]]()
    for number, line in read_lines(path):
        if comment and line.startswith(comment):
            continue
        if line.strip():
            first = first if rows else number
            rows.append(line.split("\t"))
        elif rows:
            yield first, rows
            rows = []
    if rows:
        yield first, rows
