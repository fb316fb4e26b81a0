"""Filters on metadata, applied exactly and before ranking.

``{"country": "Peru", "tags": ["vegan", "quick"], "year": {"gte": 1990, "lt": 2000},
"date": {"lte": "2024-03"}, "title": {"contains": "soup"}, "status": {"not": "draft"},
"price": {"exists": true}}``: all conditions must hold. A list meets a condition if one of its
values does. A document without a value passes only ``not`` and ``{"exists": false}``.

In databases metadata are stored as tags (a field's name with the hash of a value) and numbers.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
import sys
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boolattn.errors import QueryError
from boolattn.query import tree as trees
from boolattn.stores.values import as_boolean, filter_hash, is_number, items, moment_of, period_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.query.fields import Range
    from boolattn.stores.values import Metadata, Value

RANGES = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
KINDS = ("in", "not", "contains", "exists", *RANGES)
_SIGNS = {"=": "in", "!=": "not", "~": "contains", ">=": "gte", "<=": "lte", ">": "gt", "<": "lt"}
SIGNS = {kind: sign for sign, kind in _SIGNS.items()}
_CONDITION = re.compile(r"(?P<name>[^=!<>~]+?)\s*(?P<sign>!=|>=|<=|=|>|<|~)\s*(?P<value>.*)", re.S)
#: The least and the most of a field's numbers, and of its dates.
NUMBERS = (("smallest", "largest"), ("earliest", "latest"))
#: Columns of numbers hold every whole number up to here.
_EXACT = 2**53
#: Maximum number of tags of a document; Milvus has such a limit.
MAX_TAGS = 4096
EXISTS = 0  # in place of a hash: the field has a value


class Field(NamedTuple):
    """A field of the metadata: whether it holds numbers or dates, and their range."""

    numbers: tuple[float, float] | None = None
    dates: tuple[float, float] | None = None  # seconds since 1970


def number_ranges(fields: Mapping[str, Field]) -> dict[str, Range]:
    """Return the least and largest number of each field; of dates their years, and the days."""
    ranges: dict[str, Range] = {}
    for name, field in fields.items():
        if field.numbers:
            ranges[name] = field.numbers
        elif field.dates:
            first, last = (str(np.datetime64(int(s), "s"))[:10] for s in field.dates)
            ranges[name] = (float(first[:4]), float(last[:4]), first, last)
    return ranges


@dataclass(frozen=True)
class Condition:
    """A condition on one field."""

    name: str
    kind: str  # one of KINDS
    values: tuple[Value, ...]
    is_date: bool = False  # whether a range is one of dates; see :func:`resolve`
    is_negated: bool = False  # whether it must not hold; a document without a value passes


@dataclass(frozen=True)
class Filter:
    """Which documents may be found."""

    conditions: tuple[Condition, ...] = ()  # all must hold
    #: All conditions of at least one of these must hold too; empty: no further condition.
    alternatives: tuple[tuple[Condition, ...], ...] = ()
    without: tuple[int, ...] = ()  # keys of documents that are left out
    #: A document that asserts every term of one of these groups is left out.
    lacking: tuple[tuple[str, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.conditions or self.alternatives or self.without or self.lacking)

    def also(self, *conditions: Condition) -> Filter:
        """Return the filter with more conditions."""
        return replace(self, conditions=(*self.conditions, *conditions))


def read_filters(filters: Mapping[str, Any] | None) -> tuple[Condition, ...]:
    """Turn filters into conditions.

    >>> read_filters({"year": {"gte": 1990}})[0].values
    (1990,)
    """
    if not isinstance(filters, dict | None):
        raise QueryError(f"filters are by field, as {{'price': {{'lt': 9}}}}, not {filters!r:.80}")
    return tuple(
        Condition(name, kind, _values(name, kind, value))
        for name, entry in (filters or {}).items()
        for kind, value in (entry if isinstance(entry, dict) else {"in": entry}).items()
    )


def _values(name: str, kind: str, entry: object) -> tuple[Value, ...]:
    """Return the values of a condition; refuse what it cannot compare."""
    if kind not in KINDS:
        raise QueryError(f"filter {name!r} has no {kind!r}; there are {', '.join(KINDS)}")
    is_list = isinstance(entry, list | tuple | set | frozenset)
    listed: Iterable[Any] = entry if is_list else (entry,)  # type: ignore[assignment]
    values = tuple(v.isoformat() if hasattr(v, "isoformat") else v for v in listed)
    for value in values:
        if not isinstance(value, str | int | float | bool):
            wrong = f"a value is text, a number or true or false, not {type(value).__name__}"
            raise QueryError(f"filter {name!r}: {wrong}")
        if not isinstance(value, str) and not abs(value) <= sys.float_info.max:
            raise QueryError(f"filter {name!r}: the number is too large to compare, or none")
    if expected := _expected(kind, values[0] if len(values) == 1 else None):
        shown = repr(values[0]) if len(values) == 1 else f"{len(values)} values"
        raise QueryError(f"filter {name!r}: {kind} takes {expected}, not {shown}")
    return values


def _expected(kind: str, value: Value | None) -> str:
    """Return what a condition takes, if a value is nothing of that; ``None`` stands for several."""
    if kind in RANGES and not (is_number(value) or (isinstance(value, str) and period_of(value))):
        return "one number, or one date like 2024-03-01, 2024-03 or 2024"
    if kind == "contains" and not isinstance(value, str):
        return "one text"
    if kind == "exists" and not isinstance(value, bool):
        return "true or false"
    if kind in RANGES and isinstance(value, int) and abs(value) > _EXACT:
        return f"whole numbers up to {_EXACT:,}, beyond which they are rounded"
    return ""


def parse_filters(texts: Iterable[str]) -> dict[str, Any]:
    """Parse filters of a command line.

    ``date<2024-03``, ``country!=Peru``, ``tags~veg`` (contains), ``price=*`` (exists). The same
    field with ``=`` twice means either value. ``7`` is both the number and the text.

    >>> parse_filters(["country=Peru", "country=Ecuador", "year>=1990"])
    {'country': {'in': ['Peru', 'Ecuador']}, 'year': {'gte': 1990}}
    """
    filters: dict[str, Any] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise QueryError(f"filter {text!r} is not of the form key=value, key!=value or key>=1")
        kind, value = _SIGNS[match["sign"]], match["value"].strip()
        name = match["name"].strip().strip('"')
        conditions = filters.setdefault(name, {})
        if kind in RANGES:
            conditions[kind] = _limit(value, text)
        elif kind == "contains":
            conditions[kind] = value
        elif value == "*":
            conditions["exists"] = kind == "in"
        else:
            conditions.setdefault(kind, []).extend(_text_and_value(value))
    return filters


def resolve(condition: Condition, fields: Mapping[str, Field]) -> Condition:
    """Add to a condition what depends on the store; refuse a field that it does not have."""
    name = known_name(condition.name, fields)
    if name not in fields:
        names = ", ".join(sorted(fields)) or "none"
        hint = did_you_mean(name, fields)
        raise QueryError(f"no document has the field {name!r}; there are: {names}{hint}")
    condition, field = replace(condition, name=name), fields[name]
    if condition.kind not in RANGES:
        return condition
    is_text = isinstance(condition.values[0], str)
    is_date = is_text or not field.numbers
    if not (field.dates if is_date else field.numbers):
        comparable = f"{'dates' if is_text else 'numbers or dates'} that {condition.kind} could"
        raise QueryError(f"filter {name!r}: the field holds no {comparable} compare")
    return date_range(condition) if is_date else condition


def known_name(name: str, names: Iterable[str]) -> str:
    """Return the name as it is known, where only capitals differ; else the name itself."""
    known = [other for other in names if other.casefold() == name.casefold()]
    return name if name in known or len(known) != 1 else known[0]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question for the end of a message, if a name is like a known one."""
    known = {other.lower(): other for other in names}
    near = get_close_matches(name.lower(), known, 1)
    return f"; did you mean {known[near[0]]!r}?" if near else ""


