"""The searcher: queries in, ranked and explained documents out."""

from __future__ import annotations

from boolattn.data.records import Document
from boolattn.encoders.models import load_model
from boolattn.search.inputs import IndexSettings, SearchOptions
from boolattn.search.result import Hit, SearchResult
from boolattn.search.searcher import Searcher

__all__ = [
    "Document",
    "Hit",
    "IndexSettings",
    "SearchOptions",
    "SearchResult",
    "Searcher",
    "load_model",
]
