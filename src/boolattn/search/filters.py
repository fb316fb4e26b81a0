"""Filters on metadata, applied exactly and before ranking.

``{"country": "Peru", "tags": ["vegan", "quick"], "year": {"gte": 1990, "lt": 2000},
"date": {"lte": "2024-03"}, "title": {"contains": "soup"}, "status": {"not": "draft"},
"price": {"exists": true}}``: all conditions must hold. A list meets a condition if one of its
values does. A document without a value passes only ``not`` and ``{"exists": false}``.
"""

from __future__ import annotations

import json
import operator
import re
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import QueryError
from boolattn.query.tree import And, Not, Where, atoms, signed_atoms
from boolattn.search.storage import segments
from boolattn.search.storage.values import (
    as_boolean,
    filter_hash,
    is_number,
    is_too_large,
    items,
    period_of,
)
from boolattn.search.verdicts import truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from boolattn.query.tree import QueryTree
    from boolattn.search.storage.segments import Mask, Rows
    from boolattn.search.storage.values import Value

RANGES = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
KINDS = ("in", "not", "contains", "exists", *RANGES)
_SIGNS = {"=": "in", "!=": "not", "~": "contains", ">=": "gte", "<=": "lte", ">": "gt", "<": "lt"}
SIGNS = {kind: sign for sign, kind in _SIGNS.items()}
_CONDITION = re.compile(r"(?P<name>[^=!<>~]+?)\s*(?P<sign>!=|>=|<=|=|>|<|~)\s*(?P<value>.*)", re.S)
_OPPOSITE = {"in": "not", "not": "in"}
#: Columns of numbers hold every whole number up to here.
_EXACT = 2**53
#: On a command line: any value.
_ANY = "*"


@dataclass(frozen=True)
class Condition:
    """A condition on one field."""

    name: str
    kind: str  # one of KINDS
    values: tuple[Value, ...]
    column: str = ""  # what a range is compared with; known when an index is searched
    hashes: tuple[int, ...] = ()  # of the values that are selected, likewise
    is_negated: bool = False  # whether it must not hold; a row without a value passes


def read_filters(filters: Mapping[str, Any] | None) -> tuple[Condition, ...]:
    """Turn filters into conditions.

    >>> read_filters({"year": {"gte": 1990}})[0].values
    (1990,)
    """
    if not isinstance(filters, dict | None):
        raise QueryError(f"filters are an object of conditions by field, not {filters!r:.80}")
    found: list[Condition] = []
    for name, given in (filters or {}).items():
        for kind, value in (given if isinstance(given, dict) else {"in": given}).items():
            if kind not in KINDS:
                raise QueryError(f"filter {name!r} has no {kind!r}; there are {', '.join(KINDS)}")
            values = _values(name, value)
            _check(name, kind, values)
            found.append(Condition(name, kind, values))
    return tuple(found)


def _check(name: str, kind: str, values: tuple[Value, ...]) -> None:
    one = values[0] if len(values) == 1 else None
    what = ""
    if kind in RANGES and not (is_number(one) or (isinstance(one, str) and period_of(one))):
        what = "one number, or one date like 2024-03-01, 2024-03 or 2024"
    elif kind == "contains" and not isinstance(one, str):
        what = "one text"
    elif kind == "exists" and not isinstance(one, bool):
        what = "true or false"
    elif kind in RANGES and isinstance(one, int) and abs(one) > _EXACT:
        what = f"whole numbers up to {_EXACT:,}, beyond which they are rounded"
    if what:
        shown = repr(one) if one is not None else f"{len(values)} values"
        raise QueryError(f"filter {name!r}: {kind} takes {what}, not {shown}")


