"""The options of a search."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError, QueryError
from boolattn.settings import build, check_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search."""

    mode: str = "auto"  # or plain language, or explicit syntax
    positive: Sequence[str] = ()  # operands that every query has besides; ``like:ID`` is a document
    negative: Sequence[str] = ()  # negated ones
    filters: Mapping[str, Any] | None = None  # on metadata; see ``boolattn.stores.filters``
    #: Whether the words of operands count as much as their vectors. By default they do where the
    #: index has words and ``compose`` is on: the best setting for each kind of query.
    hybrid: bool | None = None
    compose: bool = True  # whether operands are scored one by one; if not, a query is one vector
    #: Whether a document that holds the distinguishing words of a negated operand is left out,
    #: whatever its vector says. It is by default; ``True`` also warns where nothing is negated.
    strict_not: bool | None = None
    #: Whether things of a negated kind count, as cream does for "without dairy".
    kinds: bool = True
    allow: Sequence[str] = ()  # words that name nothing of a negated kind, as "cream" above
    #: Least similarity of a result to the positive part of the query: 0.3 leaves out most of what
    #: the shipped model finds for words that have nothing to do with the documents.
    min_score: float | None = None
    exhaustive: bool = False  # whether every document is scored, instead of candidates
    verdicts: bool = True  # whether each result is explained; costs time in long rankings
    offset: int = 0  # better documents to pass over, for the next page
    explain: bool = False  # whether to add the documents that composition ranks lower
    facets: bool = False  # whether to count values of the metadata among the best documents


def read_options(options: Mapping[str, Any], k: int) -> SearchOptions:
    """Return the options of a search for ``k`` results; refuse what cannot be."""
    if name := next((name for name in ("limit", "n", "top", "top_k") if name in options), ""):
        raise ConfigError(f"search has no {name!r}; the number of results is k, as in k=10")
    chosen = build(SearchOptions, options, source="search")
    check_types(chosen)
    if not isinstance(k, Integral) or isinstance(k, bool):
        raise QueryError(f"k is a whole number, not {type(k).__name__}")
    for name, least, value in (("k", 1, k), ("offset", 0, chosen.offset)):
        if value < least:
            raise QueryError(f"{name} must be at least {least}, got {value}")
    return chosen
