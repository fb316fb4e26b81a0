"""Numbers and dates in plain language as conditions: "films before 1990", "under 30 minutes".

A phrase becomes a condition where one field of the metadata fits it by name, unit or range; one
without a unit also where its number is in the range of one field alone. Otherwise it stays words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from boolattn.query.dates import DATE, DAY, YEAR, mark_dates, read_date
from boolattn.query.fields import (
    FIRST_YEAR,
    TABLE,
    Measure,
    factor_of,
    is_unit,
    share_word,
    words_of,
)
from boolattn.query.tokens import QUOTED, any_of, phrases_of
from boolattn.query.tree import Not, Or, QueryTree, Where, join_all

if TYPE_CHECKING:
    from boolattn.query.fields import Range

_LOW, _HIGH = (
    rf"(?P<{name}>{DATE}|\d++(?:[,.]\d++)*+)(?:st|nd|rd|th)?\s?"
    rf"(?P<{name}_scale>k\b|thousand|million|billion)?"
    for name in ("low", "high")
)
_NO_UNITS = "|".join(TABLE["no_units"].split())
_UNIT = (
    rf"(?:\s*(?!(?<=\d)s\b|(?:{_NO_UNITS})\b)"
    r"(?P<unit>square\s\w+|sq\.?\s\w+|[^\W\d]+2?|[%€£$]))?"
)
_MEASURES = "|".join(unit for measure in TABLE["units"].values() for unit in measure)
_CURRENCY = r"(?P<currency>[$€£]\s?)?"
_SIGNS = {"<": "less", "<=": "at_most", ">": "more", ">=": "at_least"}
_MIRRORED = str.maketrans("<>", "><")
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_VERB = rf"(?:(?:{any_of(TABLE['verbs'])})\s+)?"
#: What belongs to a phrase and stands before it: "that were not", "but not", "which takes".
_BEFORE = re.compile(
    rf"(?<!\w)(?:(?:that|which|who)\s+)?(?P<negation>(?:{_VERB}(?:(?:but|and)\s+)?(?:not|never|nothing|none|no|neither|nor)|"
    r"except|without|(?:is|are|was|were|do|does|did)n['\u2019]?t|(?:(?:ca|wo|do|could|would)n['\u2019]?t|"
    rf"(?:can|could|do|will|would)\s?not)\s+(?:want\s+to\s+)?(?:afford|go|have|pay|spend))\s+(?:(?:those|ones|any)\s+)?(?P<done>(?<!\bno\s)[^\W\d_]+(?:ed|ing)\s+)?)?{_VERB}(?:an?\s+)?\Z",
    re.IGNORECASE,
)
_MINUS = re.compile(r"(?<!\S)[-–−]")
#: "no cars", of which those "over 20000" are not wanted; what is "under 20000" may well be.
_NO_SUCH = re.compile(
    r"(?:(?P<start>^|,)|\s)\s*(?:no|exclud(?:e|ing)|avoid|hide|skip|don['\u2019]?t\s+(?:show|want)|"
    r"(?:any|every)thing\s+(?:but|except))\s+(?:any\s+)?"
    r"(?:[^\W\d]+\s+){0,2}\Z",
    re.IGNORECASE,
)
_WANTED = re.compile(
    r"(?:under|below|less|up|max|within|at|from|between|since|\d|[$€£])", re.IGNORECASE
)
_OR_BEFORE = re.compile(r"\bor(?:\s+(?:any|some)thing)?(?:\s+(?:that|which))?\s*\Z", re.IGNORECASE)
#: What joined a phrase that was left out, and joins nothing then.
_LOOSE = re.compile(
    r"^\s{3,}(?:and|but)\s|\s{3,}(?:and|but)(?=\s{3,}|\s*$)|(?<=\s\s\s),", re.IGNORECASE
)
_OR_AFTER = re.compile(r"[\s,]*or\b", re.IGNORECASE)
#: Words after a number and "or" that ask for less.
_LESS = {*phrases_of(TABLE["or_less"]), *phrases_of(TABLE["last"])}
_DECADE = rf"(?:1[5-9]|20)?\d0['’]?s|(?ai:{'|'.join(TABLE['decades'])})"
_COMPARED = "|".join(f"(?P<{name}>{any_of(TABLE[name])})" for name in _SIGNS.values())
_FORMS = tuple(
    re.compile(rf"(?<!\w){form}(?!\w)", re.IGNORECASE)
    for form in (
        rf"(?:between|from)\s+{_CURRENCY}{_LOW}\s*(?:and|to|until|till|-|–)\s*[$€£]?\s?{_HIGH}{_UNIT}",
        rf"(?P<low>{DATE}|{DAY})\s*(?:to|until|till|-|–)\s*(?P<high>{DATE})",
        rf"{_CURRENCY}{_LOW}\s?[$€£]?\s*(?:to|-|–)\s*[$€£]?\s?{_HIGH}{_UNIT}(?(currency)|(?<![\d\s]))",
        r"(?:(?:(?:in|from|of|during)\s+)?the\s+|(?:in|from|of|during)\s+|\A(?=[5-9]0['’]?s))['’]?"
        rf"(?P<decade>{_DECADE})(?:\s+(?:and|or)\s+(?:the\s+)?['’]?(?P<other>{_DECADE}))?",
        rf"(?:(?:in|from)\s+)?{_CURRENCY}{_LOW}{_UNIT}\s+(?:(?:or|and)\s+"
        rf"(?P<limit>{any_of(TABLE['or_less'])}|{any_of(TABLE['or_more'])})(?!\s*(?:than\b|[$€£\d]))|"
        rf"(?P<last>{any_of(TABLE['last'])})(?!\s+(?:of\s+)?(?:[^\W\d_]+\s+)?[$€£]?\d))",
        # "from 2020 on", but not "from 2020 on disc".
        rf"(?:from|since)\s+{_LOW}\s+(?:and\s+)?"
        rf"(?P<limit>onwards?|on(?!\s+(?!(?:{_NO_UNITS})\b)\w))",
        rf"(?:in|(?<!available )(?<!valid )from|during|o[fn](?=\s+{DATE}))\s+(?:the\s+year\s+)?"
        rf"(?P<year>{DATE}|{YEAR})(?:\s+(?:and|or)\s+(?:in\s+)?(?P<other>{DATE}|{YEAR}))?"
        r"(?!\s+(?:and|onwards?|or|to)\b|\s?[-–])",
        rf"{_CURRENCY}{_LOW}(?P<limit>\+){_UNIT}",
        rf"(?:{_COMPARED})(?:\s+|-|(?<=[<>=])){_CURRENCY}{_LOW}{_UNIT}",
        rf"(?:(?P<less>pre)|(?P<more>post))[\s-](?P<low>{YEAR})",
        rf"(?:{_COMPARED})\s+(?P<name>[^\W\d_]+)\s+{_LOW}",
        rf"(?P<name>[^\W\d_]+)\s+{_LOW}\s*(?:to|-|–)\s*{_HIGH}",
        rf"(?P<year>(?P<bare>{DATE}))(?!\s+(?:and|or|to)\b)",
        # The name of a field: "2 bedrooms", "3 years old", "level 5", "no deposit".
        r"(?:(?:exactly|only|just)\s+)?(?P<low>\d+)(?:\s+or\s+(?P<other>\d+))?[\s-]+"
        r"(?P<exact>(?:year|month|week)s?[\s-]old|(?!(?:year|month|week|day|hour|minute)s?\b)[^\W\d_]+)",
        r"(?P<exact>[^\W\d_]+)\s+(?:(?:of|is|exactly)\s+)?(?P<low>\d+)(?:\s+or\s+(?P<other>\d+))?"
        rf"(?![\d.,]*\d|\+|\s?[-–%$€£]|\s?(?:{_MEASURES})\b)",
        r"(?:no|zero|without(?:\s+an?y?)?)\s+(?P<none>(?:[^\W\d_]+\s+)??[^\W\d_]+)"
        r"(?:\s+(?:needed|required|necessary))?"
        rf"(?=\s*(?:[,.;?!]|\Z)|\s+(?:{_NO_UNITS})\b)",
    )
)
_SCALES = {"k": 1e3, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_WORD = re.compile(r"[^\W\d_]+")
_NUMBERS = TABLE["numbers"]
_SPELLED = re.compile(rf"(?<![\w-])(?ai:{'|'.join(sorted(_NUMBERS, reverse=True))})(?![\w-])")
_MONEY = frozenset(TABLE["money"].split())
#: "900 a month".
_PERIOD = re.compile(
    r"\s*(?:/|per\s|an?\s)\s*(?:month|week|night|day|year|hour)(?!\w)", re.IGNORECASE
)
_TAKEN = "\ue001"
#: Characters before a phrase in which words that belong to it are looked for.
_NEAR = 60
_NEXT_WORD = re.compile(r"\s+(?:of\s+)?([^\W\d_]+)(?!\w)")
#: Not of "2 bedrooms max 1500": the bedrooms are two.
_LAST_WORD = re.compile(r"(?<!\w)(?<!\d[\s-])([^\W\d_]+)(?:\s+of)?\s+$")


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
    text = _SPELLED.sub(lambda m: _NUMBERS[m[0].lower()].zfill(len(m[0])), text)
    # In the free text quotes and phrases are marks.
    free, marked = QUOTED.sub(lambda m: _TAKEN * len(m[0]), text), mark_dates(text)
    for form in _FORMS:
        for match in form.finditer(marked):
            names = list[str]()
            if _TAKEN in free[slice(*match.span())]:
                continue
            if phrase := _read(match, text, free, ranges(), names):
                phrases.append(phrase)
                start, end, _ = phrase
                free = free[:start] + _TAKEN * (end - start) + free[end:]
            elif names and notes is not None:
                fields = " and ".join(names)
                said = text[slice(*match.span())].strip()
                notes.append(f"{said!r} fits {fields}, so it is text; name one of them")
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


def _read(
    match: re.Match[str], text: str, free: str, ranges: Mapping[str, Range], names: list[str]
) -> NumberPhrase | None:
    """Return the phrase of a match; of a comparison, add several fields that fit to ``names``."""
    groups = {n: text[slice(*match.span(n))] for n, group in match.groupdict().items() if group}
    limits = _limits(groups)
    said = text[slice(*match.span())].lower()
    unit = "$" if groups.get("currency") else (groups.get("unit") or "").lower()
    is_due = _PERIOD.match(text, match.end()) and any(words_of(n) & _MONEY for n in ranges)
    unit = unit or "$" * bool(is_due)
    phrase = Measure(
        frozenset([*_WORD.findall(said), unit, "in" if groups.get("decade") else ""]),
        unit,
        _words_in(text),
        tuple(value for _, value in limits),
        frozenset(_WORD.findall((groups.get("exact") or groups.get("none") or "").lower())),
    )
    named = {} if phrase.exact else _named(match, free, ranges)
    others = {} if groups.get("name") else ranges
    fields = phrase.fields(named, is_named=True) or phrase.fields(others)
    is_said = any(map(groups.get, (*_SIGNS.values(), "year"))) and not groups.get("bare")
    names += fields if len(fields) > 1 and is_said else []
    if len(fields) != 1:
        return None
    [name] = fields
    name_words, values = words_of(name), phrase.values_in(words_of(name), *ranges[name][2:])
    is_period = len(values) > 1 and not phrase.exact
    if math.inf in values or (is_period and not values[0] <= values[1]):  # type: ignore[operator]
        return None
    limits = [(sign, value) for (sign, _), value in zip(limits, values, strict=True)]
    start, end = _extent(match, free, name_words)
    # "July" alone may be a name, "july start" is none.
    if (bare := groups.get("bare")) and bare.isalpha() and (start, end) == match.span():
        return None
    start, is_negated = _beginning(match, text, start, is_period=is_period)
    is_age = isinstance(values[0], float) and values[0] < FIRST_YEAR
    if {"older", "newer"} & phrase.words and is_age:
        limits = [(sign.translate(_MIRRORED), value) for sign, value in limits]
    if is_negated and len(limits) == 1 and not phrase.exact:
        limits, is_negated = [(_OPPOSITE[sign], value) for sign, value in limits], False
    factor = factor_of(unit, name_words)
    conditions = [
        Where(f"{name}{sign}{value if isinstance(value, str) else f'{value * factor:.12g}'}")
        for sign, value in limits
    ]
    size = 1 if phrase.exact else 2  # a period has two limits
    periods = [join_all(conditions[at : at + size]) for at in range(0, len(conditions), size)]
    tree = join_all(periods, Or)
    return NumberPhrase(start, end, Not(tree) if is_negated else tree)


@lru_cache(maxsize=8)
def _words_in(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _beginning(match: re.Match[str], text: str, start: int, *, is_period: bool) -> tuple[int, bool]:
    """Return where a phrase begins with its verbs and its negation, and whether it has one."""
    before, is_negated = _BEFORE.search(text, max(0, start - _NEAR), start), False
    # "not furnished 2 bedrooms".
    if before and not (before["done"] and match.groupdict().get("exact")):
        start, is_negated = before.start(), bool(before["negation"])
    if _MINUS.match(text, start - 1, start):
        start, is_negated = start - 1, not is_negated
    is_limit = not is_period or text[:start].rstrip().endswith("s")  # "no films in 1984"
    such = _NO_SUCH.search(text, max(0, start - _NEAR), start)
    # Without a comma what is older than something is "no cars older than 2012".
    is_such = such is not None and (such["start"] is not None or "than" in match[0].lower())
    if such and is_such and is_limit and not _WANTED.match(text, match.start()):
        start, is_negated = such.start(), True
    return start, is_negated


def _named(match: re.Match[str], free: str, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return the fields that a match, or the word before it, names: "deposit under 600 euro"."""
    before = _LAST_WORD.search(free, max(0, match.start() - _NEAR), match.start())
    said = (match.groupdict().get("name") or (before[1] if before else "")).lower()
    forms = {said, said.removesuffix("d")}  # "aged 3" is of an age
    return {name: known for name, known in ranges.items() if share_word(forms, words_of(name))}


