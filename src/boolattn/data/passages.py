"""Two public forms of passages: pairs that differ by a negation (NevIR), and MS MARCO's files."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Dataset, Document, Query
from boolattn.errors import DataError, MissingDataError
from boolattn.jsonl import check_fields, read_jsonl, read_lines

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
        files = sorted(one for one in path.iterdir() if one.suffix in (".csv", ".jsonl"))
    if not files or not all(one.is_file() for one in files):
        raise MissingDataError(f"no .csv or .jsonl file of pairs at {path}")
    documents: dict[str, Document] = {}
    splits: dict[str, tuple[Query, ...]] = {}
    for file in files:
        queries = []
        for number, row in _pairs(file):
            name = str(row.get("id") or f"{file.stem}-{number}")
            first, second = (f"{name}/doc1", f"{name}/doc2")
            documents |= {
                one: Document(id=one, text=row[part])
                for one, part in ((first, "doc1"), (second, "doc2"))
            }
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


def read_msmarco(folder: Path) -> Dataset:
    """Read ``collection.tsv``, ``queries*.tsv`` and ``qrels*.tsv``; a split for each qrels file."""
    documents = [
        Document(id=name, text=text) for name, text in _columns(folder / "collection.tsv", 2)
    ]
    texts = {
        name: text
        for path in sorted(folder.glob("queries*.tsv"))
        for name, text in _columns(path, 2)
    }
    known = {document.id for document in documents}
    splits = {}
    for path in sorted(folder.glob("qrels*.tsv")):
        gold: dict[str, set[str]] = {}
        for qid, _, name, grade in _columns(path, 4):
            if qid not in texts or name not in known:
                raise DataError(f"{path}: {qid!r} or {name!r} is not in the queries and passages")
            if int(grade) > 0:
                gold.setdefault(qid, set()).add(name)
        split = path.stem.removeprefix("qrels").strip(".") or "test"
        splits[split] = tuple(
            Query(id=qid, text=texts[qid], gold=frozenset(own)) for qid, own in gold.items()
        )
    if not splits:
        raise MissingDataError(f"no qrels*.tsv in {folder}")
    return Dataset(name=folder.name, documents=documents, splits=splits)


def _columns(path: Path, n: int) -> Iterator[list[str]]:
    for number, line in read_lines(path):
        parts = line.split("\t") if "\t" in line else line.split()
        if len(parts) != n:
            raise DataError(f"{path}:{number}: {n} columns are expected, there are {len(parts)}")
        yield parts
