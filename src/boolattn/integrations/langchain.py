"""A retriever of LangChain; needs langchain-core."""

from __future__ import annotations

from typing import Annotated, Any

from boolattn.files import installed_by
from boolattn.integrations import check_source, metadata_of

with installed_by("langchain", "boolattn.integrations"):
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import BeforeValidator, Field


class LangChainRetriever(BaseRetriever):
    """Searches with AND, OR and NOT; ``ainvoke`` runs in another thread, as LangChain does it.

    Attributes:
        source: A ``Searcher``.
        k: How many documents.
        options: Of the search: ``{"filters": {"year": {"gte": 1990}}}``.
    """

    source: Annotated[Any, BeforeValidator(check_source)]
    k: int = 10
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        hits = self.source.search(query, self.k, **self.options).hits
        return [Document(page_content=h.text, metadata=metadata_of(h), id=h.id) for h in hits]
