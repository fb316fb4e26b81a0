"""A component of Haystack; needs haystack-ai."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from boolattn.integrations import address_of, installed_by, metadata_of, open_source

with installed_by("haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict

if TYPE_CHECKING:
    from boolattn.search import Searcher


@component
class HaystackRetriever:
    """Searches with AND, OR and NOT.

    Args:
        source: A ``Searcher``.
        top_k: How many documents.
        **options: Of the search.
    """

    def __init__(self, source: Searcher, top_k: int = 10, **options: Any) -> None:
        self.source, self.top_k, self.options = source, top_k, options

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for ``Pipeline.dumps``: the address of the index and its model."""
        values = {"source": address_of(self.source), "top_k": self.top_k, **self.options}
        described: dict[str, Any] = default_to_dict(self, **values)
        return described

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HaystackRetriever:
        """Open the index again, for ``Pipeline.loads``."""
        values = data["init_parameters"]
        retriever: HaystackRetriever = default_from_dict(
            cls, data | {"init_parameters": values | {"source": open_source(values["source"])}}
        )
        return retriever

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, filters: dict[str, Any] | None = None
    ) -> dict[str, list[Document]]:
        """Search one query; ``filters`` as in the search options."""
        options = self.options | ({"filters": filters} if filters else {})
        hits = self.source.search(query, top_k or self.top_k, **options).hits
        documents = [
            Document(id=hit.id, content=hit.text, meta=metadata_of(hit), score=hit.score)
            for hit in hits
        ]
        return {"documents": documents}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, top_k: int | None = None, filters: dict[str, Any] | None = None
    ) -> dict[str, list[Document]]:
        """Search as :meth:`run` does, in another thread."""
        return await asyncio.to_thread(self.run, query, top_k, filters)
