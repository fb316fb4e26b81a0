"""Numbers and dates in plain language as conditions: "films before 1990", "under 30 minutes".

A phrase becomes a condition where one field of the metadata fits it by name, unit or range; one
without a unit also where its number is in the range of one field alone. Otherwise it stays words.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from boolattn.query.tokens import QUOTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    Range = tuple[float, float]

_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _any_of(name: str) -> str:
    """Return a pattern of the phrases of the table, the longest first."""
    phrases = sorted((" ".join(p.split()) for p in _TABLE[name].split(",")), key=len, reverse=True)
    return "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in phrases)


_NUMBER = r"(?P<{0}>\d[\d,.]*)\s?(?P<{0}_scale>k\b|thousand|million|billion)?"
_UNIT = r"(?:\s*(?P<unit>square\s\w+|sq\.?\s\w+|[^\W\d]+|%))?"
_CURRENCY = r"(?P<currency>[$€£]\s?)?"
_SIGNS = {"<": "less", "<=": "at_most", ">": "more", ">=": "at_least"}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_BEFORE = rf"(?:(?:that|which|who)\s+)?(?:(?:{_any_of('verbs')})\s+)?"
_COMPARED = "|".join(f"(?P<{name}>{_any_of(name)})" for name in _SIGNS.values())
_FORMS = tuple(
    re.compile(rf"(?<!\w){_BEFORE}(?P<negation>not\s+)?{form}(?!\w)", re.IGNORECASE)
    for form in (
        rf"(?:between|from)\s+{_CURRENCY}{_NUMBER.format('low')}\s*(?:and|to|-|–)\s*[$€£]?\s?"
        rf"{_NUMBER.format('high')}{_UNIT}",
        r"(?:in|from|of|during)\s+(?:the\s+)?(?P<decade>(?:1[5-9]|20)?\d0)['’]?s",
        r"(?:in|from|during)\s+(?P<year>(?:1[5-9]|20)\d\d)(?!\s+(?:and|on|onwards?|or|to)\b|\s?[-–])",
        rf"(?:in\s+)?{_CURRENCY}{_NUMBER.format('low')}{_UNIT}\s+or\s+"
        r"(?P<limit>less|fewer|under|below|more|over|above)",
        rf"{_CURRENCY}{_NUMBER.format('low')}(?P<limit>\+){_UNIT}",
        rf"(?:{_COMPARED})\s+{_CURRENCY}{_NUMBER.format('low')}{_UNIT}",
    )
)
_SCALES = {"k": 1e3, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_WORD = re.compile(r"[^\W\d_]+")
#: Units and adjectives, and the name_words of names of the fields that they ask for.
_FIELDS = tuple(
    (frozenset(row["words"].split()), frozenset(row["names"].split())) for row in _TABLE["fields"]
)
_YEAR_NAMES, _YEAR_WORDS, _TIME_WORDS, _NO_UNITS = (
    frozenset(_TABLE[name].split())
    for name in ("year_names", "year_words", "time_words", "no_units")
)
_LAST_WORD = re.compile(r"([^\W\d_]+)\s+$")
#: The least that a field must fit by: a unit or an adjective, or its name and its range.
_LEAST = 2.0
_FIRST_YEAR, _LAST_YEAR = 1000, 2100


class NumberPhrase(NamedTuple):
    """A phrase of a query that became conditions: its characters, and the conditions' texts."""

    start: int
    end: int
    conditions: tuple[str, ...]


def find_numbers(text: str, ranges: Mapping[str, Range]) -> list[NumberPhrase]:
    """Find phrases that fit a field; ``ranges`` has the least and largest value of each.

    What stands between quotes is text.

    >>> find_numbers("films before 1990", {"year": (1930, 2020)})
    [NumberPhrase(start=6, end=17, conditions=('year<1990',))]
    >>> find_numbers("laptops under 1 kg", {"price": (200, 3000), "weight": (0.8, 3)})
    [NumberPhrase(start=8, end=18, conditions=('weight<1',))]
    """
    phrases: list[NumberPhrase] = []
    quoted = [match.span() for match in QUOTED.finditer(text)]
    for form in _FORMS:
        for match in form.finditer(text):
            taken = [*quoted, *((phrase.start, phrase.end) for phrase in phrases)]
            is_taken = any(start < match.end() and match.start() < end for start, end in taken)
            if not is_taken and (conditions := _conditions(match, text, ranges)):
                unit = (match.groupdict().get("unit") or "").lower()
                name_words = _words_of(conditions[0])
                is_used = (
                    not unit or _is_unit(unit) or any(_same(unit, part) for part in name_words)
                )
                end = match.end() if is_used else match.start("unit")
                start = match.start()
                # The field's name before it belongs to it: "bought in 2022".
                before = _LAST_WORD.search(text[:start])
                if before and any(_same(before[1].lower(), part) for part in name_words):
                    start = before.start()
                phrases.append(NumberPhrase(start, end, conditions))
    return sorted(phrases)


def without_numbers(text: str, phrases: Sequence[NumberPhrase]) -> str:
    """Return a text with spaces in place of phrases; "everything" where nothing else is said.

    >>> without_numbers("soup under 15 minutes", [NumberPhrase(5, 21, ())]).rstrip()
    'soup'
    """
    for phrase in phrases:
        text = text[: phrase.start] + " " * (phrase.end - phrase.start) + text[phrase.end :]
    return text if not phrases or _WORD.search(text) else "everything"


