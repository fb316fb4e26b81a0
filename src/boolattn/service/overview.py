"""What a service offers: its index, its limits, facets and example queries.

No postponed annotations here: pydantic reads them when a class is made.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

import boolattn
from boolattn.query.syntax import unparse
from boolattn.query.tree import operators_of
from boolattn.service.handlers import Handlers, Options
from boolattn.service.schemas import QUERY, FacetReply

if TYPE_CHECKING:
    from boolattn.search.overview import Example


class ExampleReply(BaseModel):
    """An example query."""

    query: str = Field(examples=[QUERY])
    operators: list[str]


class AboutReply(BaseModel):
    """What the page shows about the service."""

    version: str
    documents: int
    boolean: str = Field(description="Name of the model.")
    plain: str | None = Field(description="Name of the system compared with, if any.")
    has_words: bool
    max_k: int
    max_length: int


class ExamplesReply(BaseModel):
    """Queries to try, taken from the documents."""

    examples: list[ExampleReply]


class FacetsReply(BaseModel):
    """Fields to filter by, counted in the whole index."""

    documents: int = Field(description="In the index.")
    facets: list[FacetReply]


class OverviewHandlers:
    """Describes the service for people who do not know its documents."""

    def __init__(self, handlers: Handlers) -> None:
        self._searcher, self._settings = handlers.searcher, handlers.settings
        self._batcher = handlers.batcher
        #: What the searcher found, and what is left of it after a search.
        self._examples: tuple[object, list[ExampleReply]] = (None, [])

    async def about(self) -> AboutReply:
        """Describe the service: its index and its limits."""
        return AboutReply(
            version=boolattn.__version__,
            documents=await asyncio.to_thread(len, self._searcher),
            boolean=self._settings.label,
            plain=self._settings.plain_label if self._settings.compare else None,
            has_words=self._searcher.has_words,
            max_k=self._settings.max_k,
            max_length=self._settings.max_length,
        )

    async def facets(self) -> FacetsReply:
        """Return fields of the metadata with few values, counted once for each index version."""
        counted = await asyncio.to_thread(lambda: self._searcher.facets)
        facets = [FacetReply.model_validate(facet, from_attributes=True) for facet in counted]
        n_documents = await asyncio.to_thread(len, self._searcher)
        return FacetsReply(documents=n_documents, facets=facets)

    async def examples(self) -> ExamplesReply:
        """Return queries to try: topics of the documents joined by operators."""
        suggested = await asyncio.to_thread(lambda: self._searcher.examples)
        if self._examples[0] is not suggested:
            self._examples = suggested, await self._searched(suggested)
        return ExamplesReply(examples=self._examples[1])

    async def _searched(self, examples: Sequence["Example"]) -> list[ExampleReply]:
        """Keep examples with results; where a text is parsed otherwise, in explicit syntax."""
        answered = []
        for example in examples:
            for text in dict.fromkeys([example.text, unparse(example.tree)]):
                result = await self._batcher.submit(Options.of(1), text)
                operators = operators_of(example.tree)
                if result.hits and operators_of(result.tree) == operators:
                    names = [operator.value for operator in operators]
                    answered.append(ExampleReply(query=text, operators=names))
                    break
        return answered
