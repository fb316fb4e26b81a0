"""Judged queries: which documents answer a query, and which it excludes.

The files are the benchmarks' own: JSON lines with ``text``, ``gold`` and optionally ``excluded``
and ``partial``. With ``template`` and ``operands``, the explicit form of a query is judged too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from boolattn.errors import BoolattnError, DataError
from boolattn.jsonl import read_jsonl
from boolattn.query.structure import template_tree
from boolattn.query.syntax import unparse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from boolattn.service.schemas import Judgement


@dataclass(frozen=True)
class JudgedQuery:
    """A query, the same in explicit syntax (empty if unknown), and ids of judged documents."""

    query: str
    explicit: str
    operators: tuple[str, ...]
    gold: frozenset[str]
    excluded: frozenset[str]
    partial: frozenset[str]

    def judge(self, document: str) -> Judgement:
        """Return the judgement of a document."""
        if document in self.gold:
            return "answers"
        if document in self.excluded:
            return "excluded"
        return "partial" if document in self.partial else "other"


class JudgedQueries:
    """Judged queries by their text, whatever its case and spacing."""

    def __init__(self, queries: Iterable[JudgedQuery] = ()) -> None:
        self._queries = {_key(item.query): item for item in queries}
        explicit = [item for item in self._queries.values() if item.explicit]
        self._by_text = {_key(item.explicit): item for item in explicit} | self._queries

    def __len__(self) -> int:
        return len(self._queries)

    def find(self, query: str) -> JudgedQuery | None:
        """Return the judged query with this text, if there is one."""
        return self._by_text.get(_key(query))

    def examples(self, n: int) -> list[JudgedQuery]:
        """Choose queries to show: the shortest with each set of operators, NOT first."""
        groups: dict[tuple[str, ...], list[JudgedQuery]] = {}
        for item in sorted(self._queries.values(), key=lambda item: len(item.query)):
            if item.operators and ("not" not in item.operators or item.excluded):
                groups.setdefault(item.operators, []).append(item)
        order = sorted(groups, key=lambda names: ("not" not in names, -len(names), names))
        turns = zip_longest(*(groups[names] for names in order))
        return [item for turn in turns for item in turn if item is not None][:n]


def read_judgements(paths: Sequence[Path]) -> JudgedQueries:
    """Read files of judged queries; of two with the same text, the last is kept."""
    return JudgedQueries(item for path in paths for item in _read(path))


def _read(path: Path) -> Iterator[JudgedQuery]:
    for number, row in read_jsonl(path, {"text": str, "gold": list}):
        sets = {name: _ids(row, name, path, number) for name in ("gold", "excluded", "partial")}
        operators = row.get("operators", [])
        if not isinstance(operators, list):
            raise DataError(f"{path}:{number}: the field 'operators' must be a list")
        names = tuple(str(name).lower() for name in operators)
        yield JudgedQuery(row["text"], _explicit(row, path, number), names, **sets)


def _explicit(row: Mapping[str, Any], path: Path, number: int) -> str:
    """Write a query in explicit syntax, from its template and its operands."""
    if not row.get("template") or not row.get("operands"):
        return ""
    try:
        texts = [operand["text"] for operand in row["operands"]]
        return unparse(template_tree(row["template"], texts))
    except (TypeError, KeyError, ValueError, BoolattnError) as error:
        raise DataError(f"{path}:{number}: template and operands do not match") from error


def _ids(row: Mapping[str, Any], name: str, path: Path, number: int) -> frozenset[str]:
    values = row.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{path}:{number}: the field {name!r} must be a list of document ids")
    return frozenset(values)


def _key(text: str) -> str:
    return " ".join(text.casefold().split())
