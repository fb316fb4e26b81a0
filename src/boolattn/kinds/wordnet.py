"""The lexicon's file: WordNet's concrete nouns, and cities.

Names are sorted and found by bisection: to make a dictionary of them takes longer than a query has
use for it.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Written by ``experiments/kinds_lexicon.py``.
FILE = Path(__file__).with_name("wordnet.npz")
_END = ord("\n")


class Wordnet(NamedTuple):
    """Names, their entries, and the parents of nodes; where each begins, and the last one ends."""

    names: bytes
    starts: memoryview
    entries: NDArray[np.int32]
    entry_starts: memoryview
    parents: NDArray[np.int32]
    parent_starts: memoryview
    classes: bytes  # of each node

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.classes)

    def find(self, line: bytes) -> int:
        """Return the position of the first name that, with its line's end, is not before this."""
        names, starts = self.names, self.starts
        numbers = range(len(starts) - 1)
        return bisect_left(numbers, line, key=lambda at: names[starts[at] : starts[at + 1]])

    def has(self, text: bytes, at: int) -> bool:
        """Tell whether the name at a position, with its line's end, begins with a text."""
        return at < len(self.starts) and self.names.startswith(text, self.starts[at])

    def parents_of(self, node: int) -> list[int]:
        """Return the kinds that a node is directly of."""
        if node >= self.n_nodes:
            return []
        kinds: list[int] = self.parents[slice(*self.parent_starts[node : node + 2])].tolist()
        return kinds


@cache
def load_wordnet() -> Wordnet:
    """Read the file."""
    with np.load(FILE) as file:
        names = np.append(file["lemmas"], np.uint8(_END))
        return Wordnet(
            names.tobytes(),
            _starts(np.diff(np.flatnonzero(names == _END), prepend=-1)),
            file["entries"],
            _starts(file["counts"]),
            file["parents"],
            _starts(file["n_parents"]),
            file["classes"].tobytes(),
        )


def _starts(lengths: NDArray[np.integer]) -> memoryview:
    return np.append(0, np.cumsum(lengths, dtype=np.int64)).data


@lru_cache(maxsize=1 << 17)
def entries_of(phrase: str) -> tuple[int, ...] | None:
    """Return the entries of a phrase: nodes and flags; ``None`` where it is not known."""
    wordnet, line = load_wordnet(), f"{phrase}\n".encode()
    at = wordnet.find(line)
    if not wordnet.has(line, at):
        return None
    return tuple(wordnet.entries[slice(*wordnet.entry_starts[at : at + 2])].tolist())


@lru_cache(maxsize=1 << 16)
def begins_phrase(word: str) -> bool:
    """Tell whether a word is the first of a phrase of several."""
    wordnet, start = load_wordnet(), f"{word} ".encode()
    return wordnet.has(start, wordnet.find(start))


@cache
def other_words() -> frozenset[str]:
    """Return WordNet's other words, which tell a typing error from a rare word."""
    with np.load(FILE) as file:
        return frozenset(file["words"].tobytes().decode().split("\n"))
