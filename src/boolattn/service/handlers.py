"""Request handlers: each checks a request, searches in the worker thread and builds the reply."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import Query, Response

import boolattn
from boolattn.data.records import Document
from boolattn.errors import BoolattnError, DataError, IndexFolderError
from boolattn.query.plan import limited
from boolattn.query.syntax import unparse
from boolattn.query.tree import operators_of
from boolattn.service import schemas
from boolattn.service.batching import Batcher
from boolattn.service.middleware import Metrics
from boolattn.service.schemas import RefusedError, one_line
from boolattn.stores.filters import parse_filters

if TYPE_CHECKING:
    from boolattn.search import Searcher, SearchResult
    from boolattn.service.settings import ServiceSettings
    from boolattn.stores.base import Array

logger = logging.getLogger(__name__)

Reply = dict[str, Any]
_NO_DOCUMENT = (404, "no_document", "the index has no document with this id")
_BATCH = 8  # documents encoded at once; a search waits for no more than these
_MORE_CANDIDATES = 200  # documents that an operand is compared with besides the results
#: Control characters, surrogates, and what stands for bytes that could not be decoded.
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffd]")


class Handlers:
    """Handlers of all API routes, and the state that they share."""

    def __init__(self, searcher: Searcher, settings: ServiceSettings) -> None:
        """Prepare; arguments as of ``create_app``."""
        self.searcher, self.settings = searcher, settings
        self.metrics = Metrics()
        self.start = time.monotonic()
        self.stopping = threading.Event()
        #: What keeps the service from its work, for the health check.
        self.problem = ""
        #: Examples that the searcher suggests, and those of them that are shown.
        self._examples: tuple[object, list[Reply]] = (None, [])
        #: Documents are changed in a thread of their own, while searches go on.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="boolattn-write")
        self._changes: set[asyncio.Task[None]] = set()
        self._next_refresh = self.start + settings.refresh
        self.batcher = Batcher(
            self._search_batch, size=settings.batch_size, wait=settings.batch_wait
        )
        self.metrics.gauges |= {
            "boolattn_documents": ("Documents in the index.", self._n_documents),
            "boolattn_queries_waiting": ("Queries waiting.", self.batcher.__len__),
        }

    async def search(self, request: schemas.SearchRequest) -> Response:
        """Search in plain language or explicit syntax."""
        start = time.perf_counter()
        result = await self._searched(request)
        self.metrics.queries.labels(way="composed" if result.is_composed else "one vector").inc()
        last = request.offset + request.k
        values = schemas.search_values(result, self.settings.snippet) | {
            "k": request.k,
            "next_offset": last if len(result.hits) == request.k and last < result.total else None,
            "label": self.settings.label,
            "took": {**result.took, "total": round(1000 * (time.perf_counter() - start), 3)},
        }
        return schemas.reply(values)

    async def search_by_address(
        self, parameters: Annotated[schemas.SearchParameters, Query()]
    ) -> Response:
        """Search by URL parameters; unknown ones are refused."""
        values = parameters.model_dump()
        query, filters = values.pop("q"), values.pop("filter")
        values |= {"query": query, "filters": parse_filters(filters) if filters else None}
        return await self.search(schemas.SearchRequest(**values))

    async def document(self, document_id: str) -> Response:
        """Return the full text and the metadata of one document."""

        def read() -> Document:
            self._refresh()
            return self.searcher.document(document_id)

        try:
            document = await self.batcher.call(read)
        except DataError as error:
            raise RefusedError(*_NO_DOCUMENT) from error
        names = ("id", "title", "text", "metadata")
        return schemas.reply({name: getattr(document, name) for name in names})

    async def health(self) -> Reply:
        """Check that the service is running."""
        await asyncio.to_thread(self._refresh)
        return {
            "status": self.problem or "ok",
            "version": boolattn.__version__,
            "documents": await asyncio.to_thread(len, self.searcher),
            "uptime_s": round(time.monotonic() - self.start, 1),
        }

    async def about(self) -> Reply:
        """Describe the service: its index and its limits."""
        return {
            "version": boolattn.__version__,
            "documents": await asyncio.to_thread(len, self.searcher),
            "model": self.settings.label,
            "has_words": self.searcher.settings.words,
            "max_k": self.settings.max_k,
            "max_length": self.settings.max_length,
        }

    async def facets(self) -> Reply:
        """Return fields of the metadata with few values, counted once for each index version."""
        facets = await asyncio.to_thread(lambda: self.searcher.facets)
        return {"documents": await asyncio.to_thread(len, self.searcher), "facets": facets}

    async def examples(self) -> Reply:
        """Return queries to try: topics of the documents joined by operators."""
        suggested = await asyncio.to_thread(lambda: self.searcher.examples)
        if self._examples[0] is not suggested:
            answered = []  # those with results; in explicit syntax where a text is parsed otherwise
            for example in suggested:
                operators = operators_of(example.tree)
                for text in dict.fromkeys([example.text, unparse(example.tree)]):
                    result = await self.batcher.submit('{"k": 1}', text)
                    if result.hits and operators_of(result.tree) == operators:
                        names = [operator.value for operator in operators]
                        answered.append({"query": text, "operators": names})
                        break
            self._examples = suggested, answered
        return {"examples": self._examples[1]}

    async def close(self) -> None:
        """Finish the change that is running, if any, and its answer, and then all queries."""
        if self._changes:
            await asyncio.wait(self._changes)
        self._pool.shutdown()
        await self.batcher.close()

    async def add(self, request: schemas.DocumentsRequest) -> Reply:
        """Add documents, all or none; with update, each replaces the one with its id."""
        documents = [Document(**entry.model_dump()) for entry in request.documents]
        add = partial(self.searcher.add, documents, replace_old=request.update, encode=self._encode)
        return await self._change(add, len(documents), RefusedError(422, "bad_document", ""))

    async def delete(self, document_id: str) -> Reply:
        """Delete a document."""
        delete = partial(self.searcher.delete, [document_id])
        return await self._change(delete, 1, RefusedError(*_NO_DOCUMENT))

    async def _change(
        self, change: Callable[[], None], n_changed: int, refused: RefusedError
    ) -> Reply:
        """Change the index; ``refused`` answers errors in the documents."""
        if task := asyncio.current_task():
            self._changes.add(task)
            task.add_done_callback(self._changes.discard)
        future = asyncio.get_running_loop().run_in_executor(self._pool, change)
        try:
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                await future  # a change is not stopped half-way
            self.problem = ""
        except DataError as error:
            message = str(refused) or str(error)
            raise RefusedError(refused.status, refused.code, message) from error
        except (IndexFolderError, OSError) as error:
            numbers = {getattr(e, "errno", None) for e in (error, error.__cause__)}
            if numbers.isdisjoint((errno.ENOSPC, errno.EDQUOT)):
                raise
            self.problem = "disk_full"
            message = "the disk is full; nothing was changed"
            raise RefusedError(507, "disk_full", message) from error
        return {"changed": n_changed, "documents": await asyncio.to_thread(len, self.searcher)}

    def _encode(self, batches: Iterable[list[str]]) -> Iterator[Array]:
        """Encode in the thread of the model, a few at a time."""
        run = self.batcher.run
        for texts in batches:
            chunks = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
            yield np.concatenate([run(partial(self._encode_chunk, chunk)) for chunk in chunks])

    def _encode_chunk(self, texts: list[str]) -> Array:
        """Encode; when the service stops, end the change, of which nothing is written then."""
        if self.stopping.is_set():
            message = "the service stops; nothing was changed"
            raise RefusedError(503, "stopping", message, headers={"Retry-After": "5"})
        return self.searcher.encoder.encode_documents(texts)

    def _n_documents(self) -> float:
        """Count documents for the metrics, which are there also where the store is not."""
        try:
            return len(self.searcher)
        except BoolattnError:
            return math.nan

    def _search_batch(
        self, options: str, queries: Sequence[str], is_over: Callable[[], bool]
    ) -> Sequence[SearchResult]:
        self._refresh()
        values = json.loads(options)
        k = values.pop("k")
        n_candidates = values.get("offset", 0) + k + _MORE_CANDIDATES
        with limited(max(1, self.settings.max_work // n_candidates), is_over):
            return self.searcher.search_many(list(queries), k, **values)

    def _refresh(self) -> None:
        """Load an index that another process changed; keep the old one if that fails."""
        if time.monotonic() < self._next_refresh:
            return
        self._next_refresh = time.monotonic() + self.settings.refresh
        try:
            if self.searcher.refresh():
                logger.info("the index changed: %d documents", len(self.searcher))
        except BoolattnError as error:
            logger.warning("a changed index cannot be read: %s", one_line(str(error)))

    async def _searched(self, request: schemas.SearchRequest) -> SearchResult:
        """Check a request, and search it together with others that arrive now."""
        operands = [*request.positive, *request.negative]
        text = "".join((request.query, *operands, *request.allow))
        limit = self.settings.max_length
        if len(text) > limit:
            message = f"a query may have {limit} characters, and this one has {len(text)}"
            raise RefusedError(400, "query_too_long", message)
        if match := _NO_TEXT.search(text):
            column = match.end()
            message = f"column {column}: U+{ord(match[0]):04X} is not a text character"
            raise RefusedError(400, "query_not_text", message, column=column)
        if not request.query.strip() and not operands:
            raise RefusedError(400, "query_empty", "the query is empty")
        if request.k > self.settings.max_k:
            message = f"k: at most {self.settings.max_k} results, got {request.k}"
            raise RefusedError(422, "k_too_large", message)
        # What the queries of a batch have in common is JSON, which keeps 1 and true apart.
        options = request.model_dump_json(exclude={"query"})
        return await self.batcher.submit(options, request.query, len(text))