def date_range(condition: Condition) -> Condition:
    """Return a range of dates as one of seconds; a limit that is a year or a day has a length."""
    kind, value = condition.kind, condition.values[0]
    if (period := period_of(str(value))) is None:  # of a number, its year
        raise QueryError(f"filter {condition.name!r}: {kind} takes a date, not {value}")
    start, end = period
    if end > start and kind in ("gt", "lte"):
        kind, start = ("gte", end) if kind == "gt" else ("lt", end)
    return replace(condition, kind=kind, values=(start,), is_date=True)


def alternatives(
    tree: trees.QueryTree, conditions: Mapping[str, Condition]
) -> tuple[tuple[Condition, ...], ...]:
    """Return the conditions of each alternative of a tree; none where one has no condition.

    >>> from boolattn.query.tree import And, Atom, Or, Where
    >>> tree = Or((And((Atom("moths"), Where("year>=1990"))), Where("place=Java")))
    >>> known = {text: Condition(text, "in", ()) for text in ("year>=1990", "place=Java")}
    >>> [[condition.name for condition in part] for part in alternatives(tree, known)]
    [['year>=1990'], ['place=Java']]
    """
    if not conditions:
        return ()
    operands, most = list(trees.atoms(tree)), trees.MAX_CLAUSES
    if (n := trees.n_clauses(tree)) > max(most, len(operands)):
        counts = f"may have {most} alternatives, and this one has {n}"
        raise QueryError(f"a query with conditions {counts}; give the conditions as filters")
    conjunctions = [clause_conditions(c, operands, conditions) for c in trees.clauses(tree)]
    return () if () in conjunctions else tuple(dict.fromkeys(conjunctions))


