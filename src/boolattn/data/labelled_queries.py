"""Files of labelled queries, from which a query parser is trained.

JSON lines, one query each: ``{"text", "operands", "negated", "gaps", "source"}``. ``operands`` has
the character spans of each operand, in text order: ``[[[0, 8], [24, 31]]]`` is one operand of two
spans. ``negated`` has the numbers of the negated ones, ``gaps`` operator and level between each
two: ``["or2", "and1"]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boolattn.errors import DataError
from boolattn.jsonl import read_jsonl, write_jsonl
from boolattn.query.parsed_query import GAPS, ParsedQuery

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from boolattn.query.parsed_query import Spans

_FIELDS = {"text": str, "operands": list, "negated": list, "gaps": list, "source": str}
_GAPS = {f"{gap.operator.value}{gap.level}": gap for gap in GAPS}


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A text and its parse."""

    text: str
    parsed: ParsedQuery


def write_labelled_queries(path: Path, rows: Iterable[tuple[str, LabelledQuery]]) -> int:
    """Write labelled queries, each with the name of its source; return how many."""
    return write_jsonl(
        path,
        (
            {
                "text": query.text,
                "operands": query.parsed.operands,
                "negated": [at for at, is_not in enumerate(query.parsed.is_negated) if is_not],
                "gaps": [f"{gap.operator.value}{gap.level}" for gap in query.parsed.gaps],
                "source": source,
            }
            for source, query in rows
        ),
    )


def read_labelled_queries(path: Path) -> dict[str, list[LabelledQuery]]:
    """Read labelled queries, by source and in file order."""
    queries: dict[str, list[LabelledQuery]] = {}
    for number, row in read_jsonl(path, _FIELDS):
        where = f"{path}:{number}"
        if unknown := [gap for gap in row["gaps"] if gap not in _GAPS]:
            raise DataError(f"{where}: no gap is {unknown[0]!r}; known: {', '.join(_GAPS)}")
        operands = tuple(_spans(spans, len(row["text"]), where) for spans in row["operands"])
        negated = tuple(at in row["negated"] for at in range(len(operands)))
        if len(row["gaps"]) != len(operands) - 1 or sum(negated) != len(row["negated"]):
            raise DataError(f"{where}: 'negated' or 'gaps' do not fit {len(operands)} operands")
        if all(negated):
            raise DataError(f"{where}: a query has a positive operand")
        parsed = ParsedQuery(operands, negated, tuple(_GAPS[gap] for gap in row["gaps"]))
        queries.setdefault(row["source"], []).append(LabelledQuery(row["text"], parsed))
    return queries


def _spans(operand: Any, length: int, where: str) -> Spans:  # noqa: ANN401 - parsed JSON
    """Check the spans of one operand: pairs of character positions inside the text."""
    is_pairs = isinstance(operand, list) and all(
        isinstance(span, list) and [type(end) for end in span] == [int, int] for span in operand
    )
    if not is_pairs or not operand:
        raise DataError(f"{where}: an operand must be a list of [start, end], not {operand!r}")
    for start, end in operand:
        if not 0 <= start < end <= length:
            raise DataError(f"{where}: [{start}, {end}] is no span of a text of {length} letters")
    return tuple((start, end) for start, end in operand)