def parse_filters(texts: Iterable[str]) -> dict[str, Any]:
    """Parse filters of a command line.

    ``year>=1990``, ``date<2024-03``, ``country=Peru``, ``country!=Peru``, ``tags~veg`` (contains),
    ``price=*`` (exists), ``price!=*``. The same field with ``=`` twice means either value. ``7`` is
    both the number and the text.

    >>> parse_filters(["country=Peru", "country=Ecuador", "year>=1990"])
    {'country': {'in': ['Peru', 'Ecuador']}, 'year': {'gte': 1990}}
    """
    found: dict[str, Any] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise QueryError(f"filter {text!r} is not of the form key=value, key!=value or key>=1")
        kind, value = _SIGNS[match["sign"]], match["value"].strip()
        own = found.setdefault(match["name"].strip(), {})
        if kind in RANGES:
            own[kind] = _limit(value, text)
        elif kind == "contains":
            own[kind] = value
        elif value == _ANY:
            own["exists"] = kind == "in"
        else:
            own.setdefault(kind, []).extend(_text_and_value(value))
    return found


def resolve(conditions: Iterable[Condition], rows: Rows) -> tuple[Condition, ...]:
    """Add to conditions what depends on the index; refuse fields that it does not have."""
    names = rows.names()
    found = []
    for condition in conditions:
        name = condition.name
        if name not in names:
            raise QueryError(
                f"no document has the field {name!r}; there are: {', '.join(names) or 'none'}"
            )
        if condition.kind in RANGES:
            found.append(_with_column(condition, rows))
        elif condition.kind == "contains":
            part = str(condition.values[0]).casefold()
            texts = rows.texts(name).items()
            hashes = tuple(number for number, text in texts if part in text.casefold())
            found.append(replace(condition, hashes=hashes))
        else:
            found.append(replace(condition, hashes=tuple(map(filter_hash, condition.values))))
    return tuple(found)


def _with_column(condition: Condition, rows: Rows) -> Condition:
    """Choose between numbers and dates; a limit that is a year or a day has a length."""
    name, kind, value = condition.name, condition.kind, condition.values[0]
    is_upper = kind in ("lt", "lte")
    has_dates = rows.has_column(f"{segments.LATEST}:{name}")
    if has_dates and not rows.has_column(f"{segments.LARGEST}:{name}"):
        value = str(value)  # a year, unless it is refused below
    column = segments.SMALLEST if is_upper else segments.LARGEST
    if isinstance(value, str):
        column = segments.EARLIEST if is_upper else segments.LATEST
        if (period := period_of(value)) is None:
            raise QueryError(f"filter {name!r}: {kind} takes a date, not {value}")
        value, end = period
        if end > value and kind in ("gt", "lte"):
            kind, value = ("gte", end) if kind == "gt" else ("lt", end)
    if not rows.has_column(f"{column}:{name}"):
        what = "dates" if column in (segments.LATEST, segments.EARLIEST) else "numbers or dates"
        raise QueryError(f"filter {name!r}: the field holds no {what} that {kind} could compare")
    return Condition(name, kind, (value,), column)


def allowed_documents(conditions: Iterable[Condition], rows: Rows) -> Mask | None:
    """Return which documents pass resolved conditions and are not deleted; ``None``: all."""
    mask = rows.live
    for condition in conditions:
        own = _passes(condition, rows)
        mask = own if mask is None else mask & own
    return mask


def _passes(condition: Condition, rows: Rows) -> Mask:
    if condition.kind in RANGES:
        column = rows.column(f"{condition.column}:{condition.name}")
        return np.asarray(RANGES[condition.kind](column, condition.values[0]), bool)
    if condition.kind == "exists":
        has_value = rows.column(f"hash:{condition.name}") != 0
        return np.asarray(has_value == condition.values[0], bool)
    hashes, places = rows.hashes(condition.name)
    mask = np.zeros(rows.n_documents, bool)
    mask[places[np.isin(hashes, np.array(condition.hashes, np.uint64))]] = True
    return ~mask if condition.kind == "not" else mask


def met_conditions(tree: QueryTree, rows: Rows) -> dict[str, Mask]:
    """Return which documents meet each condition of a tree, by the condition's text."""
    found = [atom for atom in atoms(tree) if isinstance(atom, Where)]
    return {atom.text: _passes(_condition(atom, rows), rows) for atom in found}


