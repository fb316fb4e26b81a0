"""A component of Haystack; needs haystack-ai."""

from __future__ import annotations

from typing import Any

from boolattn.errors import ConfigError
from boolattn.files import installed_by
from boolattn.integrations import check_source, metadata_of
from boolattn.search import Searcher

with installed_by("haystack", "boolattn.integrations"):
    from haystack import Document, component, default_to_dict


@component
class HaystackRetriever:
    """Searches with AND, OR and NOT; options are those of the search."""

    def __init__(self, source: Searcher, top_k: int = 10, **options: Any) -> None:
        self.source, self.top_k, self.options = check_source(source), top_k, options

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for ``Pipeline.dumps``: the address of the index and its model."""
        address, model = self.source.store.address, self.source.settings.model
        if not address or not model:
            reason = "only a searcher over an index that names its model can be written to a file"
            remedy = "build one with Searcher.build(address, documents, 'shipped')"
            raise ConfigError(f"{reason}; {remedy}")
        values: dict[str, Any] = default_to_dict(
            self, source={"address": address, "model": model}, top_k=self.top_k, **self.options
        )
        return values

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HaystackRetriever:
        """Open the index again, for ``Pipeline.loads``."""
        values = data["init_parameters"]
        source = Searcher.open(values["source"]["address"], values["source"]["model"])
        return cls(**values | {"source": source})

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, filters: dict[str, Any] | None = None
    ) -> dict[str, list[Document]]:
        """Search one query; ``filters`` as in the search options."""
        options = self.options | ({"filters": filters} if filters else {})
        hits = self.source.search(query, self.top_k if top_k is None else top_k, **options).hits
        documents = [
            Document(id=hit.id, content=hit.text, meta=metadata_of(hit), score=hit.score)
            for hit in hits
        ]
        return {"documents": documents}
