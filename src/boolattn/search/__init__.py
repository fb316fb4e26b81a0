"""The searcher: queries in, ranked and explained documents out.

The package can be called: ``boolattn.search(documents, query)`` searches texts at once.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Document
from boolattn.encoders.models import SHIPPED, load_model
from boolattn.search.options import IndexSettings, SearchOptions
from boolattn.search.result import Hit, SearchResult
from boolattn.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from boolattn.search.documents import DocumentLike

#: A searcher over a collection that someone else filled.
BooleanRetriever = Searcher

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


class CallableModule(ModuleType):
    """This package, which can be called."""

    def __call__(
        self,
        documents: Iterable[DocumentLike],
        query: str,
        k: int = 10,
        *,
        encoder: Any = SHIPPED,  # noqa: ANN401 - see Searcher
        **options: Any,
    ) -> SearchResult:
        """Search texts once; ``Searcher.from_texts`` encodes them once for many queries.

        >>> import boolattn
        >>> boolattn.search(["A red moth.", "A red ant."], "red but not ants")[0].text
        'A red moth.'
        """
        return Searcher.from_texts(documents, encoder).search(query, k, **options)


sys.modules[__name__].__class__ = CallableModule
