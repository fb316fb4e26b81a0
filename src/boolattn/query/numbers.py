"""Numbers and dates in plain language as conditions: "films before 1990", "under 30 minutes".

A phrase becomes a condition where one field of the metadata fits it by name, unit or range; one
without a unit also where its number is in the range of one field alone. Otherwise it stays words.
"""

from __future__ import annotations

import math
import re
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from boolattn.files import package_table
from boolattn.query.tokens import QUOTED, any_of, phrases_of
from boolattn.query.tree import Not, Or, QueryTree, Where, join_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    #: Least and largest value; and true where these are the years of dates.
    Range = tuple[float, float] | tuple[float, float, bool]

_TABLE = package_table("boolattn.query", "numbers.toml")

_YEAR = r"(?:1[5-9]|20)\d\d"
_DATE = rf"{_YEAR}-\d\d(?:-\d\d)?(?![\d-])"
_NUMBER = (
    rf"(?P<{{0}}>{_DATE}|(?!{_DATE})\d[\d,.]*+)(?:st|nd|rd|th)?\s?"
    r"(?P<{0}_scale>k\b|thousand|million|billion)?"
)
_LOW, _HIGH = _NUMBER.format("low"), _NUMBER.format("high")
_UNIT = r"(?:\s*(?P<unit>square\s\w+|sq\.?\s\w+|[^\W\d]+2?|[%€£$]))?"
_CURRENCY = r"(?P<currency>[$€£]\s?)?"
_SIGNS = {"<": "less", "<=": "at_most", ">": "more", ">=": "at_least"}
_MIRRORED = str.maketrans("<>", "><")
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_VERB = rf"(?:(?:{any_of(_TABLE['verbs'])})\s+)?"
#: What belongs to a phrase and stands before it: "that were not", "but not", "which takes".
_BEFORE = re.compile(
    rf"(?<!\w)(?:(?:that|which|who)\s+)?(?P<negation>(?:{_VERB}(?:(?:but|and)\s+)?(?:not|never|nothing|none|no|neither|nor)|"
    rf"except|without|(?:is|are|was|were|do|does|did)n['\u2019]?t)\s+(?:(?:those|ones|any)\s+)?(?:(?<!\bno\s)[^\W\d_]+(?:ed|ing)\s+)?)?{_VERB}(?:an?\s+)?\Z",
    re.IGNORECASE,
)
#: "no cars", of which those "over 20000" are not wanted; what is "under 20000" may well be.
_NO_SUCH = re.compile(
    r"(?:^|,)\s*(?:no|exclud(?:e|ing)|avoid|hide|skip|don['\u2019]?t\s+(?:show|want)|"
    r"(?:any|every)thing\s+(?:but|except))\s+(?:any\s+)?"
    r"(?:[^\W\d]+\s+){0,2}\Z",
    re.IGNORECASE,
)
_WANTED = re.compile(
    r"(?:under|below|less|up|max|within|at|from|between|since|\d|[$€£])", re.IGNORECASE
)
_OR_BEFORE = re.compile(r"\bor(?:\s+(?:any|some)thing)?(?:\s+(?:that|which))?\s*\Z", re.IGNORECASE)
#: What joined a phrase that was left out, and joins nothing then.
_LOOSE = re.compile(r"^\s{3,}(?:and|but)\s|\s{3,}(?:and|but)(?=\s{3,}|\s*$)", re.IGNORECASE)
_OR_AFTER = re.compile(r"[\s,]*or\b", re.IGNORECASE)
#: Words after a number and "or" that ask for less.
_LESS = {*phrases_of(_TABLE["or_less"]), *phrases_of(_TABLE["last"])}
_COMPARED = "|".join(f"(?P<{name}>{any_of(_TABLE[name])})" for name in _SIGNS.values())
_FORMS = tuple(
    re.compile(rf"(?<!\w){form}(?!\w)", re.IGNORECASE)
    for form in (
        rf"(?:between|from)\s+{_CURRENCY}{_LOW}\s*(?:and|to|-|–)\s*[$€£]?\s?{_HIGH}{_UNIT}",
        rf"{_CURRENCY}{_LOW}\s?[$€£]?\s*(?:to|-|–)\s*[$€£]?\s?{_HIGH}{_UNIT}(?(currency)|(?<![\d\s]))",
        r"(?:(?:(?:in|from|of|during)\s+)?the\s+|(?:in|from|of|during)\s+|\A(?=[5-9]0['’]?s))['’]?"
        rf"(?P<decade>(?:1[5-9]|20)?\d0['’]?s|(?ai:{'|'.join(_TABLE['decades'])}))",
        rf"(?:(?:in|from)\s+)?{_CURRENCY}{_LOW}{_UNIT}\s+(?:(?:or|and)\s+"
        rf"(?P<limit>{any_of(_TABLE['or_less'])}|{any_of(_TABLE['or_more'])})(?!\s*(?:than\b|[$€£\d]))|"
        rf"(?P<last>{any_of(_TABLE['last'])})(?!\s+(?:of\s+)?(?:[^\W\d_]+\s+)?[$€£]?\d))",
        # "from 2020 on", but not "from 2020 on disc".
        rf"(?:from|since)\s+{_LOW}\s+(?:and\s+)?"
        rf"(?P<limit>onwards?|on(?!\s+(?!(?:{'|'.join(_TABLE['no_units'].split())})\b)\w))",
        r"(?<!available )(?<!valid )(?:in|from|during|o[fn](?=\s+\d+-))\s+(?:the\s+year\s+)?"
        rf"(?P<year>{_DATE}|{_YEAR})(?!\s+(?:and|onwards?|or|to)\b|\s?[-–])",
        rf"{_CURRENCY}{_LOW}(?P<limit>\+){_UNIT}",
        rf"(?:{_COMPARED})(?:\s+|-|(?<=[<>=])){_CURRENCY}{_LOW}{_UNIT}",
        rf"(?:(?P<less>pre)|(?P<more>post))[\s-](?P<low>{_YEAR})",
        rf"(?:{_COMPARED})\s+(?P<name>[^\W\d_]+)\s+{_LOW}",
        rf"\s*(?P<year>{_DATE})(?!\s+(?:and|or|to)\b)",
    )
)
_MONTHS = tuple(_TABLE["months"].split())
_DAY = r"(?P<{}>\d\d?)(?:st|nd|rd|th)?"
#: "March 2021", "3 March 2021" and "March 3, 2021".
_WRITTEN = re.compile(
    rf"(?<!\w)(?:{_DAY.format('first')}\s+)?(?P<month>"
    rf"{'|'.join(f'{month[:3]}(?:{month[3:]}|{month[3:4]})?' for month in _MONTHS)})\.?\s+"
    rf"(?:{_DAY.format('second')},?\s+)?(?P<year>{_YEAR})(?!\w)",
    re.IGNORECASE,
)
_SCALES = {"k": 1e3, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_WORD = re.compile(r"[^\W\d_]+")
#: Units and adjectives, and the words of names of the fields that they ask for.
_FIELDS = tuple(
    (frozenset(row["words"].split()), frozenset(row["names"].split())) for row in _TABLE["fields"]
)
_NUMBERS = _TABLE["numbers"]
_SPELLED = re.compile(rf"(?<![\w-])(?ai:{'|'.join(sorted(_NUMBERS, reverse=True))})(?![\w-])")
_YEAR_NAMES, _YEAR_WORDS, _TIME_WORDS, _NO_UNITS = (
    frozenset(_TABLE[name].split())
    for name in ("year_names", "year_words", "time_words", "no_units")
)
#: Characters before a phrase in which words that belong to it are looked for.
_NEAR = 60
_NEXT_WORD = re.compile(r"\s+([^\W\d_]+)(?!\w)")
_LAST_WORD = re.compile(r"([^\W\d_]+)(?:\s+of)?\s+$")
#: The least that a field must fit by: a unit or an adjective, or its name and its range.
_LEAST = 2.0
_FIRST_YEAR, _LAST_YEAR = 1000, 2100


class NumberPhrase(NamedTuple):
    """A phrase of a query that became conditions: its characters, and what it asks for."""

    start: int
    end: int
    tree: QueryTree


def find_numbers(
    text: str, ranges: Callable[[], Mapping[str, Range]], notes: list[str] | None = None
) -> list[NumberPhrase]:
    """Find phrases that fit a field; ``ranges`` returns the least and largest value of each.

    What stands between quotes is text. A phrase that fits several fields alike is a note.

    >>> [phrase] = find_numbers("laptops under 1 kg", lambda: {"price": (9, 99), "weight": (1, 3)})
    >>> phrase.start, phrase.end, phrase.tree
    (8, 18, Where(text='weight<1'))
    """
    phrases: list[NumberPhrase] = []
    quoted = [match.span() for match in QUOTED.finditer(text)]
    text = _WRITTEN.sub(_iso, text)
    text = _SPELLED.sub(lambda m: _NUMBERS[m[0].lower()].zfill(len(m[0])), text)
    for form in _FORMS:
        for match in form.finditer(text):
            taken = [*quoted, *(phrase[:2] for phrase in phrases)]
            is_taken = any(start < match.end() and match.start() < end for start, end in taken)
            names = list[str]()
            if not is_taken and (phrase := _read(match, text, ranges(), names)):
                phrases.append(phrase)
            elif names and notes is not None:
                fields = " and ".join(names)
                notes.append(f"{match[0].strip()!r} fits {fields}, so it is text; name one of them")
    return _with_or(text, sorted(phrases))


def _with_or(text: str, phrases: Sequence[NumberPhrase]) -> list[NumberPhrase]:
    """Join conditions with "or" between them; one beside an "or" and words stays words."""
    joined: list[NumberPhrase] = []
    for phrase in phrases:
        if joined and text[joined[-1].end : phrase.start].strip(" ,").lower() == "or":
            start, _, tree = joined.pop()
            phrase = NumberPhrase(start, phrase.end, join_all([tree, phrase.tree], Or))
        joined.append(phrase)
    return [
        p
        for p in joined
        if not (_OR_BEFORE.search(text, 0, p.start) or _OR_AFTER.match(text, p.end))
    ]


def without_numbers(text: str, phrases: Sequence[NumberPhrase]) -> str:
    """Return a text with spaces in place of phrases; "everything" where nothing else is said."""
    for phrase in phrases:
        text = text[: phrase.start] + " " * (phrase.end - phrase.start) + text[phrase.end :]
    text = _LOOSE.sub(lambda match: " " * len(match[0]), text)
    return text if not phrases or _WORD.search(text) else "everything"


def other_spans(text: str, phrases: Sequence[NumberPhrase]) -> tuple[tuple[int, int], ...]:
    """Return the characters of the rest of a text.

    >>> other_spans("soup under 15 minutes with fish", [NumberPhrase(5, 21, Where("x"))])
    ((0, 4), (22, 31))
    """
    blank = without_numbers(text, phrases)
    return tuple(match.span() for match in re.finditer(r"\S+(?:\s\S+)*", blank))


def _iso(match: re.Match[str]) -> str:
    """Return a date with the name of a month as 2021-03 or 2021-03-01, in as many characters."""
    number = 1 + [month[:3] for month in _MONTHS].index(match["month"][:3].lower())
    day = match["first"] or match["second"]
    date = f"{match['year']}-{number:02}" + (f"-{int(day):02}" if day else "")
    return date.rjust(len(match[0]))


def _read(
    match: re.Match[str], text: str, ranges: Mapping[str, Range], names: list[str]
) -> NumberPhrase | None:
    """Return the phrase of a match; of a comparison, add several fields that fit to ``names``."""
    groups = match.groupdict()
    limits = _limits(groups)
    word, said = (groups.get("unit") or "").lower(), match[0].lower()
    unit = "$" if groups.get("currency") else "" if word in _NO_UNITS else word
    said = said if unit else said.removesuffix(word)
    phrase = _Phrase(
        frozenset([*_WORD.findall(said), *_unit_words(unit), "in" if groups.get("decade") else ""]),
        unit,
        frozenset(_WORD.findall(text.lower())),
        tuple(value if isinstance(value, float) else float(value[:4]) for _, value in limits),
        is_date=any(isinstance(value, str) for _, value in limits),
    )
    fields = phrase.fields(ranges)
    names += fields if len(fields) > 1 and any(map(groups.get, _SIGNS.values())) else []
    if len(fields) != 1 or not -math.inf < phrase.values[0] <= phrase.values[-1] < math.inf:
        return None
    [name] = fields
    name_words = words_of(name)
    if (said_name := groups.get("name")) and not share_word({said_name.lower()}, name_words):
        return None
    is_used = not word or _is_unit(word) or share_word({word}, name_words)
    end = match.end() if is_used else match.start("unit")
    # "under 4% abv".
    if (after := _NEXT_WORD.match(text, end)) and share_word({after[1].lower()}, name_words):
        end = after.end()
    start = match.start()
    # The field's name before it belongs to it: "bought in 2022".
    before = _LAST_WORD.search(text, max(0, start - _NEAR), start)
    if before and share_word({before[1].lower()}, name_words):
        start = before.start()
    before = _BEFORE.search(text, max(0, start - _NEAR), start)
    start, is_negated = (before.start(), bool(before["negation"])) if before else (start, False)
    if {"older", "newer"} & phrase.words and phrase.values[0] < _FIRST_YEAR:  # of an age
        limits = [(sign.translate(_MIRRORED), value) for sign, value in limits]
    is_limit = len(limits) == 1 or text[:start].rstrip().endswith("s")  # "no films in 1984"
    such = _NO_SUCH.search(text, 0, start)
    if is_limit and such and not _WANTED.match(match[0]):
        start, is_negated = such.start(), True
    if is_negated and len(limits) == 1:
        limits, is_negated = [(_OPPOSITE[sign], value) for sign, value in limits], False
    factor = _factor(unit, name_words)
    conditions = (
        Where(f"{name}{sign}{value if isinstance(value, str) else f'{value * factor:.12g}'}")
        for sign, value in limits
    )
    tree = join_all([*conditions])
    return NumberPhrase(start, end, Not(tree) if is_negated else tree)


def _limits(groups: Mapping[str, str | None]) -> Sequence[tuple[str, float | str]]:
    """Return signs and values: a number, or a date as 2021-03."""
    if decade := groups.get("decade"):
        first = float(_TABLE["decades"].get(decade.lower()) or decade.rstrip("'’sS"))
        first += 0 if first >= _FIRST_YEAR else 1900 if first > 10 else 2000
        return ((">=", first), ("<=", first + 9))
    scale = groups.get("low_scale")
    if high := groups.get("high"):
        low = _value(groups["low"], scale or groups["high_scale"])
        return ((">=", low), ("<=", _value(high, groups["high_scale"])))
    if year := groups.get("year"):
        return ((">=", _value(year)), ("<=", _value(year)))
    if last := groups.get("last") or groups.get("limit"):
        sign = "<=" if last.lower() in _LESS else ">="
    else:
        sign = next(sign for sign, name in _SIGNS.items() if groups.get(name))
    return ((sign, _value(groups["low"], scale)),)


def _factor(unit: str, name_words: Set[str]) -> float:
    """Return what a number in a unit is multiplied by for a field; 0 where it cannot be.

    >>> _factor("mb", {"size", "kb"}), _factor("kg", {"time", "min"}), _factor("", {"min"})
    (1024.0, 0.0, 1.0)
    """
    measures: Iterable[Mapping[str, float]] = _TABLE["units"].values()
    named = [(measure, measure[part]) for measure in measures for part in name_words & {*measure}]
    factors = [measure[unit] / value for measure, value in named if unit in measure]
    is_other = bool(named) and any(unit in measure for measure in measures)
    return factors[0] if factors else float(not is_other)


def _value(digits: str | None, scale: str | None = None) -> float | str:
    plain = (digits or "").rstrip(".,")
    if re.fullmatch(_DATE, plain):
        return plain
    # A comma before three digits, or a point before three zeros, separates thousands.
    plain = re.sub(r",(?=\d{3}(?!\d))|\.(?=000(?!\d))", "", plain).replace(",", ".")
    try:
        return float(plain) * _SCALES.get((scale or "").lower(), 1)
    except ValueError:
        return math.nan


class _Phrase(NamedTuple):
    """What decides which field a number belongs to."""

    words: frozenset[str]
    unit: str
    query: frozenset[str]  # all words of the query
    values: tuple[float, ...]  # of a date its year
    is_date: bool

    def fields(self, ranges: Mapping[str, Range]) -> list[str]:
        """Return the field that fits best, or those that fit alike."""
        scores = {name: self._fit(name, *known) for name, known in sorted(ranges.items())}
        best = max(scores.values(), default=0.0)
        # Nothing but the number itself says what it measures: "under 1400".
        says = any(self.words & asked for asked, _ in _FIELDS) or self.words & _TIME_WORDS
        least = 1.0 if best < _LEAST and not says and not self.unit else max(best, _LEAST)
        return [name for name, score in scores.items() if score >= least]

    def _fit(self, name: str, least: float, largest: float, has_dates: bool = False) -> float:
        name_words = words_of(name)
        factor = _factor(self.unit, name_words)
        if not factor or (self.is_date and not has_dates):
            return 0.0
        score = float(any(least <= factor * value <= largest for value in self.values))
        is_year = all(_FIRST_YEAR <= v <= _LAST_YEAR and v == int(v) for v in self.values)
        may_be_year = least >= _FIRST_YEAR and largest <= _LAST_YEAR
        if is_year and self.words & _YEAR_WORDS and (name_words & _YEAR_NAMES or may_be_year):
            score += 2
        elif may_be_year and not is_year:
            return 0.0
        units = _unit_words(self.unit)
        if factor != 1 or share_word(units, name_words):
            score += 3
        if any(self.words & asked and name_words & names for asked, names in _FIELDS):
            score += 2
        score += bool(score) and share_word(self.query - units, name_words)
        # A unit that the field does not have refuses it.
        return score if score > _LEAST or not _is_unit(self.unit) else 0.0


def words_of(name: str) -> set[str]:
    """Return the words of a field's name, in lower case."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)  # also "kB", which is one word
    return set(_WORD.findall(f"{name} {split}".replace("_", " ").lower()))


def share_word(words: Iterable[str], name_words: Iterable[str]) -> bool:
    """Tell whether a word and a word of a name are forms of one word."""
    return any(
        a == b or (min(len(a), len(b)) > 3 and a[:7].rstrip("s") == b[:7].rstrip("s"))
        for a, b in product(words, name_words)
    )


def _unit_words(unit: str) -> set[str]:
    return {*unit.replace(".", " ").split()}


def _is_unit(unit: str) -> bool:
    return any(_unit_words(unit) & asked for asked, _ in _FIELDS)
