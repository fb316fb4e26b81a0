"""Parse accuracy on the queries for model selection (validation_queries.txt), by kind of error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from boolattn.data.labelled_queries import LabelledQuery, label_queries, label_tree, parse_labelled
from boolattn.data.records import read_query
from boolattn.errors import DataError
from boolattn.evaluation.parsing import structure, word_f1
from boolattn.evaluation.tables import markdown, short
from boolattn.jsonl import read_jsonl
from boolattn.query.structure import operand_signs
from boolattn.query.syntax import parse
from boolattn.query.tree import Atom, QueryTree, atoms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from experiments.parsing.accuracy import Read

#: Kinds of error, from coarse to fine.
ERRORS = ("taken apart", "left whole", "number of operands", "negation", "joined otherwise")
_TEXTS = ("id", "text", "template", "domain", "wording")
_LISTS = ("operators", "operands", "gold", "excluded", "partial")


@dataclass(frozen=True, slots=True)
class ValidationQuery:
    """One query: its kind ("name", "exclusion") and its parse."""

    kind: str
    labelled: LabelledQuery

    @property
    def tree(self) -> QueryTree:
        """The tree that it should be parsed as."""
        return self.labelled.parsed.tree(self.labelled.text)


def benchmark_queries(path: Path) -> Iterator[LabelledQuery]:
    """Yield the queries of a built benchmark's split whose operands' words are known."""
    fields = dict.fromkeys(_TEXTS, str) | dict.fromkeys(_LISTS, list)
    yield from label_queries(read_query(row) for _, row in read_jsonl(path, fields))


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


def error_kind(expected: QueryTree, parsed: QueryTree) -> str:
    """Name what is wrong with the structure of a parse; empty where nothing is.

    >>> error_kind(parse("a AND NOT b"), parse("a AND b"))
    'negation'
    """
    if structure(expected) == structure(parsed):
        return ""
    signs, parsed_signs = sorted(operand_signs(expected)), sorted(operand_signs(parsed))
    is_wrong = (
        isinstance(expected, Atom),
        isinstance(parsed, Atom),
        len(signs) != len(parsed_signs),
        signs != parsed_signs,
        True,
    )
    return ERRORS[is_wrong.index(True)]


def measure_validation(read: Read, *, shows_errors: bool = False) -> str:
    """Lay out accuracy and errors by kind of query; with ``shows_errors`` each error is a line."""
    queries = validation_queries()
    trees = [reading.tree for reading in read([query.labelled.text for query in queries])]
    errors = [error_kind(query.tree, tree) for query, tree in zip(queries, trees, strict=True)]
    # The words of a plain query do not matter: it is searched as it is typed.
    scores = [
        np.nan if isinstance(query.tree, Atom) else word_f1(query.tree, tree)
        for query, tree in zip(queries, trees, strict=True)
    ]
    kinds = list(dict.fromkeys(query.kind for query in queries))
    rows = []
    for name in (*kinds, "all"):
        places = [at for at, query in enumerate(queries) if name in (query.kind, "all")]
        rows.append(_row(name, [errors[at] for at in places], [scores[at] for at in places]))
    lines = [
        f"{query.kind}: {error}: {query.labelled.text} -> {tree}"
        for query, tree, error in zip(queries, trees, errors, strict=True)
        if error and shows_errors
    ]
    heads = ["queries", "n", "structure", "operand word F1", *ERRORS]
    return "\n".join([*lines, markdown(heads, rows)])


def _row(name: str, errors: Sequence[str], scores: Sequence[float]) -> list[str]:
    counts = Counter(errors)
    known = [score for score in scores if not np.isnan(score)]
    words = short(float(np.mean(known))) if known else "–"
    share = short(counts[""] / len(errors))
    return [name, str(len(errors)), share, words, *(str(counts[kind]) for kind in ERRORS)]
