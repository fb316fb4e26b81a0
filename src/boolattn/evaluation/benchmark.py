"""A data set made ready to be evaluated on: which documents are ranked, which queries asked.

May import: boolattn.data, boolattn.evaluation, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.judgements import Judgements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.data.records import Dataset, Document, Query

#: Splits that are reported where none is asked for: the first of these rows that has any.
REPORTED = (("test", "unseen"), ("eval",), ("val", "generated_val"), ("validation",))


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Documents to rank and queries to ask.

    Attributes:
        name: Of the data set; says so where it is only a part of it.
        documents: The corpus; a document's row is its place here.
        rows: The row of each document, by its id.
        splits: What is right, by split.
    """

    name: str
    documents: Sequence[Document]
    rows: Mapping[str, int]
    splits: Mapping[str, Judgements]

    @property
    def texts(self) -> list[str]:
        """What is encoded or indexed."""
        return [document.text for document in self.documents]

    @property
    def ids(self) -> list[str]:
        """Names of the documents, by row."""
        return [document.id for document in self.documents]


def prepare(
    data: Dataset,
    splits: Sequence[str] = (),
    *,
    n_documents: int = 0,
    n_queries: int = 0,
    seed: int = 0,
) -> Benchmark:
    """Choose splits, and a part of the data where a quick look is enough.

    Args:
        data: Queries and their corpus.
        splits: Which queries; left out, those usually reported.
        n_documents: Rank about so many: every document a query names, and others drawn to fill
            up; 0 ranks all.
        n_queries: Ask at most so many of each split, drawn; 0 asks all.
        seed: For what is drawn.
    """
    if not data.documents:
        raise DataError(f"{data.name} has no documents")
    chosen = {split: _split(data, split) for split in splits or _reported(data)}
    rng = np.random.default_rng(seed)
    parts = []
    if n_queries and any(len(queries) > n_queries for queries in chosen.values()):
        chosen = {split: _drawn(queries, n_queries, rng) for split, queries in chosen.items()}
        parts.append(f"{n_queries:,} queries")
    documents: Sequence[Document] = data.documents
    if 0 < n_documents < len(documents):
        documents = _corpus(documents, chosen, n_documents, rng)
        parts.append(f"{len(documents):,} of {len(data.documents):,} documents")
    name = f"{data.name} ({', '.join(parts)}, seed {seed})" if parts else data.name
    rows = {document.id: row for row, document in enumerate(documents)}
    judged = {split: Judgements.of(queries, rows) for split, queries in chosen.items()}
    return Benchmark(name, documents, rows, judged)


def _reported(data: Dataset) -> tuple[str, ...]:
    for names in REPORTED:
        if found := tuple(name for name in names if data.splits.get(name)):
            return found
    raise ConfigError(f"which split of {data.name}? there are {', '.join(data.splits)}")


def _split(data: Dataset, split: str) -> tuple[Query, ...]:
    if split not in data.splits:
        there = ", ".join(data.splits)
        raise ConfigError(f"{data.name} has no split {split!r}; there are {there}")
    if not data.splits[split]:
        raise DataError(f"the split {split!r} of {data.name} has no queries")
    return data.splits[split]


def _drawn(queries: Sequence[Query], n: int, rng: np.random.Generator) -> tuple[Query, ...]:
    if len(queries) <= n:
        return tuple(queries)
    return tuple(queries[i] for i in np.sort(rng.choice(len(queries), n, replace=False)))


def _corpus(
    documents: Sequence[Document],
    splits: Mapping[str, Sequence[Query]],
    n: int,
    rng: np.random.Generator,
) -> list[Document]:
    """Keep what queries name, and fill up with documents drawn from the rest, in their order."""
    named = {
        name
        for queries in splits.values()
        for query in queries
        for name in (*query.gold, *query.excluded, *query.partial)
    }
    rest = [row for row, document in enumerate(documents) if document.id not in named]
    n_more = max(0, min(len(rest), n - (len(documents) - len(rest))))
    more = set(rng.choice(rest, n_more, replace=False).tolist()) if n_more else set()
    return [d for row, d in enumerate(documents) if d.id in named or row in more]
