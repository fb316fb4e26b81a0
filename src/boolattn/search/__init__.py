"""Indexes on disk, engines, and the searcher over them."""

from boolattn.data.records import Document
from boolattn.embedding.models import load_model
from boolattn.search.index.writer import IndexSettings
from boolattn.search.pipeline import SearchOptions
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
