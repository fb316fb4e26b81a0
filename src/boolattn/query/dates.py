"""Dates in plain language: "3 March 2021", "March 3, 2021", "31.12.2021", "in October"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date

from boolattn.files import package_table

_MONTHS = tuple(package_table("boolattn.query", "numbers.toml")["months"].split())
DAY, YEAR = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?(?![\d.,]*\d)", r"(?:1[5-9]|20)\d\d"
_MONTH = "|".join(rf"{month[:3]}(?:{month[3:]}|{month[3:4]})?" for month in _MONTHS)
#: The parts of a date by its notation. What has a point has the day first.
_NOTATIONS = (
    rf"(?P<year>{YEAR})-(?P<number>\d\d)(?:-(?P<day>\d\d))?(?![\d-])",
    rf"(?P<day>\d\d?)(?P<sign>[./])(?P<number>\d\d?)(?P=sign)(?P<year>{YEAR})(?!\d)",
    rf"(?P<month>{_MONTH})(?!\w)\.?(?:\s+(?P<day>{DAY}))?(?:,?\s+(?P<year>{YEAR})(?!\w))?",
    rf"(?P<day>{DAY})\s+(?:of\s+)?(?P<month>{_MONTH})(?!\w)\.?(?:,?\s+(?P<year>{YEAR})(?!\w))?",
)
_DATES = tuple(re.compile(notation, re.IGNORECASE) for notation in _NOTATIONS)
_NAMELESS = (re.sub(r"\?P<\w+>", "?:", n).replace("(?P=sign)", "[./]") for n in _NOTATIONS[::-1])
_ANY = re.compile(rf"(?<!\w)(?:{'|'.join(_NAMELESS)})(?!\w)", re.IGNORECASE)
#: In place of each character of a date: patterns of phrases need not know how dates are written.
_MARK = "\ue000"
DATE = f"{_MARK}++"


def mark_dates(text: str) -> str:
    """Return a text with marks in place of dates."""
    return _ANY.sub(lambda match: _MARK * len(match[0]), text)


def read_date(text: str) -> str:
    """Return a date as 2021-03-01, a month as 2021-03; without a year as --03; else nothing.

    >>> [read_date(text) for text in ("3 March 2021", "Sept. 2021", "31/12/2021", "May", "2021")]
    ['2021-03-03', '2021-09', '2021-12-31', '--05', '']
    """
    for notation in _DATES:
        if match := notation.fullmatch(text):
            said = match.groupdict()
            day, month = int(re.sub(r"\D", "", said["day"] or "0")), int(said.get("number") or 0)
            if said.get("sign") == "/" and (day <= 12 or month > 12):
                if month <= 12:  # the third of April, or the fourth of March
                    return ""
                day, month = month, day
            if name := said.get("month"):
                month = 1 + [known[:3] for known in _MONTHS].index(name[:3].lower())
            with suppress(ValueError):  # of a day that no calendar has
                date(int(said["year"] or 2000), month, day or 1)
                return f"{said['year'] or '-'}-{month:02}{f'-{day:02}' if day else ''}"
    return ""


def in_period(dates: Sequence[str], first: str, last: str) -> list[str]:
    """Return dates with the only year that brings one between two days; else nothing.

    >>> in_period(["--10-05", "--11"], "2020-09-01", "2021-03-01")
    ['2020-10-05', '2020-11']
    """
    said = [day[:4] for day in dates if not day.startswith("-")]
    years = said[-1:] or [str(year) for year in range(int(first[:4]), int(last[:4]) + 1)]
    completed = [[f"{year}{d[1:]}" if d.startswith("-") else d for d in dates] for year in years]
    completed = [days for days in completed if all(read_date(d) or len(d) == 4 for d in days)]
    if not said:
        completed = [
            days for days in completed if any(first[: len(d)] <= d <= last[: len(d)] for d in days)
        ]
    return completed[0] if len(completed) == 1 else []
