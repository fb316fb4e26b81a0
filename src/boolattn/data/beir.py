"""BEIR folders (corpus.jsonl, queries.jsonl, qrels/<split>.tsv), and pairs in NevIR's form.

A folder has two additions that BEIR's tools ignore: excluded documents in
``qrels/<split>.excluded.tsv``, and the other fields of a query in its ``metadata``.
"""

from __future__ import annotations

import csv
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from boolattn.data.records import Dataset, Document, Query, read_query
from boolattn.errors import DataError, MissingDataError
from boolattn.files import atomic_file, atomic_folder
from boolattn.jsonl import check_fields, find_file, read_jsonl, read_lines, write_jsonl
from boolattn.settings import checked

_EXCLUDED = ".excluded"
_FIELDS = {"_id": str, "text": str}
_PAIR = {"q1": str, "q2": str, "doc1": str, "doc2": str}
_NO_METADATA: Mapping[str, Any] = dict.fromkeys(("template", "domain", "wording"), "") | (
    dict.fromkeys(("operators", "operands", "partial"), ())
)


@checked
def write_beir(
    folder: Path, documents: Iterable[Document], splits: Mapping[str, Sequence[Query]]
) -> None:
    """Write a data set as a new BEIR folder, completely or not at all.

    The corpus is streamed. Query ids must differ across splits, because all share one file.
    """
    home: dict[str, str] = {}
    for split, queries in splits.items():
        if split.endswith(_EXCLUDED) or "/" in split or not split:
            raise DataError(f"a split of a BEIR folder cannot be named {split!r}")
        for query in queries:
            if query.id in home:
                both = f"{home[query.id]} and in {split}"
                reason = "a BEIR folder has all queries in one file"
                raise DataError(f"the query id {query.id!r} is in {both}; {reason}")
            home[query.id] = split
    with atomic_folder(folder) as draft:
        rows = (
            {"_id": document.id, "title": document.title, "text": document.text}
            | ({"metadata": dict(document.metadata)} if document.metadata else {})
            for document in documents
        )
        write_jsonl(draft / "corpus.jsonl", rows)
        rows = (_query_row(query, split) for split in splits for query in splits[split])
        write_jsonl(draft / "queries.jsonl", rows)
        for split, queries in splits.items():
            _write_qrels(draft / "qrels" / f"{split}.tsv", {q.id: q.gold for q in queries})
            if any(query.excluded for query in queries):
                excluded = {query.id: query.excluded for query in queries}
                _write_qrels(draft / "qrels" / f"{split}{_EXCLUDED}.tsv", excluded)


def read_corpus(folder: Path) -> Iterator[Document]:
    """Stream the documents of a BEIR folder."""
    path = find_file(folder, "corpus.jsonl")
    for _, row in read_jsonl(path, _FIELDS, unique="_id"):
        optional: Any = {"title": row.get("title") or "", "metadata": row.get("metadata") or {}}
        yield Document(id=row["_id"], text=row["text"], **optional)


@checked
def read_beir(folder: Path) -> Dataset:
    """Read a BEIR folder."""
    documents = tuple(read_corpus(folder))
    known = frozenset(document.id for document in documents)
    queries = _read_queries(find_file(folder, "queries.jsonl"), known)
    splits, qrels = {}, folder / "qrels"
    stems = sorted(path.stem for path in qrels.glob("*.tsv"))
    for name in (stem for stem in stems if not stem.endswith(_EXCLUDED)):
        gold = _read_qrels(find_file(qrels, f"{name}.tsv"), queries, known)
        second = qrels / f"{name}{_EXCLUDED}.tsv"
        excluded = _read_qrels(second, queries, known) if second.is_file() else {}
        splits[name] = tuple(
            replace(query, gold=gold.get(qid, frozenset()), excluded=excluded.get(qid, frozenset()))
            for qid, (query, split) in queries.items()
            if split == name or (not split and (qid in gold or qid in excluded))
        )
    return Dataset(name=folder.name, documents=documents, splits=splits)


def _query_row(query: Query, split: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "split": split,
        "template": query.template,
        "operators": query.operators,
        "operands": [{"text": part.text, "spans": part.spans} for part in query.operands],
        "partial": sorted(query.partial),
        "undecided": sorted(query.undecided),
        "domain": query.domain,
        "wording": query.wording,
    }
    filled = {name: value for name, value in metadata.items() if value}
    return {"_id": query.id, "text": query.text, "metadata": filled}


def _write_qrels(path: Path, judged: Mapping[str, Iterable[str]]) -> None:
    with atomic_file(path) as handle:
        handle.write("query-id\tcorpus-id\tscore\n")
        for qid, documents in judged.items():
            for document in sorted(documents):
                if any(sign in qid + document for sign in "\t\n\r"):
                    raise DataError(f"the id {qid!r} or {document!r} does not fit a TSV file")
                handle.write(f"{qid}\t{document}\t1\n")


def _read_queries(path: Path, known: frozenset[str]) -> dict[str, tuple[Query, str]]:
    """Read all queries, without gold, each with the split its metadata names."""
    queries: dict[str, tuple[Query, str]] = {}
    for number, row in read_jsonl(path, _FIELDS, unique="_id"):
        where = f"{path}:{number}"
        metadata = row.get("metadata") or {}
        try:
            fields = {"id": row["_id"], "text": row["text"], "gold": (), "excluded": ()}
            query = read_query({**_NO_METADATA, **metadata, **fields})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{where}: the query's metadata cannot be read ({error})") from error
        if unknown := sorted(query.partial - known):
            raise DataError(f"{where}: the partial document {unknown[0]!r} is not in the corpus")
        queries[query.id] = (query, metadata.get("split", ""))
    return queries


def _read_qrels(
    path: Path, queries: Container[str], known: frozenset[str]
) -> dict[str, frozenset[str]]:
    """Read the documents of each query with a judgement above zero."""
    judged: dict[str, set[str]] = {}
    for number, line in read_lines(path):
        if not line or (number == 1 and line.startswith("query-id")):
            continue
        where = f"{path}:{number}"
        try:
            qid, document, score = line.split("\t")
            is_relevant = float(score) > 0
        except ValueError as error:
            form = "query-id, corpus-id and score, separated by tabs"
            raise DataError(f"{where}: not {form}; is it truncated?") from error
        if qid not in queries:
            raise DataError(f"{where}: the query {qid!r} is not in queries.jsonl")
        if document not in known:
            raise DataError(f"{where}: the document {document!r} is not in the corpus")
        if is_relevant:
            judged.setdefault(qid, set()).add(document)
    return {qid: frozenset(documents) for qid, documents in judged.items()}


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
            for key, right, wrong in (("q1", first, second), ("q2", second, first)):
                sets: Any = {"gold": frozenset({right}), "excluded": frozenset({wrong})}
                queries.append(Query(id=f"{name}/{key}", text=row[key], **sets))
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
