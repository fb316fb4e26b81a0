"""A ranker that searches an index, with the options that users have."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from boolattn.evaluation.ranking import Ranking
from boolattn.files import scratch_folder
from boolattn.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.data.records import Document
    from boolattn.encoders.base import BaseRetriever
    from boolattn.search.index.writer import Encode
    from boolattn.search.model_rankers import Progress

_QUERIES = 64
_DENSE = {"hybrid": False, "strict_not": False}
#: Ways to search, and their options.
WAYS: Mapping[str, Mapping[str, bool]] = {
    "one vector": _DENSE | {"compose": False},
    "composed": _DENSE,
    "hybrid": _DENSE | {"hybrid": True},
    "strict NOT": _DENSE | {"strict_not": True},
    "hybrid, strict NOT": {"hybrid": True, "strict_not": True},
}


class IndexRanker:
    """Indexes documents once, and ranks them with several search options.

    ``encode`` replaces the model's encoding of documents; ``lexical`` is needed for hybrid search.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        documents: Sequence[Document],
        *,
        encode: Encode | None = None,
        lexical: bool = True,
        progress: Progress | None = None,
    ) -> None:
        stack = ExitStack()
        folder = stack.enter_context(scratch_folder())
        weakref.finalize(self, stack.close)
        self._rows = {document.id: row for row, document in enumerate(documents)}
        name = f"{folder}/index"
        counted = 0

        def count(n: int) -> None:
            nonlocal counted
            counted += n
            if progress:
                progress("documents", counted, len(documents))

        # One vector a document, as models are trained and as ``encode`` may have made them.
        self.searcher = Searcher.build(
            name,
            documents,
            retriever,
            encode=encode,
            progress=count,
            lexical=lexical,
            passages=0,
        )

    def rank(self, texts: Sequence[str], depth: int, **options: Any) -> Ranking:
        """Rank every document; ``options`` are those of a search."""
        options |= {"exhaustive": True, "verdicts": False}
        found = []
        for start in range(0, len(texts), _QUERIES):
            part = list(texts[start : start + _QUERIES])
            for result in self.searcher.search_many(part, depth, **options):
                found.append([self._rows[hit.id] for hit in result.hits])
        return Ranking.of(found, depth)
