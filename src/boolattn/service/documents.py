"""Handlers that change the index: in a thread of their own, while searches go on."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from boolattn.data.records import Document
from boolattn.errors import DataError, IndexFolderError
from boolattn.service import schemas
from boolattn.service.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from boolattn.service.handlers import Handlers
    from boolattn.stores.base import Array

#: Documents encoded at once; a search waits for no more than these.
_BATCH = 8


class DocumentHandlers:
    """Adds and deletes documents, one change after the other."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers, self._searcher = handlers, handlers.searcher
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="boolattn-write")
        self._requests: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Finish the change that is running, if any, and its answer."""
        if self._requests:
            await asyncio.wait(self._requests)
        self._pool.shutdown()

    async def add(self, request: schemas.DocumentsRequest) -> schemas.ChangeReply:
        """Add documents, all or none; with update, each replaces the one with its id."""
        documents = [Document(**entry.model_dump()) for entry in request.documents]
        await self._change(
            lambda: self._searcher.add(documents, replace_old=request.update, encode=self._encode),
            RefusedError(422, "bad_document", ""),
        )
        return await self._reply(len(documents))

    async def delete(self, document_id: str) -> schemas.ChangeReply:
        """Delete a document."""
        missing = RefusedError(404, "no_document", "the index has no document with this id")
        await self._change(lambda: self._searcher.delete([document_id]), missing)
        return await self._reply(1)

    async def _reply(self, n_changed: int) -> schemas.ChangeReply:
        n_documents = await asyncio.to_thread(len, self._searcher)
        return schemas.ChangeReply(changed=n_changed, documents=n_documents)

    async def _change(self, change: Callable[[], None], refused: RefusedError) -> None:
        """Change the index; ``refused`` answers errors in the documents."""
        if task := asyncio.current_task():
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
        try:
            await _finished(asyncio.get_running_loop().run_in_executor(self._pool, change))
            self._handlers.problem = ""
        except DataError as error:
            message = str(refused) or str(error)
            raise RefusedError(refused.status, refused.code, message) from error
        except (IndexFolderError, OSError) as error:
            if not _is_disk_full(error):
                raise
            self._handlers.problem = "disk_full"
            message = "the disk is full; nothing was changed"
            raise RefusedError(507, "disk_full", message) from error

    def _encode(self, batches: Iterable[list[str]]) -> Iterator[Array]:
        """Encode in the thread of the model, a few at a time."""
        run = self._handlers.batcher.run
        for texts in batches:
            chunks = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
            yield np.concatenate([run(partial(self._encode_chunk, chunk)) for chunk in chunks])

    def _encode_chunk(self, texts: list[str]) -> Array:
        """Encode; when the service stops, end the change, of which nothing is written then."""
        if self._handlers.stopping.is_set():
            headers = {"Retry-After": "5"}
            raise RefusedError(
                503, "stopping", "the service stops; nothing was changed", headers=headers
            )
        return self._searcher.encoder.encode_documents(texts)


async def _finished(change: asyncio.Future[None]) -> None:
    """Wait for a change, which goes on where the wait for it is cancelled."""
    try:
        await asyncio.shield(change)
    except asyncio.CancelledError:
        await change


def _is_disk_full(error: BaseException | None) -> bool:
    """Tell whether the cause of an error is a full disk."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False
