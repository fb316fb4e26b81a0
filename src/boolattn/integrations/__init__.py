"""Retrievers of LangChain, LlamaIndex and Haystack, over a store or an index."""

from __future__ import annotations

from typing import Any

from boolattn.errors import ConfigError
from boolattn.search import Hit, Searcher


def check_source(source: Any) -> Searcher:  # noqa: ANN401 - what a user gave
    """Return a searcher; refuse anything else before the first query."""
    if not isinstance(source, Searcher):
        raise ConfigError(f"source must be a Searcher, got {source!r:.80}")
    return source


def metadata_of(hit: Hit) -> dict[str, Any]:
    """Return a row's own values, and how it was judged under names of ours."""
    scores = {"boolattn_score": hit.score, "boolattn_verdict": hit.verdict, "boolattn_why": hit.why}
    title = {"title": hit.title} if hit.title else {}
    return {**title, **hit.metadata, **scores}
