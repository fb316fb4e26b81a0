"""Loaders of QUEST and QUEST-intro: entity-seeking queries with set operations.

QUEST-intro is a folder of Wikipedia introductions that lacks many gold documents, so a coverage
rule decides which queries can be scored. ``metadata.attributions`` is evidence that only gold
documents have; it is never used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boolattn.data.download import fetch
from boolattn.data.records import Dataset, Document, Operand, Query, answer_sets
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import cache_folder
from boolattn.jsonl import find_file, read_jsonl
from boolattn.query.syntax import TEMPLATES, template_operators
from boolattn.settings import checked

ADDRESS = "https://storage.googleapis.com/gresearch/quest/"

#: Official files; their checksums are not published.
FILES: Mapping[str, str] = {
    **{split: f"{split}.jsonl" for split in ("train", "train_aug", "val", "test")},
    "documents": "documents.zip",
}

_MARK = re.compile(r"<mark>(.*?)</mark>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quest(Dataset):
    """QUEST or QUEST-intro."""

    categories: Mapping[str, frozenset[str]]  # by category; empty without a file of categories
    named: Mapping[str, frozenset[str]]  # operands in each file, also of queries left out


def fetch_quest(splits: Sequence[str] = ("train", "val")) -> Path:
    """Download the official files into the cache and return their folder."""
    folder = cache_folder() / "quest"
    for name in (*splits, "documents"):
        if name not in FILES:
            raise ConfigError(f"QUEST has no {name!r}; it has {', '.join(FILES)}")
        try:
            find_file(folder, f"{name}.jsonl", FILES[name])
        except MissingDataError:
            fetch(ADDRESS + FILES[name], folder / FILES[name])
    return folder


@checked
def load_quest(folder: Path | None = None, *, splits: Sequence[str] = ("train", "val")) -> Quest:
    """Load the official QUEST, downloaded by default; ``splits`` also has "train_aug" and "test".

    A gold document that is not in the corpus is an error.
    """
    return _load("QUEST", folder or fetch_quest(splits), splits)


@checked
def load_quest_intro(folder: Path) -> Quest:
    """Load a QUEST-intro folder.

    A query is kept when half of its gold documents, and at least one, are in the corpus.
    """
    return _load("QUEST-intro", folder, ("train", "val"), min_share=0.5)


def _load(name: str, folder: Path, splits: Sequence[str], min_share: float = 1.0) -> Quest:
    remedy = f"put {name}'s files ({ADDRESS}) there, or name their folder with --from"
    # Before the corpus, so that a missing query file is noticed early.
    paths = {split: find_file(folder, f"{split}.jsonl", remedy=remedy) for split in splits}
    documents = tuple(read_documents(folder))
    known = frozenset(document.id for document in documents)
    categories = _read_categories(folder, known)
    filled, named = {}, {}
    for split, path in paths.items():
        queries, named[split] = _read_queries(path, split, known, min_share)
        filled[split] = tuple(_with_sets(query, categories) for query in queries)
    return Quest(name=name, documents=documents, splits=filled, categories=categories, named=named)


def read_documents(folder: Path) -> Iterator[Document]:
    """Stream the corpus of a QUEST or QUEST-intro folder; a document's id is its title."""
    names = (FILES["documents"], "corpus.jsonl", "documents.jsonl")
    path = find_file(folder, *names, remedy=f"it is published as {ADDRESS}{names[0]}")
    # One mapping for each source, not for each document, saves a quarter of the memory.
    sources: dict[str, Mapping[str, str]] = {}
    for _, row in read_jsonl(path, {"title": str, "text": str}, unique="title"):
        source = row.get("source", "")
        metadata = sources.setdefault(source, {"source": source} if source else {})
        yield Document(id=row["title"], text=row["text"], title=row["title"], metadata=metadata)


def _read_categories(folder: Path, known: frozenset[str]) -> dict[str, frozenset[str]]:
    """Read the members of each category that are in the corpus."""
    try:
        path = find_file(folder, "categories.jsonl")
    except MissingDataError:
        return {}
    full: dict[str, list[str]] = {}
    for number, row in read_jsonl(path, {"category": str, "docs": list}):
        name = row["category"]
        # The published file repeats some categories; only a contradiction is an error.
        if full.setdefault(name, row["docs"]) != row["docs"]:
            raise DataError(f"{path}:{number}: the category {name!r} occurs twice and differs")
    return {name: known.intersection(documents) for name, documents in full.items()}


def _read_queries(
    path: Path, split: str, known: frozenset[str], min_share: float
) -> tuple[list[Query], frozenset[str]]:
    """Read the queries that the corpus covers, and the operands of all."""
    covered: list[Query] = []
    named: set[str] = set()
    for index, (number, row) in enumerate(read_jsonl(path, {"query": str, "docs": list})):
        where = f"{path}:{number}"
        query = _query(f"{split}-{index}", row, known, where)
        n_gold = len(set(row["docs"]))
        named.update(operand.text for operand in query.operands)
        if min_share == 1 and len(query.gold) < n_gold:
            unknown = min(set(row["docs"]) - known)
            raise DataError(f"{where}: the gold title {unknown!r} is not in the corpus")
        if min_share == 1 or (query.gold and len(query.gold) >= min_share * n_gold):
            covered.append(query)
    return covered, frozenset(named)


def _query(qid: str, row: Mapping[str, Any], known: frozenset[str], where: str) -> Query:
    metadata = row.get("metadata") or {}
    template = metadata.get("template") or ""
    if template and template not in TEMPLATES:
        raise DataError(f"{where}: unknown template {template!r}; known: {', '.join(TEMPLATES)}")
    # Augmented queries have no original, so their operands are not known.
    names = [" ".join(name.split()) for name in _MARK.findall(row.get("original_query") or "")]
    if names and template and len(names) != template.count("_"):
        numbers = f"{template.count('_')} operands, original_query marks {len(names)}"
        raise DataError(f"{where}: the template {template!r} has {numbers}")
    return Query(
        id=qid,
        text=row["query"],
        gold=known.intersection(row["docs"]),
        template=template,
        operators=template_operators(template) if template else (),
        operands=tuple(Operand(name, _span(name, row["query"])) for name in names),
        domain=metadata.get("domain") or "",
    )


def _span(operand: str, text: str) -> tuple[tuple[int, int], ...]:
    """Find an operand that occurs literally, once, in a paraphrase."""
    hits = re.finditer(rf"(?<!\w){re.escape(operand)}(?!\w)", text, re.IGNORECASE)
    spans = tuple(match.span() for match in hits)
    return spans if len(spans) == 1 else ()


def _with_sets(query: Query, categories: Mapping[str, frozenset[str]]) -> Query:
    """Add the members of operands and, where all are known, excluded and partial documents."""
    names = [operand.text for operand in query.operands]
    operands = tuple(replace(o, members=categories.get(o.text)) for o in query.operands)
    query = replace(query, operands=operands)
    if not query.template or not names or not all(name in categories for name in names):
        return query
    sets = answer_sets(query.template, [categories[name] for name in names])
    # The gold of films and books was judged by people, so it may differ from these sets.
    return replace(query, excluded=sets.excluded - query.gold, partial=sets.partial - query.gold)
