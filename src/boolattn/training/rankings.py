"""Another engine's ranking of the training queries, as a source of negatives.

``boolattn evaluate bm25 --split train --out FOLDER`` writes such a run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from boolattn.errors import DataError
from boolattn.evaluation.ranking import read_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def read_rankings(
    path: Path, queries: Sequence[str], rows: Mapping[str, int]
) -> dict[str, list[int]]:
    """Read the documents that an engine ranks best for each query.

    Args:
        path: ``*.json``: query id to document ids, best first. Anything else: a TREC run.
        queries: Ids of the queries; others are ignored.
        rows: Row of each document, by id; others are ignored.

    Returns:
        Rows of documents by query id, best first.
    """
    if path.suffix != ".json":
        found = read_run(path, queries, rows, skip_unknown=True).rows.tolist()
        return {
            qid: [row for row in own if row >= 0] for qid, own in zip(queries, found, strict=True)
        }
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read rankings {path}: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(one, list) for one in values.values()):
        raise DataError(f"{path} must map query ids to lists of document ids")
    ranked = {qid: [rows[name] for name in values.get(qid, ()) if name in rows] for qid in queries}
    if not any(ranked.values()):
        raise DataError(f"{path} ranks no document of this data set for any of its queries")
    return ranked
