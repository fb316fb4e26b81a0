"""What a system returned: rows of the corpus, best first; read from and written to TREC runs.

May import: boolattn.files, boolattn.errors.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import numpy as np

from boolattn.errors import ConfigError, DataError
from boolattn.files import read_lines, whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

#: Stands where a system returned nothing more.
PADDING = -1


@dataclass(frozen=True, eq=False)
class Ranking:
    """For each query the rows of its best documents.

    Attributes:
        rows: Best first, :data:`PADDING` after the last one, int32. Shape ``(queries, depth)``.
        scores: Higher is better, float32, same shape. Only ``rows`` decides the order.
    """

    rows: NDArray[np.int32]
    scores: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.shape != self.scores.shape:
            raise ConfigError(
                f"a ranking wants rows and scores of one shape (queries, depth); got "
                f"{self.rows.shape} and {self.scores.shape}"
            )

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]], depth: int | None = None) -> Ranking:
        """Pack lists of rows; scores fall with the rank.

        >>> Ranking.of([[4, 2], [7]]).rows.tolist()
        [[4, 2], [7, -1]]
        """
        width = max(map(len, lists), default=0) if depth is None else depth
        rows = np.full((len(lists), width), PADDING, dtype=np.int32)
        for place, one in enumerate(lists):
            rows[place, : min(len(one), width)] = one[:width]
        falling = np.broadcast_to(-np.arange(width, dtype=np.float32), rows.shape)
        return cls(rows, np.where(rows == PADDING, np.float32(-np.inf), falling))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def depth(self) -> int:
        """How many places each query has."""
        return int(self.rows.shape[1])

    def cut(self, depth: int) -> Ranking:
        """Keep the first places only."""
        return Ranking(self.rows[:, :depth], self.scores[:, :depth])


def write_run(
    path: Path,
    ranking: Ranking,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    *,
    system: str = "boolattn",
) -> None:
    """Write a TREC run: ``query Q0 document rank score system``.

    Spaces in names are written as ``%20``, because spaces part the fields. The ending of the
    path chooses a compression.
    """
    if len(query_ids) != len(ranking):
        raise ConfigError(f"got names of {len(query_ids)} queries for {len(ranking)} rankings")
    tag = _escaped(system)
    names = {row: _escaped(document_ids[row]) for row in np.unique(ranking.rows) if row >= 0}
    with whole_file(path) as file:
        for qid, rows, scores in zip(
            map(_escaped, query_ids), ranking.rows.tolist(), ranking.scores, strict=True
        ):
            lines = (
                # Nine digits bring a float32 back as it was, so that ties stay ties.
                f"{qid} Q0 {names[row]} {rank} {score:.9g} {tag}\n"
                for rank, (row, score) in enumerate(zip(rows, scores, strict=True), start=1)
                if row >= 0
            )
            file.writelines(lines)


def read_run(path: Path, query_ids: Sequence[str], rows: Mapping[str, int]) -> Ranking:
    """Read a TREC run: documents by falling score, ties by the rank written.

    Queries that are not asked for are passed over; one that has no line returned nothing.

    Args:
        path: Plain or compressed.
        query_ids: The queries wanted, in the order wanted.
        rows: Row of each document of the corpus.
    """
    places = {qid: place for place, qid in enumerate(query_ids)}
    found: list[dict[int, tuple[float, int]]] = [{} for _ in query_ids]
    other = ""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        qid, document, rank, score = _fields(line, path, number)
        place = places.get(qid, places.get(unquote(qid)))
        if place is None:
            other = qid
            continue
        row = rows.get(document, rows.get(unquote(document)))
        if row is None:
            raise DataError(
                f"{path}:{number}: no document {document!r} among {len(rows)}; "
                "was this run made over another corpus?"
            )
        if row in found[place]:
            raise DataError(f"{path}:{number}: {document!r} comes twice for query {qid!r}")
        found[place][row] = (-score, rank)
    if not any(found):
        held = f"it holds {other!r}, wanted is {query_ids[0]!r}" if other else "it is empty"
        raise DataError(f"{path} answers none of {len(query_ids)} queries: {held}")
    return _pack(found)


def _pack(found: Sequence[Mapping[int, tuple[float, int]]]) -> Ranking:
    depth = max(map(len, found))
    rows = np.full((len(found), depth), PADDING, dtype=np.int32)
    scores = np.full((len(found), depth), -np.inf, dtype=np.float32)
    for place, documents in enumerate(found):
        ordered = sorted(documents, key=documents.__getitem__)
        rows[place, : len(ordered)] = ordered
        scores[place, : len(ordered)] = [-documents[row][0] for row in ordered]
    return Ranking(rows, scores)


def _fields(line: str, path: Path, number: int) -> tuple[str, str, int, float]:
    """Take a line apart; a document's name may hold spaces where another tool left them."""
    try:
        front, rank, score, _ = line.rsplit(maxsplit=3)
        qid, _, document = front.split(maxsplit=2)
        if math.isnan(float(score)):
            raise ValueError
        return qid, document, int(rank), float(score)
    except ValueError:
        raise DataError(
            f"{path}:{number}: not a line of a TREC run (query Q0 document rank score system): "
            f"{line[:80]!r}"
        ) from None


def _escaped(name: str) -> str:
    return re.sub(r"[\s%]", lambda found: quote(found[0]), name)