def possible_documents(tree: QueryTree, met: Mapping[str, Mask]) -> Mask:
    """Return which documents a tree can select by its conditions, whatever the operands say."""
    pairs = signed_atoms(tree)
    values = [met[atom.text] if isinstance(atom, Where) else sign > 0 for atom, sign in pairs]
    return np.asarray(truth(tree, values), bool)


def required_conditions(tree: QueryTree, rows: Rows) -> tuple[Condition, ...] | None:
    """Return the conditions of a tree, if each document must meet all; else ``None``."""
    found = []
    for where, holds in required_of_all(tree):
        own = _condition(where, rows)
        if holds:
            found.append(own)
        elif own.kind in _OPPOSITE:
            found.append(replace(own, kind=_OPPOSITE[own.kind]))
    n_conditions = sum(isinstance(atom, Where) for atom in atoms(tree))
    return tuple(found) if len(found) == n_conditions else None


def required_of_all(tree: QueryTree) -> Iterator[tuple[Where, bool]]:
    """Yield the conditions that stand under AND alone, and whether each must hold.

    >>> [*required_of_all(And((Where("year>=1990"), Not(Where("place=Java")))))]
    [(Where(text='year>=1990'), True), (Where(text='place=Java'), False)]
    """
    match tree:
        case Where():
            yield tree, True
        case Not(Where() as where):
            yield where, False
        case And(parts):
            for part in parts:
                yield from required_of_all(part)


def condition_of(where: Where, *, holds: bool = True) -> Condition:
    """Return a condition of a tree, or its opposite: that it does not hold."""
    try:
        [found] = read_filters(parse_filters([where.text]))
    except QueryError as error:
        raise QueryError(f"{error}; between quotes {where.text!r} is text") from error
    return replace(found, is_negated=not holds)


def _condition(where: Where, rows: Rows) -> Condition:
    own = condition_of(where)
    try:
        [found] = resolve([own], rows)
    except QueryError as error:
        raise QueryError(f"{error}; between quotes {where.text!r} is text") from error
    return found


def of_type(values: tuple[Value, ...], *, is_text: bool) -> list[Value]:
    """Return the texts among values, or the others; all, where there are none.

    A condition of a query has no types: ``year=1990`` asks for the text and for the number.
    """
    return [value for value in values if isinstance(value, str) == is_text] or list(values)


def frequent_values(rows: Rows, name: str, n: int = 5) -> dict[str, Any]:
    """Count the documents with a field, its different values, and the most frequent ones."""
    hashes, places = rows.hashes(name)
    is_live = (hashes != 0) if rows.live is None else (hashes != 0) & rows.live[places]
    hashes, places = hashes[is_live], places[is_live]
    order = np.lexsort((places, hashes))
    hashes, places = hashes[order], places[order]
    # A list may hold a value twice.
    is_new = (np.diff(hashes, prepend=0) != 0) | (np.diff(places, prepend=-1) != 0)
    hashes, places = hashes[is_new], places[is_new]
    _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    frequent = []
    for one in np.argsort(-counts, kind="stable")[:n].tolist():
        own = items(rows.document(int(places[first[one]])).metadata[name])
        value = next(v for v in own if filter_hash(v) == hashes[first[one]])
        frequent.append((value, int(counts[one])))
    found = {"documents": len(np.unique(places)), "different": len(counts)}
    return found | {"frequent": frequent}


def _values(name: str, value: object) -> tuple[Value, ...]:
    values = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    found = []
    for own in values:
        own = own.isoformat() if hasattr(own, "isoformat") else own
        if not isinstance(own, str | int | float | bool):
            raise QueryError(
                f"filter {name!r}: a value is text, a number or true or false, not "
                f"{type(own).__name__}"
            )
        if is_too_large(own) or (isinstance(own, float) and not isfinite(own)):
            raise QueryError(f"filter {name!r}: the number is too large to compare, or none")
        found.append(own)
    return tuple(found)


def _text_and_value(text: str) -> list[Value]:
    """Return a text, and its value as JSON: a command line has no types."""
    if isinstance(found := as_boolean(text), bool):
        return [found]
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
        what = f"{value[:40]!r} is neither a number nor a date"
        raise QueryError(f"filter {text[:80]!r}: {what}") from error
