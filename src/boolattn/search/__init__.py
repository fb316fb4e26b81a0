"""The searcher: queries in, ranked and explained documents out."""

from __future__ import annotations

from boolattn.data.records import Document
from boolattn.encoders.models import load_model
from boolattn.search.options import IndexSettings, SearchOptions
from boolattn.search.result import Hit, SearchResult
from boolattn.search.searcher import Searcher

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
