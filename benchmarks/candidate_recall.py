"""Recall of candidate search, measured against scoring every document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.search import Searcher


def candidate_recall(
    searcher: Searcher, queries: Sequence[str], k: int = 10, **options: Any
) -> float:
    """Return the share of the ``k`` best documents of an exhaustive search that a search finds.

    Args:
        searcher: An index.
        queries: Composed queries.
        k: How many results count.
        **options: As in ``Searcher.search``.
    """
    found = searcher.search_many(queries, k, **options)
    exhaustive = searcher.search_many(queries, k, **{**options, "exhaustive": True})
    shares = [
        len({hit.id for hit in own.hits} & {hit.id for hit in best.hits}) / len(best.hits)
        for own, best in zip(found, exhaustive, strict=True)
        if best.hits
    ]
    return float(np.mean(shares)) if shares else 1.0