def _extent(match: re.Match[str], free: str, name_words: Set[str]) -> tuple[int, int]:
    """Return the characters of a match without what is no unit, but with the field's name."""
    start, end = match.span()
    word = (match.groupdict().get("unit") or "").lower()
    if word and not is_unit(word) and not share_word({word}, name_words):
        end = match.start("unit")
    # "under 4% abv".
    if (after := _NEXT_WORD.match(free, end)) and share_word({after[1].lower()}, name_words):
        end = after.end()
    if name_words & _MONEY and (after := _PERIOD.match(free, end)):
        end = after.end()
    # "bought in 2022".
    before = _LAST_WORD.search(free, max(0, start - _NEAR), start)
    is_named = before is not None and share_word({before[1].lower()}, name_words)
    return before.start() if before and is_named else start, end


def _limits(groups: Mapping[str, str]) -> Sequence[tuple[str, float | str]]:
    """Return signs and values: a number, or a date as 2021-03, without a year as --03."""
    others = [other] if (other := groups.get("other")) else []
    if decade := groups.get("decade"):
        firsts = [*map(_first_year, [decade, *others])]
        return [limit for first in firsts for limit in ((">=", first), ("<=", first + 9))]
    if groups.get("none"):
        return (("=", 0.0),)
    scale = groups.get("low_scale")
    if groups.get("exact"):
        return [("=", _value(number)) for number in (groups["low"], *others)]
    if groups.get("high"):
        high_scale = groups.get("high_scale")
        low, high = _value(groups["low"], scale or high_scale), _value(groups["high"], high_scale)
        if isinstance(high, str) and not isinstance(low, str):
            # A year, or the day of a month: "from 2019 to May 2021", "10 to 20 May".
            has_day = re.search(r"-\d\d-\d\d\Z", high) and low <= 31
            low = f"{high[:-2]}{low:02.0f}" if has_day else f"{low:04.0f}"
        return ((">=", low), ("<=", high if type(high) is type(low) else f"{high:.0f}"))
    if year := groups.get("year"):
        return [(sign, _value(period)) for period in (year, *others) for sign in (">=", "<=")]
    if last := groups.get("last") or groups.get("limit"):
        sign = "<=" if last.lower() in _LESS else ">="
    else:
        sign = next(sign for sign, name in _SIGNS.items() if groups.get(name))
    return ((sign, _value(groups["low"], scale)),)


def _first_year(decade: str) -> float:
    first = float(TABLE["decades"].get(decade.lower()) or decade.rstrip("'’sS"))
    return first + (0 if first >= FIRST_YEAR else 1900 if first > 10 else 2000)


def _value(digits: str | None, scale: str | None = None) -> float | str:
    plain = (digits or "").rstrip(".,")
    if day := read_date(plain):
        return day
    # A comma before three digits, or a point before three zeros, separates thousands.
    plain = re.sub(r",(?=\d{3}(?!\d))|\.(?=000(?!\d))", "", plain).replace(",", ".")
    try:
        return float(plain) * _SCALES.get((scale or "").lower(), 1)
    except ValueError:
        return math.nan
