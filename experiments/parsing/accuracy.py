"""Parse accuracy: structure and operand words of parsed queries, and names split at a cue word."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.evaluation.parsing import has_same_operands, structure, word_f1
from experiments.parsing.test_sets import cue_word_names, unseen_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from boolattn.query.plan import Plan

    #: Parses texts, as ``Retriever.plan`` does.
    Planner = Callable[[Sequence[str]], Sequence[Plan]]

_BATCH = 256


def split_names(planner: Planner) -> dict[str, Any]:
    """Count the names with a cue word ("Romeo and Juliet") that are parsed as several operands.

    Returns:
        ``n`` and ``misread`` (names that are split), and ``kinds``: the same two by kind of name.
    """
    names = cue_word_names()
    plans = _plans(planner, [name.query for name in names])
    counts = Counter(name.kind for name in names)
    wrong = Counter(n.kind for n, plan in zip(names, plans, strict=True) if plan.is_composed)
    return {
        "n": counts.total(),
        "misread": wrong.total(),
        "kinds": {kind: {"n": n, "misread": wrong[kind]} for kind, n in counts.items()},
    }


def unseen_accuracy(planner: Planner) -> dict[str, Any]:
    """Measure parse accuracy on the test queries in unseen wordings.

    Returns:
        ``n`` and shares: ``structure``; ``obeyed``, the structure of what is scored, which is one
        operand where the confidence is low; and for queries of several operands ``words``, where
        all operands are right too, and the mean ``word_f1``. The same by ``forms`` and
        ``domains``, and ``elsewhere``, for all domains but taxa.
    """
    queries = unseen_queries()
    plans = _plans(planner, [query.labelled.text for query in queries])
    rows = []
    for query, plan in zip(queries, plans, strict=True):
        expected = query.labelled.parsed.tree(query.labelled.text)
        row = {
            "structure": float(structure(plan.parsed) == structure(expected)),
            "obeyed": float(structure(plan.tree) == structure(expected)),
        }
        if not query.labelled.parsed.is_plain:
            row["words"] = float(has_same_operands(expected, plan.parsed))
            row["word_f1"] = word_f1(expected, plan.parsed)
        rows.append(row)
    domains = [query.domain for query in queries]
    return _means(rows) | {
        "forms": _means_by([query.form for query in queries], rows),
        "domains": _means_by(domains, rows),
        "elsewhere": _means([r for r, d in zip(rows, domains, strict=True) if d != "taxa"]),
    }


def _plans(planner: Planner, texts: Sequence[str]) -> list[Plan]:
    starts = range(0, len(texts), _BATCH)
    return [plan for start in starts for plan in planner(texts[start : start + _BATCH])]


def _means_by(keys: Sequence[str], rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, float]]] = {}
    for key, row in zip(keys, rows, strict=True):
        groups.setdefault(key, []).append(row)
    return {key: _means(group) for key, group in groups.items()}


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    found: dict[str, Any] = {"n": len(rows)}
    for name in dict.fromkeys(name for row in rows for name in row):
        found[name] = round(float(np.mean([row[name] for row in rows if name in row])), 4)
    return found
