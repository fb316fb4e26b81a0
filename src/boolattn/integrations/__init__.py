"""Retrievers of LangChain, LlamaIndex and Haystack, over a store or an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boolattn.search import Hit, Searcher

    Searching = Searcher


def metadata_of(hit: Hit) -> dict[str, Any]:
    """Return a row's own values, and how it was judged under names of ours."""
    own = {"boolattn_score": hit.score, "boolattn_verdict": hit.verdict, "boolattn_why": hit.why}
    title = {"title": hit.title} if hit.title else {}
    return {**title, **hit.metadata, **own}
