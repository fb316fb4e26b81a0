"""How many queries a data set has, of which templates, and how large the sets are they name.

May import: boolattn.data.records, boolattn.data.negation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.data.negation import Negation
    from boolattn.data.records import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCounts:
    """Counts over some queries; the sizes of sets are means over all of them."""

    n_queries: int
    mean_gold: float
    mean_excluded: float
    mean_partial: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NegationCounts:
    """Counts over one file of negation records."""

    n_records: int
    n_negations: int
    n_tokens: int
    n_cue_tokens: int
    n_scope_tokens: int


def count_queries(queries: Sequence[Query]) -> QueryCounts:
    """Count some queries."""
    n = len(queries)
    return QueryCounts(
        n_queries=n,
        mean_gold=sum(len(query.gold) for query in queries) / max(n, 1),
        mean_excluded=sum(len(query.excluded) for query in queries) / max(n, 1),
        mean_partial=sum(len(query.partial) for query in queries) / max(n, 1),
    )


def count_by_template(queries: Iterable[Query]) -> Mapping[str, QueryCounts]:
    """Count by template; queries without one by their operators ("and", "not").

    The templates come in the order in which the queries have them.
    """
    groups: dict[str, list[Query]] = {}
    for query in queries:
        name = query.template or " ".join(op.value for op in query.operators) or "unknown"
        groups.setdefault(name, []).append(query)
    return {name: count_queries(group) for name, group in groups.items()}


def count_negations(records: Iterable[Negation]) -> NegationCounts:
    """Count negation records; a sentence that comes twice counts twice."""
    n_records = n_negations = n_tokens = n_cue = n_scope = 0
    for record in records:
        n_records += 1
        n_negations += record.has_negation
        n_tokens += len(record.tokens)
        n_cue += sum(record.cue)
        n_scope += sum(record.scope)
    return NegationCounts(
        n_records=n_records,
        n_negations=n_negations,
        n_tokens=n_tokens,
        n_cue_tokens=n_cue,
        n_scope_tokens=n_scope,
    )
