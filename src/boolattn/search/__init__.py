"""Indexes on disk, engines, and the searcher over them.

May import: boolattn.composition, boolattn.encoder, boolattn.data, boolattn.logic,
boolattn.settings, boolattn.embedding.models, boolattn.errors.
"""

from boolattn.data.records import Document
from boolattn.embedding.models import load_model
from boolattn.search.answering import SearchOptions
from boolattn.search.index.settings import IndexSettings
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
