"""A retriever of LlamaIndex; needs llama-index-core."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from boolattn.files import installed_by
from boolattn.integrations import check_source, metadata_of

with installed_by("llama-index", "boolattn.integrations"):
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

if TYPE_CHECKING:
    from llama_index.core.callbacks import CallbackManager

    from boolattn.search import Searcher


class LlamaIndexRetriever(BaseRetriever):
    """Searches with AND, OR and NOT; options are those of the search."""

    def __init__(
        self,
        source: Searcher,
        k: int = 10,
        callback_manager: CallbackManager | None = None,
        **options: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self._source, self._k, self._options = check_source(source), k, options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._source.search(query_bundle.query_str, self._k, **self._options).hits
        return [
            NodeWithScore(
                node=TextNode(id_=hit.id, text=hit.text, metadata=metadata_of(hit)), score=hit.score
            )
            for hit in hits
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
