"""A paraphrase prepared for alignment: tokens, cues, clauses, and the similarity of words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from boolattn.logic.lexicon import find_cues
from experiments.parser_queries.wordings import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.logic.parsed_query import Span, Spans

_WORD = re.compile(r"\w+(?:[’'](?:s\b|t\b))?")
_SHORTEST_STEM = 4
_MAX_UNIT = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """A word, or a run of words that the table treats as one; positions count tokens."""

    form: str
    start: int
    end: int


class AlignedText:
    """The tokens of a text, their units, and the clauses between cues and commas."""

    def __init__(self, text: str, operands: Sequence[Name]) -> None:
        self.text = text
        self.tokens: list[Span] = [found.span() for found in _WORD.finditer(text)]
        self.words = [_plain(text[start:end]) for start, end in self.tokens]
        cue_characters = {at for cue in find_cues(text) for at in range(cue.start, cue.end)}
        in_names = {pair for operand in operands for pair in operand.inner_cues}
        self.is_cue = [
            (start in cue_characters or self.words[place] in word_set("contrast"))
            and in_names.isdisjoint((self._pair(place - 1), self._pair(place)))
            for place, (start, _) in enumerate(self.tokens)
        ]
        self.units = units_of(self.words)
        self.clause = self._clauses()

    def _pair(self, place: int) -> tuple[str, ...]:
        """Return two neighbouring words in the singular."""
        return tuple(map(_singular, self.words[max(place, 0) : place + 2]))

    def _clauses(self) -> list[int]:
        clause, found, end = 0, [], 0
        for place, (start, stop) in enumerate(self.tokens):
            has_sign = bool(re.search(r"[,;:()?]", self.text[end:start]))
            is_cut = self.is_cue[place] or self.words[place] in word_set("copulas")
            if has_sign or is_cut or (place and self.is_cue[place - 1]):
                clause += 1
            found.append(clause)
            end = stop
        return found

    def is_function_word(self, place: int) -> bool:
        """Whether a token is a cue, a preposition, an article or a word of a request."""
        return self.is_cue[place] or self.words[place] in word_set("function_words")

    def is_filler(self, place: int) -> bool:
        """Whether a token is a function word and no cue."""
        return self.words[place] in word_set("function_words") and not self.is_cue[place]

    def is_link(self, place: int) -> bool:
        """Whether a token is a preposition or an article."""
        return self.words[place] in word_set("prepositions") | {"the", "a", "an"}

    def follows_link(self, places: set[int]) -> bool:
        """Whether tokens follow a preposition, so that their head came before."""
        before = min(places, default=0) - 1
        return before >= 0 and self.is_link(before)

    def all_words(self) -> list[Spans] | None:
        """Return the text as one operand, without its request."""
        places = [place for place in range(len(self.tokens)) if not self.is_function_word(place)]
        if not places:
            return None
        first = places[0]
        return [((self.tokens[first][0], self.tokens[places[-1]][1]),)]

    def spans(self, places: set[int]) -> Spans:
        """Return the spans of tokens, merged where only spaces lie between."""
        found: list[Span] = []
        for place in sorted(places):
            start, end = self.tokens[place]
            if found and not self.text[found[-1][1] : start].strip(" -'’"):
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return tuple(found)


class Name:
    """The words of an operand's name."""

    def __init__(self, name: str) -> None:
        words = [_plain(word) for word in _WORD.findall(name)]
        self.forms = [
            unit.form
            for unit in units_of(words)
            if unit.form not in word_set("function_words") or unit.form == "set"
        ]
        self.prepositions = [word for word in words if word in word_set("prepositions")]
        self.pairs = set(pairwise(words))
        # The "and" of "war and conflict" is not a cue in a paraphrase either.
        self.inner_cues = {
            tuple(map(_singular, words[at : at + 2]))
            for at in range(len(words) - 1)
            if any(find_cues(word) for word in words[at : at + 2])
        }


def units_of(words: Sequence[str]) -> list[Unit]:
    """Merge runs of words that the table of equivalents has."""
    found: list[Unit] = []
    start = 0
    while start < len(words):
        for length in range(min(_MAX_UNIT, len(words) - start), 0, -1):
            form = _same().get(" ".join(words[start : start + length]))
            if form is not None or length == 1:
                found.append(Unit(form or words[start], start, start + length))
                start += length
                break
    return found


@lru_cache(maxsize=65536)
def similarity(left: str, right: str) -> float:
    """Return the similarity of two words, between 0 and 1.

    >>> similarity("cuba", "cuban"), similarity("austria", "australia")
    (0.8, 0.0)
    >>> similarity("novels", "novel")
    0.9
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
    if min(len(left), len(right)) > _SHORTEST_STEM and _is_misspelt(left, right):
        return 0.7
    if {_singular(left), _singular(right)} == {"book", "novel"}:
        return 0.5
    return 0.0


def _is_misspelt(left: str, right: str) -> bool:
    """Say whether two words differ by one letter, or by two swapped ones."""
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
    """Return a word in lower case, without accents and without what follows an apostrophe."""
    word = unicodedata.normalize("NFKD", word.lower())
    word = "".join(sign for sign in word if not unicodedata.combining(sign))
    return re.sub(r"[’'].*", "", word)


@cache
def _same() -> Mapping[str, str]:
    return {word: row[0] for row in table("equivalents")["same"] for word in row}


@cache
def word_set(name: str) -> frozenset[str]:
    """Return a set of words of the table: "heads", "optional", "function_words" ..."""
    return frozenset(table("equivalents")[name].split())
