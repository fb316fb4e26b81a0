"""Values of metadata: flattened when stored, hashed and compared when filtered, and counted.

``{"tags": ["a", "b"], "author": {"name": "Li"}, "on": date(2024, 3, 1), "gone": None}`` is stored
as ``{"tags": ["a", "b"], "author.name": "Li", "on": "2024-03-01"}``.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from boolattn.errors import DataError

Value = str | int | float | bool
Metadata = Mapping[str, Value | list[Value]]

_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
_MONTH = re.compile(r"(\d{4})(?:-(\d\d))?")
#: Of nested metadata.
MAX_DEPTH = 64
_BOOLEANS = {"true": True, "false": False}


def flatten(metadata: Mapping[str, Any]) -> dict[str, Value | list[Value]]:
    """Return plain values and lists of them; names of nested objects are joined by dots.

    Nulls are left out, dates become text. A list of objects becomes a list for each of their names.
    """
    plain_values: dict[str, list[Value]] = {}
    lists: set[str] = set()

    def walk(name: str, value: Any, *, is_item: bool, depth: int = 1) -> None:  # noqa: ANN401
        if depth > MAX_DEPTH:
            raise DataError(f"the field {name[:60]!r} is nested deeper than {MAX_DEPTH} levels")
        if hasattr(value, "tolist"):  # of numpy
            value = value.tolist()
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}.{key}", inner, is_item=is_item, depth=depth + 1)
        elif isinstance(value, list | tuple | set | frozenset):
            for inner in sorted(value, key=repr) if isinstance(value, set | frozenset) else value:
                walk(name, inner, is_item=True, depth=depth + 1)
        elif (plain := _plain(name, value)) is not None:
            lists.update([name] if is_item else ())
            plain_values.setdefault(name, []).append(plain)

    for name, value in metadata.items():
        walk(str(name), value, is_item=False)
    return {
        name: values if name in lists or len(values) > 1 else values[0]
        for name, values in plain_values.items()
    }


def _plain(name: str, value: Any) -> Value | None:  # noqa: ANN401 - any value
    if value is None or value != value:  # NaN and NaT are not equal to themselves
        return None
    if isinstance(value, datetime) and value.time() == time() and value.tzinfo is None:
        value = value.date()
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if isinstance(value, Decimal):
        value = float(value)
    if not isinstance(value, str | int | float | bool):
        kinds = "text, numbers, true or false, dates, lists and objects of these"
        raise DataError(f"the field {name!r} is {type(value).__name__}; metadata are {kinds}")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise DataError(f"the field {name!r} is a number too large to compare; write it as text")
    return value


def items(value: Value | list[Value] | None) -> list[Value]:
    """Return the values of a field: none, one, or those of a list."""
    return [] if value is None else value if isinstance(value, list) else [value]


def value_hash(value: Value) -> int:
    """Return a hash, never 0. 1 and 1.0 have the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    raw = json.dumps(value).encode()
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little") or 1


def filter_hash(value: Value) -> int:
    """Return the same hash for values that a filter does not tell apart.

    These are true and "True", and the same moment in two notations.
    """
    if isinstance(value, str):
        moment = moment_of(value)
        value = moment.isoformat() if moment else as_boolean(value)
    return value_hash(value)


def as_boolean(text: str) -> str | bool:
    """Return true for "true" and "True", false likewise, and other texts as they are."""
    return _BOOLEANS.get(text.lower(), text)


def is_number(value: object) -> bool:
    """Return whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def moment_of(value: object) -> datetime | None:
    """Return the moment of a text like 2024-03-01 or 2024-03-01T12:00:00Z, else ``None``.

    Without a time zone it is in UTC.
    """
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def period_of(text: str) -> tuple[float, float] | None:
    """Return start and end of a year, month, day or moment, in seconds; ``None`` for other texts.

    >>> start, end = period_of("2024-02")
    >>> (end - start) / 86_400
    29.0
    """
    try:
        if match := _MONTH.fullmatch(text):
            year, month = int(match[1]), int(match[2] or 1)
            following = (year, month + 1) if match[2] and month < 12 else (year + 1, 1)
            first, last = (datetime(*start, 1, tzinfo=UTC) for start in ((year, month), following))
            return first.timestamp(), last.timestamp()
        if (moment := moment_of(text)) is None:
            return None
        length = timedelta(days=len(text) == len("2024-03-01"))
        return moment.timestamp(), (moment + length).timestamp()
    except (ValueError, OverflowError):
        return None


def key_of(*names: object) -> int:
    """Return the key of a document by its id, or of what else some names stand for.

    It is 63 bits of a hash, and never 0.
    """
    text = "\n".join(map(str, (len(names), *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1 or 1


def passage_keys(id: str, version: str, n_passages: int) -> list[int]:
    """Return the keys of a document's further passages."""
    return [key_of(id, version, part) for part in range(1, n_passages)]


def term_index(term: str) -> int:
    """Return the number of a term in sparse vectors, of 32 bits, neither the first nor the last."""
    return int.from_bytes(hashlib.sha256(term.encode()).digest()[:8]) % (2**32 - 3) + 1


def number_key(name: str) -> str:
    """Return a name of numbers that is safe in a path."""
    return "n" + hashlib.sha256(name.encode()).hexdigest()[:16]


class ValueCounts(NamedTuple):
    """The values of a field: documents that have one, different values, the most frequent."""

    documents: int
    different: int
    frequent: list[tuple[Any, int]]
    is_exact: bool = True  # or an estimate from a sample


def count_values(
    rows: Sequence[Mapping[str, Any]], name: str, n: int, *, is_exact: bool = True
) -> ValueCounts:
    """Count the ``n`` most frequent values of a field in some documents' metadata.

    Objects and lists inside a value, which others' collections may hold, are not counted.

    >>> count_values([{"tag": ["a", "b", "a"]}, {"tag": "a"}, {}], "tag", 1)
    ValueCounts(documents=2, different=2, frequent=[('a', 2)], is_exact=True)
    """
    values = [items(row[name]) for row in rows if name in row]
    plain = ([v for v in listed if v.__hash__ is not None] for listed in values)
    counts = Counter(value for listed in plain for value in dict.fromkeys(listed))
    return ValueCounts(len(values), len(counts), counts.most_common(n), is_exact)
