"""Rankings as rows of a corpus, and TREC run files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np

from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_file
from boolattn.jsonl import read_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.integer[Any]]

PADDING = -1  # row after the last document that a system returned


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best documents of each query, as arrays of shape ``(queries, depth)``."""

    #: Best first, :data:`PADDING` after the last one. Metrics read only these.
    rows: Rows
    scores: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.shape != self.scores.shape:
            shapes = f"{self.rows.shape} and {self.scores.shape}"
            raise ConfigError(f"rows and scores must have one shape (queries, depth); got {shapes}")

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]], depth: int | None = None) -> Ranking:
        """Pack lists of rows; the scores are the negated ranks.

        >>> Ranking.of([[4, 2], [7]]).rows.tolist()
        [[4, 2], [7, -1]]
        """
        width = max(map(len, lists), default=0) if depth is None else depth
        rows = np.full((len(lists), width), PADDING, dtype=np.int32)
        for index, ranked in enumerate(lists):
            rows[index, : min(len(ranked), width)] = ranked[:width]
        falling = np.broadcast_to(-np.arange(width, dtype=np.float32), rows.shape)
        return cls(rows, np.where(rows == PADDING, np.float32(-np.inf), falling))

    @classmethod
    def of_scores(cls, pairs: Sequence[Sequence[tuple[int, float]]], depth: int | None) -> Ranking:
        """Pack lists of rows with their scores, best first."""
        ranking = cls.of([[row for row, _ in ranked] for ranked in pairs], depth)
        for scores, ranked in zip(ranking.scores, pairs, strict=True):
            scores[: len(ranked)] = [score for _, score in ranked[: len(scores)]]
        return ranking

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def depth(self) -> int:
        """Number of ranks, padding included."""
        return int(self.rows.shape[1])

    def without(self, left_out: Sequence[Rows]) -> Ranking:
        """Take rows out of each ranking; what follows them moves up.

        >>> Ranking.of([[4, 2, 7]]).without([np.array([2])]).rows.tolist()
        [[4, 7, -1]]
        """
        lists = [
            ranked[(ranked >= 0) & ~np.isin(ranked, rows)].tolist()
            for ranked, rows in zip(self.rows, left_out, strict=True)
        ]
        return Ranking.of(lists, self.depth)


def write_run(
    path: Path,
    ranking: Ranking,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    *,
    system: str = "boolattn",
) -> None:
    """Write a TREC run: ``query Q0 document rank score system``.

    Spaces in ids are written as ``%20``. The suffix of the path selects a compression.
    """
    names = {row: document_ids[row] for row in np.unique(ranking.rows) if row >= 0}
    with atomic_file(path) as file:
        for qid, rows, scores in zip(query_ids, ranking.rows.tolist(), ranking.scores, strict=True):
            file.writelines(
                run_line(qid, names[row], rank, score, system) + "\n"
                for rank, (row, score) in enumerate(zip(rows, scores, strict=True), start=1)
                if row >= 0
            )


def run_line(qid: str, document: str, rank: int, score: float, system: str = "boolattn") -> str:
    """Return a line of a TREC run; see :func:`write_run`."""
    # Nine digits restore a float32 exactly, so that ties stay ties.
    return f"{_escaped(qid)} Q0 {_escaped(document)} {rank} {score:.9g} {_escaped(system)}"


def read_run(
    path: Path,
    query_ids: Sequence[str],
    rows: Mapping[str, int],
    depth: int | None = None,
    *,
    skip_unknown: bool = False,
) -> Ranking:
    """Read a TREC run, plain or compressed: documents by decreasing score, ties by rank.

    Other queries are ignored; the ranking of a query without a line is empty. Unknown documents
    are errors unless ``skip_unknown``.
    """
    indices = {qid: index for index, qid in enumerate(query_ids)}
    ranked: list[dict[int, tuple[float, int]]] = [{} for _ in query_ids]
    other = unknown = ""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        qid, document, rank, score = _fields(line, path, number)
        index = indices.get(qid, indices.get(unquote(qid)))
        row = rows.get(document, rows.get(unquote(document)))
        if index is None:
            other = qid
        elif row is not None:
            if row in ranked[index]:
                raise DataError(f"{path}:{number}: {document!r} comes twice for query {qid!r}")
            ranked[index][row] = (-score, rank)
        elif skip_unknown:
            unknown = document
        else:
            reason = f"no document {document!r} among {len(rows)}; is this run of another corpus?"
            raise DataError(f"{path}:{number}: {reason}")
    if not any(ranked):
        reason = f"it has {other!r}, expected {query_ids[0]!r}" if other else "it is empty"
        reason = f"no document {unknown!r} in the corpus" if unknown else reason
        raise DataError(f"{path} ranks nothing for {len(query_ids)} queries: {reason}")
    ordered = (sorted(documents.items(), key=itemgetter(1)) for documents in ranked)
    return Ranking.of_scores([[(row, -s) for row, (s, _) in part] for part in ordered], depth)


def _fields(line: str, path: Path, number: int) -> tuple[str, str, int, float]:
    """Split a line; a document's id may contain spaces that another tool left unescaped."""
    try:
        front, rank, score, _ = line.rsplit(maxsplit=3)
        qid, _, document = front.split(maxsplit=2)
        if math.isnan(float(score)):
            raise ValueError
        return qid, document, int(rank), float(score)
    except ValueError:
        form = "query Q0 document rank score system"
        reason = f"not a line of a TREC run ({form}): {line[:80]!r}"
        raise DataError(f"{path}:{number}: {reason}") from None


def _escaped(name: str) -> str:
    return re.sub(r"[\s%]", lambda match: quote(match[0]), name)
