"""Conditions on metadata, applied exactly and before anything is ranked.

``{"country": "Peru", "family": ["Sphingidae", "Noctuidae"], "year": {"gte": 1990, "lt": 2000},
"status": {"not": "draft"}}``: all of them hold. A document without a value passes only ``not``.
May import: boolattn.search.index.segments, boolattn.errors.
"""

from __future__ import annotations

import json
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import QueryError
from boolattn.search.index.segments import value_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from boolattn.search.index.segments import Rows

    Mask = NDArray[np.bool_]
    Value = str | int | float | bool

RANGES: dict[str, Callable[[Any, Any], Any]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_SIGNS = {">=": "gte", "<=": "lte", ">": "gt", "<": "lt"}
_CONDITION = re.compile(r"(?P<name>[^=!<>]+?)\s*(?P<sign>!=|>=|<=|=|>|<)\s*(?P<value>.*)", re.S)


@dataclass(frozen=True)
class Condition:
    """One condition on one field.

    Attributes:
        name: Of the field.
        kind: ``in``, ``not``, or one of :data:`RANGES`.
        values: One for a range.
    """

    name: str
    kind: str
    values: tuple[Value, ...]


def read_filters(filters: Mapping[str, Any] | None) -> tuple[Condition, ...]:
    """Turn what a caller wrote into conditions.

    >>> read_filters({"year": {"gte": 1990}})
    (Condition(name='year', kind='gte', values=(1990,)),)
    """
    found: list[Condition] = []
    for name, wanted in (filters or {}).items():
        if not isinstance(wanted, dict):
            found.append(Condition(name, "in", _values(name, wanted)))
            continue
        for kind, value in wanted.items():
            if kind not in ("in", "not", *RANGES):
                known = ", ".join(["in", "not", *RANGES])
                raise QueryError(f"filter {name!r} has no {kind!r}; there are {known}")
            values = _values(name, value)
            if kind in RANGES and (len(values) != 1 or not _is_number(values[0])):
                raise QueryError(f"filter {name!r}: {kind} takes one number, not {value!r}")
            found.append(Condition(name, kind, values))
    return tuple(found)


def parse_filters(texts: Iterable[str]) -> dict[str, Any]:
    """Read filters from a command line: ``year>=1990``, ``country=Peru``, ``country!=Peru``.

    The same field with ``=`` twice means either value. ``7`` is both the number and the text.

    >>> parse_filters(["country=Peru", "country=Ecuador", "year>=1990"])
    {'country': {'in': ['Peru', 'Ecuador']}, 'year': {'gte': 1990}}
    """
    found: dict[str, Any] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise QueryError(f"filter {text!r} is not of the form key=value, key!=value or key>=1")
        value = match["value"].strip()
        own = found.setdefault(match["name"].strip(), {})
        if match["sign"] in _SIGNS:
            own[_SIGNS[match["sign"]]] = _number(value, text)
        else:
            kind = "not" if match["sign"] == "!=" else "in"
            own.setdefault(kind, []).extend(_either(value))
    return found


def allowed_rows(conditions: Iterable[Condition], rows: Rows) -> Mask | None:
    """Return which rows pass all conditions and are not deleted; ``None``: all."""
    mask = rows.live
    for condition in conditions:
        own = _holds(condition, rows)
        mask = own if mask is None else mask & own
    return mask


def _holds(condition: Condition, rows: Rows) -> Mask:
    names = rows.names()
    if condition.name not in names:
        raise QueryError(
            f"no document has the field {condition.name!r}; there are: {', '.join(names) or 'none'}"
        )
    if condition.kind in RANGES:
        column = rows.column(f"number:{condition.name}")
        held: Mask = RANGES[condition.kind](column, condition.values[0])
        return held
    hashes = np.array([value_hash(value) for value in condition.values], np.uint64)
    held = np.isin(rows.column(f"hash:{condition.name}"), hashes)
    return ~held if condition.kind == "not" else held


def _values(name: str, value: object) -> tuple[Value, ...]:
    values = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for own in values:
        if not isinstance(own, str | int | float | bool):
            raise QueryError(
                f"filter {name!r}: a value is text, a number or true or false, not {own!r}"
            )
    return values


def _either(value: str) -> list[Value]:
    """Return a text, and what it says as JSON, because a command line knows no types."""
    try:
        read = json.loads(value)
    except ValueError:
        return [value]
    return [value, read] if isinstance(read, int | float | bool) else [value]


def _number(value: str, text: str) -> float:
    try:
        return int(value) if re.fullmatch(r"[-+]?\d+", value) else float(value)
    except ValueError as error:
        raise QueryError(f"filter {text!r}: {value!r} is not a number") from error


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
