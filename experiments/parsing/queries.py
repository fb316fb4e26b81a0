"""Queries of parsing: two frozen test sets, those for model selection, and those of benchmarks.

The test sets are names with a cue word inside, and 484 queries in unseen wordings, written without
sight of any wording used for training, half about taxa, half about other domains. Nothing is
trained on, selected by, or changed after either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from boolattn.data.records import read_query
from boolattn.data.sentences import LabelledQuery
from boolattn.errors import DataError
from boolattn.jsonl import read_jsonl
from boolattn.query.parsed_query import ParsedQuery
from boolattn.query.syntax import parse
from boolattn.query.tree import Operator, atoms
from experiments.labels import form_tree, label_template, label_tree, parse_labelled

_TEXTS = ("id", "text", "template", "domain", "wording")
_LISTS = ("operators", "operands", "gold", "excluded", "partial")


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """One query, and its parse."""

    kind: str  # its form ("a_or_b_not_c"), its kind ("exclusion"), or that of its name ("film")
    labelled: LabelledQuery
    domain: str = ""
    name: str = ""  # with a cue word inside; the query has it in any capitalisation


@lru_cache(maxsize=1)
def unseen_queries() -> tuple[JudgedQuery, ...]:
    """Return the queries in unseen wordings, in file order; negated operands come last."""
    queries = []
    for form, domain, markup in _rows("unseen_wordings.txt"):
        text, operands = parse_labelled(markup)
        words = form.split("_")
        n_negated, joiner = words.count("not"), Operator.OR if "or" in words else Operator.AND
        tree = form_tree(len(operands) - n_negated, n_negated, joiner)
        if labelled := label_tree(text, tree, operands):
            queries.append(JudgedQuery(form, labelled, domain))
    return tuple(queries)


@lru_cache(maxsize=1)
def cue_word_names() -> tuple[JudgedQuery, ...]:
    """Return queries of one operand, a name with a cue word inside ("Not of This Earth").

    None is in a table that training queries are generated from; one, "Argyll & Bute", is in a
    natural query.
    """
    queries = []
    for kind, name, text, *_ in _rows("cue_word_names.txt"):
        labelled = LabelledQuery(text, ParsedQuery((((0, len(text.rstrip("?!"))),),)))
        queries.append(JudgedQuery(kind, labelled, name=name))
    return tuple(queries)


@lru_cache(maxsize=1)
def validation_queries() -> tuple[JudgedQuery, ...]:
    """Return the queries for model selection, in file order."""
    queries = []
    for kind, formula, markup in _rows("validation_queries.txt"):
        text, operands = parse_labelled(markup)
        labelled = label_tree(text, parse(formula), operands)
        if labelled is None or len(operands) != sum(1 for _ in atoms(parse(formula))):
            raise DataError(f"the operands of {markup!r} cannot be joined as {formula}")
        queries.append(JudgedQuery(kind, labelled))
    return tuple(queries)


def benchmark_queries(path: Path) -> Iterator[LabelledQuery]:
    """Yield the queries of a built benchmark's split whose operands' words are known."""
    fields = dict.fromkeys(_TEXTS, str) | dict.fromkeys(_LISTS, list)
    for _, row in read_jsonl(path, fields):
        query = read_query(row)
        spans = [operand.spans for operand in query.operands]
        if labelled := label_template(query.text, query.template, spans):
            yield labelled


def _rows(name: str) -> Iterator[list[str]]:
    text = files("experiments.parsing").joinpath(name).read_text(encoding="utf-8")
    return (line.split("\t") for line in text.splitlines() if line and line[0] != "#")
