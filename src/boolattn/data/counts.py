"""Counts of a data set's queries by template, and of negation records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.data.negation import Negation
    from boolattn.data.records import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCounts:
    """Number of queries, and mean sizes of their document sets."""

    n_queries: int
    mean_gold: float
    mean_excluded: float
    mean_partial: float


@dataclass(slots=True, kw_only=True)
class NegationCounts:
    """Counts over negation records."""

    n_records: int = 0
    n_negations: int = 0
    n_tokens: int = 0
    n_cue_tokens: int = 0
    n_scope_tokens: int = 0


def count_queries(queries: Sequence[Query]) -> QueryCounts:
    """Count queries."""
    n = max(len(queries), 1)
    return QueryCounts(
        n_queries=len(queries),
        mean_gold=sum(len(query.gold) for query in queries) / n,
        mean_excluded=sum(len(query.excluded) for query in queries) / n,
        mean_partial=sum(len(query.partial) for query in queries) / n,
    )


def count_by_template(queries: Iterable[Query]) -> Mapping[str, QueryCounts]:
    """Count queries by template, or by operators where they have none, in order of appearance."""
    groups: dict[str, list[Query]] = {}
    for query in queries:
        name = query.template or " ".join(op.value for op in query.operators) or "unknown"
        groups.setdefault(name, []).append(query)
    return {name: count_queries(group) for name, group in groups.items()}


def count_negations(records: Iterable[Negation]) -> NegationCounts:
    """Count negation records; a sentence with two negations counts twice."""
    counts = NegationCounts()
    for record in records:
        counts.n_records += 1
        counts.n_negations += record.has_negation
        counts.n_tokens += len(record.tokens)
        counts.n_cue_tokens += sum(record.cue)
        counts.n_scope_tokens += sum(record.scope)
    return counts
