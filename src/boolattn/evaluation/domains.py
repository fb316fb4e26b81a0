"""Results over many domains: by domain and kind of query, and as the mean of the domains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.evaluation.benchmark import KINDS
from boolattn.evaluation.metrics import mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.data.records import Dataset
    from boolattn.evaluation.results import Results

    #: Heading, kind of query, metric.
    Column = tuple[str, str, str]

#: Metrics of a benchmark of domains.
METRICS = ("r_precision", "leak", "mrr@10", "ndcg@10")
MEAN = "mean"
#: Splits with kinds of things or with one relevant document have a word of these in their name.
_OTHERS = ("kinds", "single")
#: The share of relevant documents that a ranking of all documents holds, and its complement.
_HELD, _WRONG_DROPS = "recall@1000000", "wrong drops"


def by_domain(data: Dataset, splits: Sequence[str]) -> Iterator[tuple[str, Dataset]]:
    """Divide a data set by the domain of its documents; domains without these splits are left out.

    Each domain is ranked alone: "garlic but not onion" means nothing among films.
    """
    for domain in dict.fromkeys(str(document.metadata["domain"]) for document in data.documents):
        chosen = {
            split: tuple(query for query in data.splits.get(split, ()) if query.domain == domain)
            for split in splits
        }
        if any(chosen.values()):
            documents = [d for d in data.documents if d.metadata["domain"] == domain]
            filled = {split: queries for split, queries in chosen.items() if queries}
            yield domain, replace(data, documents=documents, splits=filled)


def metrics_of(split: str) -> tuple[str, ...]:
    """Return the metrics of a split; for wrong drops whole rankings are needed."""
    return (*METRICS, _HELD) if _is_other(split) else METRICS


def columns_of(split: str) -> list[Column]:
    """Return the columns of a split's table.

    They are R-precision by kind of query (of one relevant document: hit@1) and the leak of NOT
    queries; of queries with kinds of things also wrong drops and MRR, with and without a NOT.
    """
    if _is_other(split):
        metrics = {"R-prec.": "r_precision", _WRONG_DROPS: _WRONG_DROPS, "MRR@10": "mrr@10"}
        columns = [
            (f"{kind} {heading}", kind, metric)
            for kind in ("with", "NOT")
            for heading, metric in metrics.items()
        ]
        return [*columns, ("leak", "NOT", "leak")]
    columns = [(kind, kind, "r_precision") for kind in KINDS]
    columns.insert(KINDS.index("NOT") + 1, ("leak", "NOT", "leak"))
    return columns


def rows_of(results: Results) -> dict[str, list[float]]:
    """Return for each domain, and as the mean of the domains, a value for each column."""
    columns = columns_of(results.split)
    if _is_other(results.split):
        queries = tuple(
            replace(query, kind="NOT" if "not" in query.operators else "with")
            for query in results.queries
        )
        values = {**results.values, _WRONG_DROPS: 1 - results.values[_HELD]}
        results = replace(results, queries=queries, values=values)
    rows = {}
    for domain in results.by("domain"):
        kinds = results.only("domain", domain).by("kind")
        rows[domain] = [
            kinds[kind].means[metric] if kind in kinds else np.nan for _, kind, metric in columns
        ]
    rows[MEAN] = [mean(column) for column in np.array(list(rows.values())).T]
    return rows


def _is_other(split: str) -> bool:
    return any(word in split.split("_") for word in _OTHERS)
