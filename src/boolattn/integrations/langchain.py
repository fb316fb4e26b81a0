"""A retriever of LangChain; needs langchain-core."""

from __future__ import annotations

from typing import Any

from boolattn.errors import ConfigError
from boolattn.integrations import installed_by, metadata_of
from boolattn.search import Searcher

with installed_by("langchain"):
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field


class LangChainRetriever(BaseRetriever):
    """Searches with AND, OR and NOT; ``ainvoke`` runs in another thread, as LangChain does it.

    Attributes:
        source: A ``Searcher``.
        k: How many documents.
        options: Of the search: ``{"filters": {"year": {"gte": 1990}}}``.
    """

    source: Any
    k: int = 10
    options: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def from_vectorstore(cls, store: Any, k: int = 10, **options: Any) -> LangChainRetriever:  # noqa: ANN401
        """Search a copy of LangChain's in-memory store, with its vectors and embeddings.

        A database is searched by its collection: ``Searcher(QdrantCollection(...), model)``.
        """
        entries = getattr(store, "store", None)
        if not isinstance(entries, dict) or not entries or store.embeddings is None:
            kind = type(store).__name__
            raise ConfigError(f"{kind} does not give its vectors; search its collection instead")
        rows = [{**e["metadata"], "id": e["id"], "text": e["text"]} for e in entries.values()]
        embed, vectors = store.embeddings.embed_query, [e["vector"] for e in entries.values()]
        searcher = Searcher.from_texts(
            rows, lambda texts: [embed(text) for text in texts], encode=vectors
        )
        return cls(source=searcher, k=k, options=options)

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        hits = self.source.search(query, self.k, **self.options).hits
        return [Document(page_content=h.text, metadata=metadata_of(h), id=h.id) for h in hits]