def clause_conditions(
    clause: trees.Clause, operands: Sequence[trees.Atom], conditions: Mapping[str, Condition]
) -> tuple[Condition, ...]:
    """Return the conditions of one alternative."""
    return tuple(
        replace(conditions[operands[row].text], is_negated=not must)
        for row, must in clause.conditions
    )


def condition_of(where: trees.Where) -> Condition:
    """Return a condition of a tree, before it is resolved."""
    [condition] = read_filters(parse_filters([where.text]))
    return condition


def of_type(values: tuple[Value, ...], *, is_text: bool) -> list[Value]:
    """Return the texts among values, or the others; all, where there are none.

    A condition of a query has no types: ``year=1990`` asks for the text and for the number.
    """
    return [value for value in values if isinstance(value, str) == is_text] or list(values)


def _text_and_value(text: str) -> list[Value]:
    """Return a text, and its value as JSON: a command line has no types."""
    if isinstance(boolean := as_boolean(text), bool):
        return [boolean]
    try:
        value = json.loads(text)
    except ValueError:
        return [text]
    return [text, value] if isinstance(value, int | float) else [text]


def _limit(value: str, text: str) -> Value:
    if period_of(value) and not value.isdecimal():
        return value
    try:
        # Also refuses more digits than Python reads.
        return int(value) if re.fullmatch(r"[-+]?\d+", value) else float(value)
    except ValueError as error:
        reason = f"{value[:40]!r} is neither a number nor a date"
        raise QueryError(f"filter {text[:80]!r}: {reason}") from error


def document_tags(metadata: Metadata) -> list[str]:
    """Return a tag for each field, and one for each of its values."""
    values = {name: (EXISTS, *map(filter_hash, items(v))) for name, v in metadata.items()}
    return list(dict.fromkeys(tag(name, key) for name, keys in values.items() for key in keys))


def document_numbers(metadata: Metadata) -> dict[str, float]:
    """Return the largest and smallest number and the latest and earliest date of each field.

    >>> document_numbers({"year": [1990, 1985]})
    {'largest:year': 1990.0, 'smallest:year': 1985.0}
    """
    extremes = {}
    for name, value in metadata.items():
        numbers = [float(item) for item in items(value) if is_number(item)]
        dates = [moment.timestamp() for item in items(value) if (moment := moment_of(item))]
        for (least, most), values in zip(NUMBERS, (numbers, dates), strict=True):
            if values:
                extremes[f"{most}:{name}"] = max(values)
                extremes[f"{least}:{name}"] = min(values)
    return extremes


def tag(name: str, value: int) -> str:
    """Return the tag of a field's value, by its hash."""
    if len(name) >= 64 or not name.isprintable():
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"{name}={value:016x}"
