"""Pairs of passages that differ by a negation, in NevIR's form."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Dataset, Document, Query
from boolattn.errors import MissingDataError
from boolattn.jsonl import check_fields, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_PAIR = {"q1": str, "q2": str, "doc1": str, "doc2": str}
#: Ends of the ids of a pair's two queries.
FIRST, SECOND = "/q1", "/q2"


def read_pairs(path: Path) -> Dataset:
    """Read pairs, of one file or of a folder with a file for each split.

    ``q1`` asks for ``doc1`` and ``q2`` for ``doc2``; the other document of the pair is excluded.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".csv", ".jsonl"))
    if not files or not all(file.is_file() for file in files):
        raise MissingDataError(f"no .csv or .jsonl file of pairs at {path}")
    documents: dict[str, Document] = {}
    splits: dict[str, tuple[Query, ...]] = {}
    for file in files:
        queries = []
        for number, row in _pairs(file):
            name = str(row.get("id") or f"{file.stem}-{number}")
            first, second = (f"{name}/doc1", f"{name}/doc2")
            documents[first] = Document(id=first, text=row["doc1"])
            documents[second] = Document(id=second, text=row["doc2"])
            for end, gold, other in ((FIRST, first, second), (SECOND, second, first)):
                text, sets = row[end[1:]], (frozenset({gold}), frozenset({other}))
                queries.append(Query(id=name + end, text=text, gold=sets[0], excluded=sets[1]))
        splits[file.stem] = tuple(queries)
    return Dataset(name=path.stem, documents=list(documents.values()), splits=splits)


def _pairs(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if path.suffix != ".csv":
        yield from read_jsonl(path, _PAIR)
        return
    with path.open(encoding="utf-8", newline="") as handle:
        for number, row in enumerate(csv.DictReader(handle), start=2):
            check_fields(row, _PAIR, path, number)
            yield number, row
