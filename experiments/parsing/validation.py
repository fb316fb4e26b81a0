"""The queries for model selection (validation_queries.txt), and those of built benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from boolattn.data.labelled_queries import LabelledQuery, label_template, label_tree, parse_labelled
from boolattn.data.records import read_query
from boolattn.errors import DataError
from boolattn.jsonl import read_jsonl
from boolattn.query.syntax import parse
from boolattn.query.tree import atoms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_TEXTS = ("id", "text", "template", "domain", "wording")
_LISTS = ("operators", "operands", "gold", "excluded", "partial")


@dataclass(frozen=True, slots=True)
class ValidationQuery:
    """One query: its kind ("name", "exclusion") and its parse."""

    kind: str
    labelled: LabelledQuery


def benchmark_queries(path: Path) -> Iterator[LabelledQuery]:
    """Yield the queries of a built benchmark's split whose operands' words are known."""
    fields = dict.fromkeys(_TEXTS, str) | dict.fromkeys(_LISTS, list)
    for _, row in read_jsonl(path, fields):
        query = read_query(row)
        spans = [operand.spans for operand in query.operands]
        if labelled := label_template(query.text, query.template, spans):
            yield labelled


@lru_cache(maxsize=1)
def validation_queries() -> tuple[ValidationQuery, ...]:
    """Return the queries in file order."""
    name = "validation_queries.txt"
    lines = files("experiments.parsing").joinpath(name).read_text(encoding="utf-8").splitlines()
    queries = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        kind, formula, markup = line.split("\t")
        text, operands = parse_labelled(markup)
        labelled = label_tree(text, parse(formula), operands)
        if labelled is None or len(operands) != sum(1 for _ in atoms(parse(formula))):
            raise DataError(f"{name}:{number}: the operands cannot be joined as {formula}")
        queries.append(ValidationQuery(kind, labelled))
    return tuple(queries)
