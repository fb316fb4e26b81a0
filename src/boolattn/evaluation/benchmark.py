"""A data set prepared for evaluation: documents to rank, and queries with judged documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import ConfigError, DataError
from boolattn.settings import checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from boolattn.data.records import Dataset, Document, Query

    RowSets = tuple[NDArray[np.int32], ...]

#: Kinds of queries, in the order of tables.
KINDS = ("plain", "AND/OR", "NOT", "known item", "names")
_ITEMS = {"known": "known item", "name": "names"}
#: Default splits: the first of these rows that the data set has.
DEFAULT_SPLITS = (("test", "unseen"), ("eval",), ("val", "generated_val"), ("validation",))


def row_sets(sets: Iterable[Iterable[int]]) -> RowSets:
    """Return each query's set of rows, sorted.

    >>> row_sets([{3, 1}])[0].tolist()
    [1, 3]
    """
    return tuple(np.array(sorted(set(rows)), dtype=np.int32) for rows in sets)


def sizes_of(sets: RowSets) -> NDArray[np.int64]:
    """Return the number of rows in each set."""
    return np.array([len(rows) for rows in sets], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """What results store of a query; unknown values are empty."""

    id: str
    template: str = ""
    operators: tuple[str, ...] = ()
    domain: str = ""
    wording: str = ""  # ``seen`` or ``unseen`` in training
    kind: str = ""  # one of :data:`KINDS`

    @classmethod
    def of(cls, query: Query) -> QueryInfo:
        """Return what is stored of a query."""
        # In built benchmarks the name of a wording begins with "seen:" or "unseen:".
        exposure, mark, _ = query.wording.partition(":")
        exposure = exposure if mark and exposure in ("seen", "unseen") else ""
        kind = "NOT" if "not" in query.operators else "AND/OR" if query.operators else "plain"
        kind = _ITEMS.get(query.wording.rpartition(":")[2].partition("/")[0], kind)
        return cls(query.id, query.template, query.operators, query.domain, exposure, kind)

    def groups(self, grouping: str) -> tuple[str, ...]:
        """Return the groups of the query; with two operators it belongs to both."""
        if grouping == "operator":
            return self.operators or ("none",)
        if grouping == "template":
            return (self.template or " ".join(self.operators) or "unknown",)
        value = getattr(self, grouping)
        return (value,) if value else ()


@dataclass(frozen=True, eq=False)
class Judgements:
    """Judged documents of queries, as rows of a corpus.

    ``undecided`` ones are taken out of a ranking before it is measured.
    """

    queries: tuple[Query, ...]
    n_documents: int
    relevant: RowSets
    excluded: RowSets
    undecided: RowSets = ()

    @classmethod
    def of(cls, queries: Sequence[Query], rows: Mapping[str, int]) -> Judgements:
        """Look up the rows of the queries' documents, by the ids of the corpus.

        A query without a relevant document there is left out; such a document is only relevant.
        """
        usable = tuple(query for query in queries if not rows.keys().isdisjoint(query.gold))
        if not usable:
            corpus = f"among {len(rows)} documents; do the queries belong to this corpus?"
            raise DataError(f"none of {len(queries)} queries has a relevant document {corpus}")
        triples = ((q.gold, q.excluded - q.gold, q.undecided - q.gold) for q in usable)
        kinds = zip(*triples, strict=True)
        sets = ([map(rows.__getitem__, ids & rows.keys()) for ids in kind] for kind in kinds)
        return cls(usable, len(rows), *map(row_sets, sets))

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Ids of the queries."""
        return tuple(query.id for query in self.queries)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Texts of the queries."""
        return tuple(query.text for query in self.queries)

    @cached_property
    def operators(self) -> tuple[tuple[str, ...], ...]:
        """Names of each query's operators."""
        return tuple(query.operators for query in self.queries)


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Documents to rank by row, their rows by id (in order), and judgements by split."""

    name: str
    documents: Sequence[Document]
    rows: Mapping[str, int]
    splits: Mapping[str, Judgements]

    @property
    def texts(self) -> list[str]:
        """Texts of the documents, by row."""
        return [document.text for document in self.documents]


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

    A sample of the corpus has all judged documents; ``n_queries`` are chosen of each split; 0: all.
    """
    if min(n_documents, n_queries, seed) < 0:
        raise ConfigError("the sizes of a sample and its seed are at least 0")
    chosen = {split: data.queries(split) for split in splits or _default_splits(data)}
    rng, limits = np.random.default_rng(seed), []
    for split, queries in chosen.items():
        if 0 < n_queries < len(queries):
            rows = np.sort(rng.choice(len(queries), n_queries, replace=False))
            chosen[split], limits = tuple(queries[i] for i in rows), [f"{n_queries:,} queries"]
    documents: Sequence[Document] = data.documents
    if 0 < n_documents < len(documents):
        every = chain(*chosen.values())
        judged = frozenset().union(*(q.gold | q.excluded | q.partial for q in every))
        unjudged = [row for row, document in enumerate(documents) if document.id not in judged]
        n_more = max(0, min(len(unjudged), n_documents - len(documents) + len(unjudged)))
        more = set(rng.choice(unjudged, n_more, replace=False).tolist()) if n_more else set()
        # In the order of the corpus.
        documents = [d for row, d in enumerate(documents) if d.id in judged or row in more]
        limits.append(f"{len(documents):,} of {len(data.documents):,} documents")
    name = f"{data.name} ({', '.join(limits)}, seed {seed})" if limits else data.name
    row_of = {document.id: row for row, document in enumerate(documents)}
    judgements = {split: Judgements.of(queries, row_of) for split, queries in chosen.items()}
    return Benchmark(name, documents, row_of, judgements)


def _default_splits(data: Dataset) -> tuple[str, ...]:
    for names in DEFAULT_SPLITS:
        if known := tuple(name for name in names if data.splits.get(name)):
            return known
    if len(data.splits) == 1 and "train" not in data.splits:
        return tuple(data.splits)
    raise ConfigError(f"name a split of {data.name}: {', '.join(data.splits)}")
