"""The desk between the API and the searchers: checks a request, has it searched, lays it out.

May import: boolattn.service, boolattn.search, boolattn.logic.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import unicodedata
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import boolattn
from boolattn.errors import BoolattnError, DataError
from boolattn.logic.syntax import is_explicit
from boolattn.service import replies
from boolattn.service.batching import Batcher
from boolattn.service.errors import RefusedError, one_line
from boolattn.service.judgements import KnownQueries
from boolattn.service.metrics import Metrics
from boolattn.service.schemas import (
    AboutReply,
    DocumentReply,
    ExampleReply,
    ExplainReply,
    ListReply,
    SearchReply,
    WordReply,
)
from boolattn.service.word_explanations import NOTHING, words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.search import Searcher, SearchResult
    from boolattn.service.schemas import SearchRequest
    from boolattn.service.settings import ServiceSettings

logger = logging.getLogger(__name__)

#: How deep the other list is searched for a result, when two are compared.
LOOKED = 100
N_EXAMPLES = 5
EXAMPLES = (
    "moths of Borneo but not Sumatra",
    "orchids of Peru or Ecuador",
    "beetles found in Brazil as well as Mexico",
    "birds AND Kenya NOT Uganda",
)
_BLANKS = "\t\n\r"


@dataclass(frozen=True)
class Options:
    """What queries of one batch have in common.

    Attributes:
        is_plain: Whether the plain encoder is asked.
        k: Number of results.
        search: Values of boolattn.search.SearchOptions as JSON, which can be hashed and keeps 1,
            1.0 and true apart.
    """

    is_plain: bool
    k: int
    search: str

    @classmethod
    def of(cls, k: int, *, is_plain: bool = False, **search: Any) -> Options:
        """Make options from plain values."""
        return cls(is_plain, k, json.dumps(search, sort_keys=True))


class Desk:
    """Everything one service holds."""

    def __init__(
        self,
        searcher: Searcher,
        plain: Searcher | None,
        settings: ServiceSettings,
        known: KnownQueries | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            searcher: The Boolean model's index.
            plain: The plain encoder's index of the same documents; ``None``: where compared, the
                same index is searched by the query's one vector.
            settings: Limits.
            known: What is known of some queries.
        """
        self.searcher, self.plain, self.settings = searcher, plain, settings
        self.known = known or KnownQueries()
        self.metrics = Metrics()
        self.start = time.monotonic()
        self._next_look = self.start + settings.refresh
        self.batcher: Batcher[Options, SearchResult] = Batcher(
            self._search, size=settings.batch_size, wait=settings.batch_wait, seen=self._seen
        )
        self.metrics.gauge("boolattn_documents", "Documents in the index.", searcher.__len__)
        self.metrics.gauge("boolattn_queries_waiting", "Queries waiting.", self.batcher.__len__)

    def _seen(self, size: int, seconds: float) -> None:
        self.metrics.batches.observe(size)
        self.metrics.search_seconds.observe(seconds)

    def _search(self, options: Options, queries: Sequence[str]) -> Sequence[SearchResult]:
        """Search in the worker's thread."""
        self._refresh()
        searcher = self.plain if options.is_plain and self.plain is not None else self.searcher
        return searcher.search_many(list(queries), options.k, **json.loads(options.search))

    def _refresh(self) -> None:
        """Take up what another process changed; an index that cannot be read stays as it was."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self.settings.refresh
        for searcher in (self.searcher, self.plain):
            try:
                if searcher is not None and searcher.refresh():
                    logger.info("the index changed: %d documents", len(searcher))
            except BoolattnError as error:
                logger.warning("a changed index cannot be read: %s", one_line(str(error)))

    def check_query(self, query: str) -> None:
        """Refuse a query that is no text, empty or too long."""
        if len(query) > self.settings.max_length:
            limit = self.settings.max_length
            message = f"a query may have {limit} characters, and this one has {len(query)}"
            raise RefusedError(400, "query_too_long", message)
        if not query.strip():
            raise RefusedError(400, "query_empty", "the query is empty; write what you look for")
        for column, character in enumerate(query, start=1):
            if not _is_text(character):
                message = f"column {column}: U+{ord(character):04X} is no text"
                raise RefusedError(400, "query_not_text", message, column=column)

    def check_k(self, k: int) -> None:
        """Refuse to return more than is allowed."""
        if k > self.settings.max_k:
            message = f"k: at most {self.settings.max_k} results can be had, and {k} were asked for"
            raise RefusedError(422, "k_too_large", message)

    def check_filters(self, request: SearchRequest) -> None:
        """Refuse halves of characters, which no index can hold."""
        try:
            json.dumps(request.filters, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            message = "filters: a value holds half a character, which is no text"
            raise RefusedError(422, "bad_field", message) from error

    async def search(self, request: SearchRequest) -> SearchReply:
        """Search one query, beside others that arrive with it."""
        start = time.perf_counter()
        self.check_query(request.query)
        self.check_k(request.k)
        self.check_filters(request)
        if request.compare and not self.settings.compare:
            raise RefusedError(
                422, "no_compare", "compare: this service compares with no plain encoder"
            )
        found, beside = await self._ask(request)
        self.metrics.queries.add(way="composed" if found.is_composed else "one vector")
        took = {name: round(value, 3) for name, value in found.took.items()}
        took["total"] = round(1000 * (time.perf_counter() - start), 3)
        return self._reply(request, found, beside, took)

    async def _ask(self, request: SearchRequest) -> tuple[SearchResult, SearchResult | None]:
        """Have a query searched, and beside it by the plain encoder where that is wanted."""
        kept = {"mode", "filters", "hybrid", "compose", "strict_not", "explain"}
        values = request.model_dump(include=kept)
        if not request.compare:
            return await self.batcher.submit(Options.of(request.k, **values), request.query), None
        k = max(request.k, LOOKED)
        # Explained, so that what the plain list has and the other has not is spoken of too.
        values["explain"] = True
        plain = values | {"compose": False, "strict_not": False, "explain": False}
        return await asyncio.gather(
            self.batcher.submit(Options.of(k, **values), request.query),
            self.batcher.submit(Options.of(k, is_plain=True, **plain), request.query),
        )

    def _reply(
        self,
        request: SearchRequest,
        found: SearchResult,
        beside: SearchResult | None,
        took: dict[str, float],
    ) -> SearchReply:
        known, snippet = self.known.find(request.query), self.settings.snippet
        shown = replies.hits(found.hits, request.k, snippet, known=known, other=beside)
        plain = None
        if beside is not None:
            others = replies.hits(beside.hits, request.k, snippet, known=known, other=found)
            plain = ListReply(
                system="plain",
                label=self.settings.plain_label,
                hits=others,
                judged=replies.judged(others, known),
            )
        return SearchReply(
            **replies.reading(found),
            k=request.k,
            label=self.settings.label,
            hits=shown,
            put_down=(
                []
                if request.compare
                else replies.hits(found.ranked_lower, request.k, snippet, known=known)
            ),
            judged=replies.judged(shown, known),
            plain=plain,
            took=took,
        )

    async def explain(self, query: str, mode: str) -> ExplainReply:
        """Say how a query is read, and what the attention does with its words."""
        self.check_query(query)
        found = await self.batcher.submit(Options.of(1, mode=mode), query)
        words = NOTHING
        # Explicit syntax is parsed: no encoder reads it as a sentence.
        if mode == "plain" or (mode == "auto" and not is_explicit(query)):
            towers = self.searcher.retriever.towers
            words = await self.batcher.call(lambda: words_of(towers, query))
        return ExplainReply(
            **replies.reading(found),
            gate=words.gate,
            words=[WordReply(**asdict(word)) for word in words.words],
        )

    async def document(self, name: str) -> DocumentReply:
        """Return one document, whole."""
        try:
            found = await self.batcher.call(lambda: self.searcher.document(name))
        except DataError as error:
            message = "the index has no document of this id"
            raise RefusedError(404, "no_document", message) from error
        return DocumentReply(
            id=found.id, title=found.title, text=found.text, metadata=dict(found.metadata)
        )

    def about(self) -> AboutReply:
        """Tell the page what it can offer."""
        known = self.known.examples(N_EXAMPLES)
        # One of them in explicit syntax too, so that a reader sees that there is one.
        explicit = [replace(item, query=item.explicit) for item in known if item.explicit]
        examples = [
            ExampleReply(query=item.query, operators=list(item.operators), is_judged=True)
            for item in (*known, *explicit[:1])
        ] or [ExampleReply(query=text, operators=[], is_judged=False) for text in EXAMPLES]
        return AboutReply(
            version=boolattn.__version__,
            documents=len(self.searcher),
            boolean=self.settings.label,
            plain=self.settings.plain_label if self.settings.compare else None,
            has_lexical=self.searcher.has_lexical,
            max_k=self.settings.max_k,
            max_length=self.settings.max_length,
            examples=examples,
        )


def _is_text(character: str) -> bool:
    """Tell text from control characters, halves of characters, and bytes that were none."""
    if character in _BLANKS:
        return True
    return character != "\ufffd" and unicodedata.category(character) not in ("Cc", "Cs")
