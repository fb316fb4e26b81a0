"""Files of labelled queries, from which a query parser is trained.

JSON lines, one query each: ``{"text", "positive", "negated", "joiner", "source"}``. ``positive``
and ``negated`` hold the character spans of each operand: ``[[[0, 8], [24, 31]]]`` is one operand
of two spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boolattn.errors import DataError
from boolattn.jsonl import read_jsonl, write_jsonl
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery, label_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from boolattn.data.records import Query
    from boolattn.logic.parsed_query import Spans

_FIELDS = {"text": str, "positive": list, "negated": list, "joiner": str, "source": str}
_JOINERS = (Operator.AND, Operator.OR)


def write_labelled_queries(path: Path, rows: Iterable[tuple[str, LabelledQuery]]) -> int:
    """Write labelled queries, each with the name of its source; return how many."""
    return write_jsonl(
        path,
        (
            {
                "text": query.text,
                "positive": query.parsed.positive,
                "negated": query.parsed.negated,
                "joiner": query.parsed.joiner.value,
                "source": source,
            }
            for source, query in rows
        ),
    )


def read_labelled_queries(path: Path) -> dict[str, list[LabelledQuery]]:
    """Read labelled queries, by source and in file order."""
    found: dict[str, list[LabelledQuery]] = {}
    for number, row in read_jsonl(path, _FIELDS):
        where = f"{path}:{number}"
        if row["joiner"] not in _JOINERS:
            raise DataError(f"{where}: the joiner must be 'and' or 'or', not {row['joiner']!r}")
        if not row["positive"]:
            raise DataError(f"{where}: 'positive' is empty; a query has a positive operand")
        positive, negated = (
            tuple(_spans(operand, len(row["text"]), where) for operand in row[name])
            for name in ("positive", "negated")
        )
        query = LabelledQuery(row["text"], ParsedQuery(positive, negated, Operator(row["joiner"])))
        found.setdefault(row["source"], []).append(query)
    return found


def label_queries(queries: Iterable[Query]) -> Iterator[LabelledQuery]:
    """Label the queries of a data set whose operand spans are known; others are skipped."""
    for query in queries:
        spans = [operand.spans for operand in query.operands]
        if labelled := label_template(query.text, query.template, spans):
            yield labelled


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