def other_spans(text: str, phrases: Sequence[NumberPhrase]) -> tuple[tuple[int, int], ...]:
    """Return the characters of the rest of a text.

    >>> other_spans("soup under 15 minutes with fish", [NumberPhrase(5, 21, ())])
    ((0, 4), (22, 31))
    """
    spans, first = [], 0
    for phrase in (*phrases, NumberPhrase(len(text), len(text), ())):
        piece = text[first : phrase.start]
        if words := piece.strip():
            start = first + piece.index(words)
            spans.append((start, start + len(words)))
        first = phrase.end
    return tuple(spans)


def _conditions(match: re.Match[str], text: str, ranges: Mapping[str, Range]) -> tuple[str, ...]:
    groups = match.groupdict()
    if decade := groups.get("decade"):
        first = int(decade) if len(decade) == 4 else 1900 + int(decade)
        limits: Sequence[tuple[str, float]] = ((">=", first), ("<=", first + 9))
    elif year := groups.get("year"):
        limits = ((">=", int(year)), ("<=", int(year)))
    elif groups.get("high"):
        scale = groups["low_scale"] or groups["high_scale"]
        limits = (
            (">=", _value(groups["low"], scale)),
            ("<=", _value(groups["high"], groups["high_scale"])),
        )
    else:
        limits = ((_sign(groups), _value(groups["low"], groups.get("low_scale"))),)
    unit, said = (groups.get("unit") or "").lower(), match[0].lower()
    if unit in _NO_UNITS:
        unit, said = "", said.removesuffix(unit)
    signs = ["$"] * bool(groups.get("currency")) + ["%"] * (unit == "%")
    phrase = _Phrase(
        frozenset([*_WORD.findall(said), *signs]),
        unit,
        frozenset(_WORD.findall(text.lower())),
        tuple(value for _, value in limits),
    )
    name = phrase.field(ranges)
    if name is None or any(value != value for value in phrase.values):
        return ()
    if groups.get("negation"):
        if len(limits) > 1:
            return ()
        limits = [(_OPPOSITE[sign], value) for sign, value in limits]
    factor = _factor(unit, _words_of(name))
    return tuple(f"{name}{sign}{value * factor:.12g}" for sign, value in limits)


def _factor(unit: str, name_words: Set[str]) -> float:
    """Return how often the unit of a field, which is a part of its name, is in another."""
    factors = (_TABLE["factors"].get(part, {}).get(unit) for part in name_words)
    return next((factor for factor in factors if factor), 1.0)


def _sign(groups: Mapping[str, str | None]) -> str:
    if last := groups.get("limit"):
        return "<=" if last.lower() in ("less", "fewer", "under", "below") else ">="
    return next(sign for sign, name in _SIGNS.items() if groups.get(name))


def _value(digits: str, scale: str | None) -> float:
    plain = digits.rstrip(".,")
    # A comma before three digits separates thousands; else it is a decimal point.
    plain = re.sub(r",(?=\d{3}(?!\d))", "", plain).replace(",", ".")
    try:
        return float(plain) * _SCALES.get((scale or "").lower(), 1)
    except ValueError:
        return float("nan")


class _Phrase(NamedTuple):
    """What decides which field a number belongs to."""

    words: frozenset[str]
    unit: str
    query: frozenset[str]  # all words of the query
    values: tuple[float, ...]

    def field(self, ranges: Mapping[str, Range]) -> str | None:
        """Return the field that fits best; ``None`` where none does, or two do."""
        scored = sorted((self._fit(name, *known), name) for name, known in ranges.items())
        scores = [score for score, _ in scored]
        is_alone = self._is_neutral and sum(score >= 1 for score in scores) == 1
        is_enough = scores[-1:] >= [1.0 if is_alone else _LEAST]
        return scored[-1][1] if is_enough and scores[-2:-1] != scores[-1:] else None

    @property
    def _is_neutral(self) -> bool:
        """Whether nothing but the number itself says what it measures: "under 1400"."""
        says = any(self.words & asked for asked, _ in _FIELDS) or self.words & _TIME_WORDS
        return not says and not self.unit

    def _fit(self, name: str, least: float, largest: float) -> float:
        name_words = _words_of(name)
        factor = _factor(self.unit, name_words)
        score = float(any(least <= factor * value <= largest for value in self.values))
        is_year = all(_FIRST_YEAR <= v <= _LAST_YEAR and v == int(v) for v in self.values)
        may_be_year = least >= _FIRST_YEAR and largest <= _LAST_YEAR
        if is_year and self.words & _YEAR_WORDS and (name_words & _YEAR_NAMES or may_be_year):
            score += 2
        elif may_be_year and not is_year:
            return 0.0
        units = set(_WORD.findall(self.unit)) or ({self.unit} if self.unit else set())
        if any(_same(word, part) for word in units for part in name_words):
            score += 3
        if any(self.words & asked and name_words & names for asked, names in _FIELDS):
            score += 2
        if any(_same(word, part) for word in self.query - units for part in name_words):
            score += 1
        # A unit that the field does not have refuses it.
        return score if score > _LEAST or not _is_unit(self.unit) else 0.0


def _words_of(name: str) -> set[str]:
    return set(_WORD.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()))


def _same(word: str, part: str) -> bool:
    """Tell whether a word and a part of a name are forms of one word."""
    is_long = min(len(word), len(part)) > 3
    return word == part or (is_long and word[:7].rstrip("s") == part[:7].rstrip("s"))


def _is_unit(unit: str) -> bool:
    words = set(_WORD.findall(unit)) or {unit}
    return bool(unit) and any(words & asked for asked, _ in _FIELDS)
