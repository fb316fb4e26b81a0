"""A data set prepared for evaluation: documents to rank, judged queries by split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.judgements import Judgements
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.data.records import Dataset, Document, Query

#: Default splits: the first of these rows that the data set has.
DEFAULT_SPLITS = (("test", "unseen"), ("eval",), ("val", "generated_val"), ("validation",))


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Documents to rank by row, their rows by id, and judgements by split."""

    name: str
    documents: Sequence[Document]
    rows: Mapping[str, int]
    splits: Mapping[str, Judgements]

    @property
    def texts(self) -> list[str]:
        """Texts of the documents, by row."""
        return [document.text for document in self.documents]

    @property
    def ids(self) -> list[str]:
        """Ids of the documents, by row."""
        return [document.id for document in self.documents]


@checked
def prepare(
    data: Dataset,
    splits: Sequence[str] = (),
    *,
    n_documents: int = 0,
    n_queries: int = 0,
    seed: int = 0,
) -> Benchmark:
    """Choose splits (default: those usually reported), and optionally a sample.

    A sample of the corpus has all judged documents; ``n_queries`` is the size of a sample of each
    split. 0 means all.
    """
    if min(n_documents, n_queries, seed) < 0:
        raise ConfigError("the sizes of a sample and its seed are at least 0")
    if not data.documents:
        raise DataError(f"{data.name} has no documents")
    chosen = {split: _split(data, split) for split in splits or _default_splits(data)}
    rng = np.random.default_rng(seed)
    limits = []
    if n_queries and any(len(queries) > n_queries for queries in chosen.values()):
        chosen = {split: _sample(queries, n_queries, rng) for split, queries in chosen.items()}
        limits.append(f"{n_queries:,} queries")
    documents: Sequence[Document] = data.documents
    if 0 < n_documents < len(documents):
        documents = _corpus(documents, chosen, n_documents, rng)
        limits.append(f"{len(documents):,} of {len(data.documents):,} documents")
    name = f"{data.name} ({', '.join(limits)}, seed {seed})" if limits else data.name
    rows = {document.id: row for row, document in enumerate(documents)}
    judgements = {split: Judgements.of(queries, rows) for split, queries in chosen.items()}
    return Benchmark(name, documents, rows, judgements)


def _default_splits(data: Dataset) -> tuple[str, ...]:
    for names in DEFAULT_SPLITS:
        if known := tuple(name for name in names if data.splits.get(name)):
            return known
    if len(data.splits) == 1 and "train" not in data.splits:
        return tuple(data.splits)
    raise ConfigError(f"name a split of {data.name}: {', '.join(data.splits)}")


def _split(data: Dataset, split: str) -> tuple[Query, ...]:
    if split not in data.splits:
        there = ", ".join(data.splits)
        raise ConfigError(f"{data.name} has no split {split!r}; there are {there}")
    if not data.splits[split]:
        raise DataError(f"the split {split!r} of {data.name} has no queries")
    return data.splits[split]


def _sample(queries: Sequence[Query], n: int, rng: np.random.Generator) -> tuple[Query, ...]:
    if len(queries) <= n:
        return tuple(queries)
    return tuple(queries[i] for i in np.sort(rng.choice(len(queries), n, replace=False)))


def _corpus(
    documents: Sequence[Document],
    splits: Mapping[str, Sequence[Query]],
    n: int,
    rng: np.random.Generator,
) -> list[Document]:
    """Return the judged documents and a sample of the others, in corpus order."""
    judged = {
        name
        for queries in splits.values()
        for query in queries
        for name in (*query.gold, *query.excluded, *query.partial)
    }
    rest = [row for row, document in enumerate(documents) if document.id not in judged]
    n_more = max(0, min(len(rest), n - (len(documents) - len(rest))))
    more = set(rng.choice(rest, n_more, replace=False).tolist()) if n_more else set()
    return [d for row, d in enumerate(documents) if d.id in judged or row in more]
