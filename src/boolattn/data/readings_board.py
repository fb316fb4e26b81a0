"""A paraphrase laid out for alignment: its words, what is cue, what is small, which are alike.

May import: boolattn.data.readings_wordings, boolattn.logic.lexicon.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from boolattn.data.readings_wordings import table
from boolattn.logic.lexicon import find_cues

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.logic.parsed_query import Span, Spans

_WORD = re.compile(r"\w+(?:[’'](?:s\b|t\b))?")
_SHORTEST_STEM = 4
_MOST_WORDS_OF_ONE = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """A word, or a run of words that the table takes as one; places are tokens of the text."""

    form: str
    start: int
    end: int


class Board:
    """The tokens of a text, the units they make, and the clauses that cues and commas cut."""

    def __init__(self, text: str, operands: Sequence[Name]) -> None:
        self.text = text
        self.tokens: list[Span] = [found.span() for found in _WORD.finditer(text)]
        self.words = [_plain(text[start:end]) for start, end in self.tokens]
        cue_characters = {at for cue in find_cues(text) for at in range(cue.start, cue.end)}
        in_names = {pair for operand in operands for pair in operand.inner_cues}
        self.is_cue = [
            (start in cue_characters or self.words[place] in word_set("turns"))
            and in_names.isdisjoint((self._pair(place - 1), self._pair(place)))
            for place, (start, _) in enumerate(self.tokens)
        ]
        self.units = units_of(self.words)
        self.clause = self._clauses()

    def _pair(self, place: int) -> tuple[str, ...]:
        """Return two neighbouring words, to be looked up in the names."""
        return tuple(map(_singular, self.words[max(place, 0) : place + 2]))

    def _clauses(self) -> list[int]:
        clause, found, end = 0, [], 0
        for place, (start, stop) in enumerate(self.tokens):
            has_sign = bool(re.search(r"[,;:()?]", self.text[end:start]))
            is_cut = self.is_cue[place] or self.words[place] in word_set("being")
            if has_sign or is_cut or (place and self.is_cue[place - 1]):
                clause += 1
            found.append(clause)
            end = stop
        return found

    def is_small(self, place: int) -> bool:
        """Whether a token names nothing: a cue, a preposition, an article, "what are"."""
        return self.is_cue[place] or self.words[place] in word_set("small")

    def is_filling(self, place: int) -> bool:
        """Whether a token is small and no cue."""
        return self.words[place] in word_set("small") and not self.is_cue[place]

    def is_tie(self, place: int) -> bool:
        """Whether a token is a preposition or an article."""
        return self.words[place] in word_set("prepositions") | {"the", "a", "an"}

    def leans_back(self, places: set[int]) -> bool:
        """Whether some words stand after a preposition, so that their head came before."""
        before = min(places, default=0) - 1
        return before >= 0 and self.is_tie(before)

    def whole(self) -> list[Spans] | None:
        """Return the text as one operand, without the words that ask for it."""
        places = [place for place in range(len(self.tokens)) if not self.is_small(place)]
        if not places:
            return None
        first = places[0]
        return [((self.tokens[first][0], self.tokens[places[-1]][1]),)]

    def spans(self, places: set[int]) -> Spans:
        """Return the characters of some tokens, joined where only spaces lie between."""
        found: list[Span] = []
        for place in sorted(places):
            start, end = self.tokens[place]
            if found and not self.text[found[-1][1] : start].strip(" -'’"):
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return tuple(found)


class Name:
    """The words of an operand as its name has them."""

    def __init__(self, name: str) -> None:
        words = [_plain(word) for word in _WORD.findall(name)]
        self.forms = [
            unit.form
            for unit in units_of(words)
            if unit.form not in word_set("small") or unit.form == "set"
        ]
        self.prepositions = [word for word in words if word in word_set("prepositions")]
        self.pairs = set(pairwise(words))
        # The "and" of "war and conflict" is no cue in a paraphrase either.
        self.inner_cues = {
            tuple(map(_singular, words[at : at + 2]))
            for at in range(len(words) - 1)
            if any(find_cues(word) for word in words[at : at + 2])
        }


def units_of(words: Sequence[str]) -> list[Unit]:
    """Join runs of words that the table knows, or that make one word ("song birds")."""
    found: list[Unit] = []
    start = 0
    while start < len(words):
        for length in range(min(_MOST_WORDS_OF_ONE, len(words) - start), 0, -1):
            form = _same().get(" ".join(words[start : start + length]))
            if form is not None or length == 1:
                found.append(Unit(form or words[start], start, start + length))
                start += length
                break
    return found


@lru_cache(maxsize=65536)
def likeness(left: str, right: str) -> float:
    """Say how like two words are, between 0 and 1.

    >>> likeness("cuba", "cuban"), likeness("austria", "australia"), likeness("novels", "novel")
    (0.8, 0.0, 0.9)
    """
    if left == right:
        return 1.0
    if _singular(left) == _singular(right):
        return 0.9
    shared = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        shared += 1
    endings = word_set("endings") | {""}
    for length in range(shared, _SHORTEST_STEM - 1, -1):
        if left[length:] in endings and right[length:] in endings:
            return 0.8
    if min(len(left), len(right)) > _SHORTEST_STEM and _is_slip(left, right):
        return 0.7
    if {_singular(left), _singular(right)} == {"book", "novel"}:
        return 0.5
    return 0.0


def _is_slip(left: str, right: str) -> bool:
    """Say whether one letter too many, too few or wrong, or two swapped, part two words."""
    if left[0] != right[0] or abs(len(left) - len(right)) > 1:
        return False
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    rest, other = left[start:], right[start:]
    swapped = other[1:2] + other[0:1] + other[2:]
    return rest == swapped or other == rest[1:] or rest == other[1:] or rest[1:] == other[1:]


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > _SHORTEST_STEM:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith("ss") and len(word) >= _SHORTEST_STEM:
        return word[:-1]
    return word


def _plain(word: str) -> str:
    """Return a word in small letters, without accents and without what follows an apostrophe."""
    word = unicodedata.normalize("NFKD", word.lower())
    word = "".join(sign for sign in word if not unicodedata.combining(sign))
    return re.sub(r"[’'].*", "", word)


@cache
def _same() -> Mapping[str, str]:
    return {word: row[0] for row in table("readings_words")["same"] for word in row}


@cache
def word_set(name: str) -> frozenset[str]:
    """Return one of the sets of words: "heads", "loose", "small" ...."""
    return frozenset(table("readings_words")[name].split())
