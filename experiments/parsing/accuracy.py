"""Parse accuracy: structure and operand words of parsed queries, and names split at a cue word."""

from __future__ import annotations

from collections import Counter
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.evaluation.parsing import has_same_operands, structure, word_f1
from boolattn.query.tree import Atom
from experiments.parsing.test_sets import cue_word_names, unseen_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from boolattn.query.reading import Reading

    #: Reads texts, as ``read_queries`` does with a parser.
    Read = Callable[[Sequence[str]], Sequence[Reading]]

_BATCH = 256


def split_names(read: Read) -> dict[str, Any]:
    """Count the names with a cue word ("Romeo and Juliet") that are parsed as several operands.

    Returns:
        ``n`` and ``misread`` (names that are split), and ``kinds``: the same two by kind of name.
    """
    names = cue_word_names()
    readings = _read_batches(read, [name.query for name in names])
    counts = Counter(name.kind for name in names)
    is_split = [not isinstance(reading.tree, Atom) for reading in readings]
    wrong = Counter(name.kind for name in compress(names, is_split))
    return {
        "n": counts.total(),
        "misread": wrong.total(),
        "kinds": {kind: {"n": n, "misread": wrong[kind]} for kind, n in counts.items()},
    }


def unseen_accuracy(read: Read) -> dict[str, Any]:
    """Measure parse accuracy on the test queries in unseen wordings.

    Returns:
        ``n`` and shares: ``structure``; ``obeyed``, the structure of what is scored, which is one
        operand where the confidence is low; and for queries of several operands ``words``, where
        all operands are right too, and the mean ``word_f1``. The same by ``forms`` and
        ``domains``, and ``elsewhere``, for all domains but taxa.
    """
    queries = unseen_queries()
    readings = _read_batches(read, [query.labelled.text for query in queries])
    rows = []
    for query, reading in zip(queries, readings, strict=True):
        expected = query.labelled.parsed.tree(query.labelled.text)
        row = {
            "structure": float(structure(reading.parsed) == structure(expected)),
            "obeyed": float(structure(reading.tree) == structure(expected)),
        }
        if not query.labelled.parsed.is_plain:
            row["words"] = float(has_same_operands(expected, reading.parsed))
            row["word_f1"] = word_f1(expected, reading.parsed)
        rows.append(row)
    domains = [query.domain for query in queries]
    return _means(rows) | {
        "forms": _means_by([query.form for query in queries], rows),
        "domains": _means_by(domains, rows),
        "elsewhere": _means([r for r, d in zip(rows, domains, strict=True) if d != "taxa"]),
    }


def _read_batches(read: Read, texts: Sequence[str]) -> list[Reading]:
    starts = range(0, len(texts), _BATCH)
    return [reading for start in starts for reading in read(texts[start : start + _BATCH])]


def _means_by(keys: Sequence[str], rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, float]]] = {}
    for key, row in zip(keys, rows, strict=True):
        groups.setdefault(key, []).append(row)
    return {key: _means(group) for key, group in groups.items()}


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    means: dict[str, Any] = {"n": len(rows)}
    for name in dict.fromkeys(name for row in rows for name in row):
        means[name] = round(float(np.mean([row[name] for row in rows if name in row])), 4)
    return means
