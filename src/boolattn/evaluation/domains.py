"""Results over many domains: one table and one figure, by domain and on average."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.evaluation.judgements import KINDS
from boolattn.evaluation.metrics import mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.data.records import Dataset
    from boolattn.evaluation.results import Results

#: Metrics of a benchmark of domains.
METRICS = ("r_precision", "leak", "mrr@10", "ndcg@10")
#: Columns of the table: heading, kind of query, metric.
COLUMNS = tuple(
    column
    for kind in KINDS
    for column in [(kind, kind, "r_precision")] + [("leak", kind, "leak")] * (kind == "NOT")
)
MEAN = "mean"


def by_domain(data: Dataset, splits: Sequence[str]) -> Iterator[tuple[str, Dataset]]:
    """Divide a data set by the domain of its documents; domains without these splits are left out.

    Each domain is ranked alone: "garlic but not onion" means nothing among films.
    """
    for domain in dict.fromkeys(str(one.metadata["domain"]) for one in data.documents):
        own = {
            split: tuple(query for query in data.splits.get(split, ()) if query.domain == domain)
            for split in splits
        }
        if any(own.values()):
            documents = [one for one in data.documents if one.metadata["domain"] == domain]
            found = {split: queries for split, queries in own.items() if queries}
            yield domain, replace(data, documents=documents, splits=found)


def rows_of(results: Results) -> dict[str, list[float]]:
    """Return for each domain, and as the mean of the domains, a value for each of :data:`COLUMNS`.

    The columns are R-precision (of one relevant document: hit@1), and the leak of NOT queries.
    """
    cells = {metric: results.crossed(metric) for metric in {one for _, _, one in COLUMNS}}
    domains = dict.fromkeys(query.domain for query in results.queries)
    rows = {
        name: [cells[metric].get((name, kind), np.nan) for _, kind, metric in COLUMNS]
        for name in domains
    }
    rows[MEAN] = [mean(own) for own in np.array(list(rows.values())).T]
    return rows


def label(results: Results) -> str:
    """Return the name of a system with its way of ranking."""
    return ", ".join(filter(None, (results.system, str(results.details.get("way", "")))))
