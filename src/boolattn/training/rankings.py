"""Another engine's ranking, as a source of negatives: a TREC run, or JSON.

``boolattn evaluate bm25 --split train --out FOLDER`` writes such a run.
May import: boolattn.files, boolattn.errors.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import unquote

from boolattn.errors import DataError
from boolattn.jsonl import read_lines

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from pathlib import Path

_FIELDS = 6


def read_rankings(
    path: Path, queries: Container[str], documents: Container[str]
) -> Mapping[str, Sequence[str]]:
    """Read which documents an engine found best for each query.

    Args:
        path: ``*.json``: query id to document ids, best first. Anything else: a TREC run, plain
            or compressed, whose names may have their spaces written as ``%20``.
        queries: Ids of the queries; others are passed over.
        documents: Ids of the documents; others are passed over.

    Returns:
        Document ids by query id, best first.
    """
    if not path.is_file():
        raise DataError(f"no file {path} with rankings")
    found = _from_json(path) if path.suffix == ".json" else _from_run(path, queries, documents)
    kept = {
        query: [name for name in names if name in documents]
        for query, names in found.items()
        if query in queries
    }
    if not any(kept.values()):
        raise DataError(
            f"{path} ranks no document of this data set for any of its queries; was it made "
            "over other data, or for another split?"
        )
    return kept


def _from_json(path: Path) -> Mapping[str, Sequence[str]]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read rankings {path}: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(one, list) for one in values.values()):
        raise DataError(f"{path} must map query ids to lists of document ids")
    return values


def _from_run(
    path: Path, queries: Container[str], documents: Container[str]
) -> Mapping[str, Sequence[str]]:
    scored: dict[str, list[tuple[float, int, str]]] = {}
    for number, line in read_lines(path):
        if not line.strip():
            continue
        fields = line.split()
        try:
            query, _, document, _, score, _ = fields
            value = -float(score)
        except ValueError:
            raise DataError(
                f"{path}:{number}: not a line of a TREC run, which has {_FIELDS} fields: query Q0 "
                "document rank score system"
            ) from None
        query = query if query in queries else unquote(query)
        document = document if document in documents else unquote(document)
        scored.setdefault(query, []).append((value, number, document))
    return {query: [name for *_, name in sorted(rows)] for query, rows in scored.items()}
