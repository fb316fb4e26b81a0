"""Results of one system on one split: values of every query, means by group, comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.benchmark import KINDS, Judgements, QueryInfo
from boolattn.evaluation.metrics import mean
from boolattn.jsonl import read_jsonl, write_jsonl
from boolattn.query.syntax import LONGER, TEMPLATES
from boolattn.query.tree import OPERATORS

if TYPE_CHECKING:
    from boolattn.data.records import Dataset, Query
    from boolattn.evaluation.metrics import Floats

FORMAT = "boolattn-results-1"
GROUPINGS = ("template", "operator", "domain", "wording", "kind")  # of queries
#: Draws of the tests of significance, and how many are computed at once, to bound memory.
N_DRAWS, _BATCH = 10_000, 500
_ORDER = {"template": (*TEMPLATES, *LONGER), "operator": ("none", *OPERATORS), "kind": KINDS}
DOMAIN_METRICS = ("r_precision", "leak", "mrr@10", "ndcg@10")  # of a benchmark of domains
MEAN = "mean"
#: The share of relevant documents that a ranking of all documents holds, and its complement.
_HELD, _WRONG_DROPS = "recall@1000000", "wrong drops"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Means of two systems over the ``n`` queries for which both have a value.

    ``difference`` is second minus first, ``low`` and ``high`` its 95% interval, ``p_value``
    that of the two-sided paired randomisation test.
    """

    n: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Results:
    """Values of one system on one split.

    ``values`` has for each metric one value a query, nan where undefined. ``gate`` tells what
    opened the gates, ``details`` has version, depth and seconds.
    """

    system: str
    dataset: str
    split: str
    n_documents: int
    queries: tuple[QueryInfo, ...]
    values: Mapping[str, Floats]
    gate: str = ""
    seed: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.queries)
        for name, values in self.values.items():
            if values.shape != (n,):
                raise ConfigError(f"{name} has values of shape {values.shape} for {n} queries")

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def label(self) -> str:
        """Name of the system with its way of ranking."""
        return ", ".join(filter(None, (self.system, str(self.details.get("way", "")))))

    @cached_property
    def means(self) -> dict[str, float]:
        """Mean of each metric; nan where no query has a value."""
        return {name: mean(values) for name, values in self.values.items()}

    def by(self, grouping: str) -> dict[str, Results]:
        """Group the queries by template, operator, domain, wording or kind."""
        if grouping not in GROUPINGS:
            raise ConfigError(f"unknown grouping {grouping!r}; there are {', '.join(GROUPINGS)}")
        used = dict.fromkeys(name for query in self.queries for name in query.groups(grouping))
        first = (name for name in _ORDER.get(grouping, ()) if name in used)
        return {name: self.only(grouping, name) for name in dict.fromkeys([*first, *used])}

    def only(self, grouping: str, name: str) -> Results:
        """Keep the queries of one group."""
        chosen = [i for i, query in enumerate(self.queries) if name in query.groups(grouping)]
        if not chosen:
            raise ConfigError(f"no query of {grouping} {name!r} in {self.dataset} {self.split}")
        queries = tuple(self.queries[index] for index in chosen)
        values = {metric: values[chosen] for metric, values in self.values.items()}
        return replace(self, queries=queries, values=values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the means, and the values of every query."""
        names = [item.name for item in fields(self) if item.name not in ("queries", "values")]
        means = {name: _rounded(value) for name, value in self.means.items()}
        columns = [item.name for item in fields(QueryInfo)]
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in names},
            "overall": {"n": len(self.queries), **means},
            "queries": {name: [getattr(q, name) for q in self.queries] for name in columns},
            "values": {name: [*map(_rounded, row.tolist())] for name, row in self.values.items()},
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any], source: Path) -> Results:
        """Read what :meth:`to_dict` returned; the source is for error messages."""
        if plain.get("format") != FORMAT:
            raise DataError(f"{source} has no results in format {FORMAT}; evaluate again")
        try:
            table = plain["queries"]
            table["operators"] = map(tuple, table["operators"])
            columns = [table[item.name] for item in fields(QueryInfo)]
            queries = tuple(starmap(QueryInfo, zip(*columns, strict=True)))
            # A null becomes nan.
            values = {name: np.array(v, np.float64) for name, v in plain["values"].items()}
            attributes = {item.name: plain[item.name] for item in fields(cls)}
            return cls(**attributes | {"queries": queries, "values": values})
        except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
            raise DataError(f"{source} is damaged ({error!r}); evaluate again") from error

    def save(self, path: Path) -> None:
        """Write a file of one line of JSON; the suffix selects a compression."""
        write_jsonl(path, [self.to_dict()])

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what :meth:`save` wrote."""
        rows = [row for _, row in read_jsonl(path)]
        return cls.from_dict(rows[0] if rows else {}, path)


def results_of(judgements: Judgements, values: Mapping[str, Floats], **about: Any) -> Results:
    """Make results of measured values; ``about`` are the other attributes."""
    queries = tuple(map(QueryInfo.of, judgements.queries))
    return Results(values=values, n_documents=judgements.n_documents, queries=queries, **about)


def joined(domains: Sequence[Results]) -> Results:
    """Join the results of one system on the domains of one split."""
    values = {name: np.concatenate([d.values[name] for d in domains]) for name in domains[0].values}
    queries = tuple(query for results in domains for query in results.queries)
    n_documents = sum(results.n_documents for results in domains)
    return replace(domains[0], values=values, queries=queries, n_documents=n_documents)


def average(results: Sequence[Results]) -> Results:
    """Average every query's values over seeds."""
    _check_alike(results)
    if len(results) == 1:
        return results[0]
    shared = [name for name in results[0].values if all(name in seed.values for seed in results)]
    values = {name: np.mean([seed.values[name] for seed in results], axis=0) for name in shared}
    return replace(results[0], values=values, seed=None)


def compare(first: Floats, second: Floats, *, seed: int = 0) -> Comparison:
    """Compare the values of two systems on the same queries; queries with a nan are left out.

    The p value is that of Fisher's paired randomisation test: under the null hypothesis every
    query's difference has a random sign. The observed difference counts as one of the draws, so it
    is never 0. The interval of the mean difference is the percentile bootstrap's.
    """
    is_known = ~np.isnan(second - first)
    if not is_known.any():
        raise ConfigError("no query has a value of both systems")
    first, second = first[is_known], second[is_known]
    difference = second - first
    size, n_extreme, means = (_BATCH, len(difference)), 0, []
    for_signs, for_queries = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(N_DRAWS // _BATCH):
        sums = (2 * for_signs.integers(0, 2, size, dtype=np.int8) - 1) @ difference
        # Sums of the same numbers in another order differ in the last digits.
        n_extreme += int(np.sum(np.abs(sums) >= abs(difference.sum()) - 1e-9))
        means.append(difference[for_queries.integers(0, len(difference), size)].mean(axis=1))
    low, high = np.percentile(means, (2.5, 97.5)).tolist()
    averages = (float(first.mean()), float(second.mean()), float(difference.mean()))
    p_value = (n_extreme + 1) / (N_DRAWS + 1)
    return Comparison(len(difference), *averages, low, high, p_value)


def compare_results(
    first: Results, second: Results, *, metrics: Sequence[str] | None = None, seed: int = 0
) -> dict[str, Comparison]:
    """Compare two systems on the same queries, second minus first.

    Default: all metrics that both have. A metric without a value is left out.
    """
    _check_alike([first, second])
    names = [name for name in first.values if name in second.values]
    if missing := [name for name in metrics or () if name not in names]:
        raise ConfigError(f"not both results have {missing[0]}; both have {', '.join(names)}")
    return {
        name: compare(first.values[name], second.values[name], seed=seed)
        for name in metrics or names
        if not np.isnan(second.values[name] - first.values[name]).all()
    }


def _check_alike(results: Sequence[Results]) -> None:
    """Refuse results over different queries or documents."""
    first = results[0]
    for other in results[1:]:
        for name in ("dataset", "split", "n_documents"):
            here, there = getattr(first, name), getattr(other, name)
            if here != there:
                raise ConfigError(f"results of {name} {here!r} and {there!r} are not comparable")
        if [query.id for query in first.queries] != [query.id for query in other.queries]:
            sizes = f"{len(first.queries)} and {len(other.queries)}"
            raise ConfigError(f"{first.system} and {other.system} have different queries: {sizes}")


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 5)


def by_domain(data: Dataset, splits: Sequence[str]) -> Iterator[tuple[str, Dataset]]:
    """Divide a data set by the domain of its documents; domains without these splits are left out.

    Each domain is ranked alone: "garlic but not onion" means nothing among films.
    """
    for domain in dict.fromkeys(str(document.metadata["domain"]) for document in data.documents):
        chosen: dict[str, tuple[Query, ...]] = {}
        for split in splits:
            if queries := tuple(q for q in data.splits.get(split, ()) if q.domain == domain):
                chosen[split] = queries
        if chosen:
            documents = [d for d in data.documents if d.metadata["domain"] == domain]
            yield domain, replace(data, documents=documents, splits=chosen)


def domain_metrics(split: str) -> tuple[str, ...]:
    """Return the metrics of a split; for wrong drops whole rankings are needed."""
    return (*DOMAIN_METRICS, _HELD) if _is_other(split) else DOMAIN_METRICS


def domain_columns(split: str) -> list[tuple[str, str, str]]:
    """Return heading, kind of query and metric of each column of a split's table.

    They are R-precision by kind of query (of one relevant document: hit@1) and the leak of NOT
    queries; of queries with kinds of things also wrong drops and MRR, with and without a NOT.
    """
    if _is_other(split):
        metrics = {"R-prec.": "r_precision", _WRONG_DROPS: _WRONG_DROPS, "MRR@10": "mrr@10"}
        pairs = product(("with", "NOT"), metrics.items())
        columns = [(f"{kind} {heading}", kind, metric) for kind, (heading, metric) in pairs]
        return [*columns, ("leak", "NOT", "leak")]
    columns = [(kind, kind, "r_precision") for kind in KINDS]
    columns.insert(KINDS.index("NOT") + 1, ("leak", "NOT", "leak"))
    return columns


def domain_rows(results: Results) -> dict[str, list[float]]:
    """Return for each domain, and as the mean of the domains, a value for each column."""
    columns = domain_columns(results.split)
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
    """Whether a split has kinds of things or queries with one relevant document."""
    return not {"kinds", "single"}.isdisjoint(split.split("_"))
