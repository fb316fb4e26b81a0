"""Which field of the metadata a number or a date belongs to: by name, unit and range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

from boolattn.files import package_table
from boolattn.query.dates import in_period

#: Least and largest value; of dates their years, then the first and the last day.
Range = tuple[float, float] | tuple[float, float, str, str]

TABLE = package_table("boolattn.query", "numbers.toml")
#: Units and adjectives, and the words of names of the fields that they ask for.
_FIELDS = tuple(
    (frozenset(row["words"].split()), frozenset(row["names"].split())) for row in TABLE["fields"]
)
_YEAR_NAMES, _YEAR_WORDS, _TIME_WORDS, _NO_UNITS, _PRICES, _INEXACT = (
    frozenset(TABLE[name].split())
    for name in ("year_names", "year_words", "time_words", "no_units", "prices", "inexact")
)
#: Without pounds, which are a weight too.
_MONEY_UNITS = next(asked for asked, names in _FIELDS if "price" in names) - {"pounds"}
_WORD = re.compile(r"[^\W\d_]+")
#: The least that a field must fit by: a unit or an adjective, or its name and its range.
_LEAST = 2.0
#: The least amount of money that needs no unit.
_AMOUNT = 20
#: Names of fields that count thousands or millions.
_SIZES = {"k": 1e3, "thousand": 1e3, "thousands": 1e3, "million": 1e6, "millions": 1e6}
FIRST_YEAR, _LAST_YEAR = 1000, 2100


class Measure(NamedTuple):
    """What decides which field a number belongs to."""

    words: frozenset[str]
    unit: str
    query: frozenset[str]  # all words of the query
    values: tuple[float | str, ...]  # numbers, or dates
    exact: frozenset[str]  # words of a name whose field has the value itself

    def values_in(self, name_words: Set[str], *period: str) -> Sequence[float | str]:
        """Return the values for a field: dates of its period, and thousands where it has these."""
        if dates := [value for value in self.values if isinstance(value, str)]:
            return in_period(dates, *period) if period else ()
        size = next((size for name, size in _SIZES.items() if name in name_words), 1.0)
        numbers = (value for value in self.values if not isinstance(value, str))
        return [value / size if value >= 1000 else value for value in numbers]

    def fields(self, ranges: Mapping[str, Range], *, is_named: bool = False) -> list[str]:
        """Return the field that fits best, or those that fit alike; they may have been named."""
        if self.exact:
            return [name for name, known in sorted(ranges.items()) if self._names(name, *known)]
        known = sorted(ranges.items())
        scores = {name: self._fit(name, *limits, is_named=is_named) for name, limits in known}
        best = max(scores.values(), default=0.0)
        # Nothing but the number itself says what it measures: "under 1400".
        says = any(self.words & asked for asked, _ in _FIELDS) or self.words & _TIME_WORDS
        least = 1.0 if best < _LEAST and not says and not self.unit else max(best, _LEAST)
        names = [name for name, score in scores.items() if score >= least]
        is_money = bool(_unit_words(self.unit) & _MONEY_UNITS)
        prices = [name for name in (ranges if is_money else names) if words_of(name) & _PRICES]
        # Of large amounts the price is meant, not the deposit; "under 50" may be an age.
        is_price = is_money or not any("age" in words_of(name) for name in names)
        is_price &= is_money or all(isinstance(v, float) and v >= _AMOUNT for v in self.values)
        return prices if is_price and len(prices) == 1 else names

    def _names(self, name: str, least: float, largest: float, *period: str) -> bool:
        """Tell whether a field has the name that was said, and may have the number."""
        name_words, said = words_of(name), self.exact - {"old"}
        is_age = said != self.exact and "age" in name_words
        is_named = is_age or all(share_word({word}, name_words) for word in said)
        may_be = is_age or not name_words & _INEXACT or self.values == (0.0,)
        may_be &= not period and all(factor_of(word, name_words) == 1 for word in said)
        numbers = [value for value in self.values if not isinstance(value, str)]
        return is_named and may_be and any(least <= number <= largest for number in numbers)

    def _fit(self, name: str, least: float, largest: float, *period: str, is_named: bool) -> float:
        name_words = words_of(name)
        factor, values = factor_of(self.unit, name_words), self.values_in(name_words, *period)
        if not factor or not values:
            return 0.0
        numbers = [float(value[:4]) if isinstance(value, str) else value for value in values]
        score = float(any(least <= factor * value <= largest for value in numbers))
        is_year = all(FIRST_YEAR <= v <= _LAST_YEAR and v == int(v) for v in numbers)
        may_be_year = least >= FIRST_YEAR and largest <= _LAST_YEAR
        if is_year and self.words & _YEAR_WORDS and (name_words & _YEAR_NAMES or may_be_year):
            score += 2
        elif may_be_year and not is_year:
            return 0.0
        units = _unit_words(self.unit)
        if factor != 1 or share_word(units, name_words):
            score += 3
        is_asked = any(self.words & asked and name_words & names for asked, names in _FIELDS)
        score += 2 * is_asked
        score += 2 * (is_named and (is_asked or not is_unit(self.unit)))
        score += bool(score) and share_word(self.query - units - _NO_UNITS, name_words)
        # A unit that the field does not have refuses it.
        return score if score > _LEAST or not is_unit(self.unit) else 0.0


def factor_of(unit: str, name_words: Set[str]) -> float:
    """Return what a number in a unit is multiplied by for a field; 0 where it cannot be.

    >>> factor_of("mb", {"size", "kb"}), factor_of("kg", {"time", "min"}), factor_of("", {"min"})
    (1024.0, 0.0, 1.0)
    """
    measures: Iterable[Mapping[str, float]] = TABLE["units"].values()
    named = [(measure, measure[part]) for measure in measures for part in name_words & {*measure}]
    factors = [measure[unit] / value for measure, value in named if unit in measure]
    is_other = bool(named) and any(unit in measure for measure in measures)
    return factors[0] if factors else float(not is_other)


@cache
def words_of(name: str) -> frozenset[str]:
    """Return the words of a field's name, in lower case."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)  # also "kB", which is one word
    return frozenset(_WORD.findall(f"{name} {split}".replace("_", " ").lower()))


def share_word(words: Iterable[str], name_words: Iterable[str]) -> bool:
    """Tell whether a word and a word of a name are forms of one word."""
    return any(
        a == b or (min(len(a), len(b)) > 3 and _stem(a) == _stem(b))
        for a, b in product(words, name_words)
    )


@lru_cache(maxsize=4096)
def _stem(word: str) -> str:
    return re.sub(r"(?:ing|ed|ly|e?s|e)\Z", "", word)[:6]


def _unit_words(unit: str) -> set[str]:
    return {*unit.replace(".", " ").split()}


def is_unit(unit: str) -> bool:
    """Tell whether a unit asks for some fields."""
    return any(_unit_words(unit) & asked for asked, _ in _FIELDS)
