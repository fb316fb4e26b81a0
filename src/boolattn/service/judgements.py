"""What is known of some queries: which documents answer them, and which they exclude.

The files are those of the benchmarks: JSON lines with ``text``, ``gold`` and, where there are
any, ``excluded`` and ``partial``. A query that is typed as it stands there can be judged, and so
can its explicit form where ``template`` and ``operands`` tell it; of any other nothing is claimed.
May import: boolattn.files, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boolattn.errors import BoolattnError, DataError
from boolattn.files import read_jsonl
from boolattn.logic.syntax import unparse
from boolattn.logic.templates import template_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_LISTS = ("gold", "excluded", "partial")


@dataclass(frozen=True)
class Known:
    """The answers of one query.

    Attributes:
        query: As it was written.
        explicit: The same in explicit syntax, where the file tells it.
        operators: Those it uses, where the file says so.
        gold: Documents that answer it.
        excluded: Documents that would, had it not excluded them.
        partial: Documents that match some but not all of an AND.
    """

    query: str
    explicit: str
    operators: tuple[str, ...]
    gold: frozenset[str]
    excluded: frozenset[str]
    partial: frozenset[str]

    def of(self, document: str) -> str:
        """Judge one document."""
        for name, ids in (
            ("answers", self.gold),
            ("excluded", self.excluded),
            ("partial", self.partial),
        ):
            if document in ids:
                return name
        return "other"


class KnownQueries:
    """Queries by their text, however it is spaced and cased."""

    def __init__(self, known: Iterable[Known] = ()) -> None:
        self._known = {_key(item.query): item for item in known}
        self._explicit = {_key(item.explicit): item for item in self._known.values()}
        self._explicit.pop("", None)

    def __len__(self) -> int:
        return len(self._known)

    def find(self, query: str) -> Known | None:
        """Return what is known of a query, if anything."""
        key = _key(query)
        return self._known.get(key) or self._explicit.get(key)

    def examples(self, n: int) -> list[Known]:
        """Choose queries to show: the shortest of each set of operators, NOT first."""
        groups: dict[tuple[str, ...], list[Known]] = {}
        for item in self._known.values():
            if item.operators and ("not" not in item.operators or item.excluded):
                groups.setdefault(item.operators, []).append(item)
        order = sorted(groups, key=lambda names: ("not" not in names, -len(names), names))
        for own in groups.values():
            own.sort(key=lambda item: len(item.query))
        chosen: list[Known] = []
        for turn in range(n):
            chosen += [groups[names][turn] for names in order if turn < len(groups[names])]
        return chosen[:n]


def read_judgements(paths: Sequence[Path]) -> KnownQueries:
    """Read files of judgements; a query that stands in two keeps the last."""
    return KnownQueries(item for path in paths for item in _read(path))


def _read(path: Path) -> Iterator[Known]:
    for number, row in read_jsonl(path, {"text": str, "gold": list}):
        sets = {name: _ids(row.get(name, []), name, path, number) for name in _LISTS}
        operators = row.get("operators", [])
        if not isinstance(operators, list):
            raise DataError(f"{path}:{number}: the field 'operators' must be a list")
        names = tuple(str(name).lower() for name in operators)
        yield Known(row["text"], _explicit(row, path, number), names, **sets)


def _explicit(row: Mapping[str, Any], path: Path, number: int) -> str:
    """Write a query in explicit syntax, from its template and its operands."""
    if not row.get("template") or not row.get("operands"):
        return ""
    try:
        texts = [operand["text"] for operand in row["operands"]]
        return unparse(template_tree(row["template"], texts))
    except (TypeError, KeyError, ValueError, BoolattnError) as error:
        raise DataError(f"{path}:{number}: template and operands do not fit together") from error


def _ids(values: Any, name: str, path: Path, number: int) -> frozenset[str]:  # noqa: ANN401 - JSON
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{path}:{number}: the field {name!r} must be a list of document ids")
    return frozenset(values)


def _key(text: str) -> str:
    return " ".join(text.casefold().split())
