"""Results over many domains: by domain, and as the mean of the domains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.evaluation.judgements import KINDS
from boolattn.evaluation.metrics import mean
from boolattn.evaluation.results import GroupMeans

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
#: Kinds of queries of the other splits, by a word of their name: without a NOT, and with one.
_OTHERS = {"kinds": ("kinds with", "kinds NOT"), "single": ("one relevant", "one relevant")}
#: The share of relevant documents that a ranking of all documents left out, and the share it holds.
WRONG_DROPS, _HELD = "wrong drops", "recall@1000000"


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


def rows_of(results: Results) -> dict[str, list[float]]:
    """Return for each domain, and as the mean of the domains, a value for each of :data:`COLUMNS`.

    The columns are R-precision (of one relevant document: hit@1), and the leak of NOT queries.
    """
    rows = {}
    for domain in results.by("domain"):
        kinds = results.only("domain", domain).by("kind")
        rows[domain] = [
            kinds[kind].means[metric] if kind in kinds else np.nan for _, kind, metric in COLUMNS
        ]
    rows[MEAN] = [mean(column) for column in np.array(list(rows.values())).T]
    return rows


def others_of(split: str) -> tuple[str, ...]:
    """Return the kinds of queries of a split that has kinds of its own; else nothing."""
    return next((names for word, names in _OTHERS.items() if word in split.split("_")), ())


def metrics_of(split: str) -> tuple[str, ...]:
    """Return the metrics of a split; where it has kinds of its own, whole rankings are needed."""
    return (*METRICS, _HELD) if others_of(split) else METRICS


def groups_of(results: Results) -> dict[str, GroupMeans]:
    """Return the means of a split with kinds of its own, by domain, and over the domains."""
    names = others_of(results.split)
    queries = tuple(
        replace(query, kind=names["not" in query.operators]) for query in results.queries
    )
    values = {**results.values, WRONG_DROPS: 1 - results.values[_HELD]}
    results = replace(results, queries=queries, values=values)
    groups = {
        f"{domain}, {kind}": group
        for domain in results.by("domain")
        for kind, group in results.only("domain", domain).by("kind").items()
    }
    for kind in dict.fromkeys(names):
        means = [group.means for name, group in groups.items() if name.endswith(kind)]
        over = {name: mean(np.array([row[name] for row in means])) for name in values}
        groups[f"{MEAN}, {kind}"] = GroupMeans(len(means), over)
    return groups


def plain_rows(results: Results) -> dict[str, object]:
    """Return the rows of the table of a split as plain values."""
    if others_of(results.split):
        return {row: group.means for row, group in groups_of(results).items()}
    return dict(rows_of(results))
