"""Indexes on disk, engines, stores, and the searcher over them.

The package can be called: ``boolattn.search(documents, query)`` searches texts at once.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Document
from boolattn.encoders.models import SHIPPED, load_model
from boolattn.search.boolean_retriever import BooleanRetriever
from boolattn.search.index.writer import IndexSettings
from boolattn.search.pipeline import SearchOptions
from boolattn.search.result import Hit, SearchResult
from boolattn.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "BooleanRetriever",
    "Document",
    "Hit",
    "IndexSettings",
    "SearchOptions",
    "SearchResult",
    "Searcher",
    "load_model",
]


class _Search(ModuleType):
    """This package, which can be called."""

    def __call__(
        self,
        documents: Iterable[str | Mapping[str, Any] | Document],
        query: str,
        k: int = 10,
        *,
        model: Any = SHIPPED,  # noqa: ANN401 - see Searcher.from_texts
        **options: Any,
    ) -> SearchResult:
        """Search texts once; ``Searcher.from_texts`` encodes them once for many queries."""
        return Searcher.from_texts(documents, model).search(query, k, **options)


sys.modules[__name__].__class__ = _Search
