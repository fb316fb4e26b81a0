"""Filters on metadata, applied exactly and before ranking.

``{"country": "Peru", "family": ["Sphingidae", "Noctuidae"], "year": {"gte": 1990, "lt": 2000},
"status": {"not": "draft"}}``: all conditions must hold. A document without a value passes only
``not``.
"""

from __future__ import annotations

import json
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import QueryError
from boolattn.search.storage.segments import is_number, value_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from boolattn.search.storage.segments import Mask, Rows, Value

RANGES = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
_KINDS = {"=": "in", "!=": "not", ">=": "gte", "<=": "lte", ">": "gt", "<": "lt"}
_CONDITION = re.compile(r"(?P<name>[^=!<>]+?)\s*(?P<sign>!=|>=|<=|=|>|<)\s*(?P<value>.*)", re.S)


@dataclass(frozen=True)
class Condition:
    """A condition on one field; ``kind`` is ``in``, ``not`` or one of :data:`RANGES`."""

    name: str
    kind: str
    values: tuple[Value, ...]


def read_filters(filters: Mapping[str, Any] | None) -> tuple[Condition, ...]:
    """Turn filters into conditions.

    >>> read_filters({"year": {"gte": 1990}})
    (Condition(name='year', kind='gte', values=(1990,)),)
    """
    found: list[Condition] = []
    for name, given in (filters or {}).items():
        for kind, value in (given if isinstance(given, dict) else {"in": given}).items():
            if kind not in (known := ("in", "not", *RANGES)):
                raise QueryError(f"filter {name!r} has no {kind!r}; there are {', '.join(known)}")
            values = _values(name, value)
            if kind in RANGES and (len(values) != 1 or not is_number(values[0])):
                raise QueryError(f"filter {name!r}: {kind} takes one number, not {value!r}")
            found.append(Condition(name, kind, values))
    return tuple(found)


def parse_filters(texts: Iterable[str]) -> dict[str, Any]:
    """Parse filters of a command line: ``year>=1990``, ``country=Peru``, ``country!=Peru``.

    The same field with ``=`` twice means either value. ``7`` is both the number and the text.

    >>> parse_filters(["country=Peru", "country=Ecuador", "year>=1990"])
    {'country': {'in': ['Peru', 'Ecuador']}, 'year': {'gte': 1990}}
    """
    found: dict[str, Any] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise QueryError(f"filter {text!r} is not of the form key=value, key!=value or key>=1")
        kind, value = _KINDS[match["sign"]], match["value"].strip()
        own = found.setdefault(match["name"].strip(), {})
        if kind in RANGES:
            own[kind] = _number(value, text)
        else:
            own.setdefault(kind, []).extend(_text_and_value(value))
    return found


def allowed_rows(conditions: Iterable[Condition], rows: Rows) -> Mask | None:
    """Return which rows pass all conditions and are not deleted; ``None``: all."""
    mask = rows.live
    for condition in conditions:
        own = _passes(condition, rows)
        mask = own if mask is None else mask & own
    return mask


def _passes(condition: Condition, rows: Rows) -> Mask:
    names = rows.names()
    if condition.name not in names:
        raise QueryError(
            f"no document has the field {condition.name!r}; there are: {', '.join(names) or 'none'}"
        )
    if condition.kind in RANGES:
        column = rows.column(f"number:{condition.name}")
        return np.asarray(RANGES[condition.kind](column, condition.values[0]), bool)
    hashes = np.array([value_hash(value) for value in condition.values], np.uint64)
    mask = np.isin(rows.column(f"hash:{condition.name}"), hashes)
    return ~mask if condition.kind == "not" else mask


def _values(name: str, value: object) -> tuple[Value, ...]:
    values = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for own in values:
        if not isinstance(own, str | int | float | bool):
            raise QueryError(
                f"filter {name!r}: a value is text, a number or true or false, not {own!r}"
            )
    return values


def _text_and_value(text: str) -> list[Value]:
    """Return a text, and its value as JSON: a command line has no types."""
    try:
        value = json.loads(text)
    except ValueError:
        return [text]
    return [text, value] if isinstance(value, int | float | bool) else [text]


def _number(value: str, text: str) -> float:
    try:
        return int(value) if re.fullmatch(r"[-+]?\d+", value) else float(value)
    except ValueError as error:
        raise QueryError(f"filter {text!r}: {value!r} is not a number") from error
