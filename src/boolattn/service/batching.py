"""Batches queries that arrive together into one search call, in one worker thread.

One thread, because torch uses all cores for one batch, and onnxruntime has threads of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from boolattn.search import SearchResult

#: Searches queries with the same options; the last argument tells whether nobody waits.
Search = Callable[[str, Sequence[str], Callable[[], bool]], Sequence[SearchResult]]

T = TypeVar("T")

#: Who asks: queries of several clients take turns.
CLIENT: ContextVar[str] = ContextVar("client", default="")
#: Most characters of the queries of a batch: what takes long to search is not searched together.
_MAX_CHARACTERS = 1200


@dataclass(eq=False)
class _Item:
    options: str
    query: str
    n_characters: int
    answer: asyncio.Future[SearchResult]


class Batcher:
    """A queue in front of a search function that is cheaper for many queries at once.

    A query cancelled in the queue is never searched, and a search stops when all its queries are.
    The queries of a batch that fails are searched one by one, so that one bad query does not affect
    the others. Clients take turns, and short queries come before long ones.
    """

    def __init__(self, search: Search, *, size: int, wait: float) -> None:
        """Prepare the queue; :meth:`start` runs it.

        The first of at most ``size`` queries waits ``wait`` seconds for others.
        """
        self._search, self._size, self._wait = search, size, wait
        self._waiting: dict[str, deque[_Item]] = {}  # by client, the next to serve first
        self._arrived = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="boolattn-search")
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def start(self) -> None:
        """Start answering; called from the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._answer())

    async def submit(self, options: str, query: str, n_characters: int = 0) -> SearchResult:
        """Search one query together with others that arrive now.

        ``n_characters`` is its length with that of options that take as long; 0: its own.
        """
        if self._is_closing or self._task is None or self._task.done():
            raise RuntimeError("the batcher does not run")
        answer: asyncio.Future[SearchResult] = asyncio.get_running_loop().create_future()
        item = _Item(options, query, n_characters or len(query), answer)
        self._waiting.setdefault(CLIENT.get(), deque()).append(item)
        self._arrived.set()
        return await item.answer

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function that uses the model in the worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, _safe, function)

    def run(self, function: Callable[[], T]) -> T:
        """Do as :meth:`call`, from another thread than the event loop's."""
        return self._pool.submit(_safe, function).result()

    async def close(self) -> None:
        """Answer the queries in the queue, then stop."""
        self._is_closing = True
        self._arrived.set()
        try:
            if self._task is not None:
                await self._task
        finally:
            self._pool.shutdown()

    async def _answer(self) -> None:
        while True:
            await self._arrived.wait()
            if 0 < len(self) < self._size and self._wait and not self._is_closing:
                await asyncio.sleep(self._wait)
            groups = self._take().items()
            for options, items in sorted(groups, key=lambda g: max(i.n_characters for i in g[1])):
                await self._run(options, items)
            if not self._waiting:
                if self._is_closing:
                    return
                self._arrived.clear()

    def _take(self) -> dict[str, list[_Item]]:
        """Take queries that are not cancelled, by their options: of each client the oldest."""
        groups: dict[str, list[_Item]] = {}
        n_taken = n_characters = 0
        while self._waiting and n_taken < self._size:
            client, items = next(iter(self._waiting.items()))
            n_characters += items[0].n_characters
            if n_taken and n_characters > _MAX_CHARACTERS:
                break
            item = items.popleft()
            del self._waiting[client]
            if items:
                self._waiting[client] = items  # the last to be served again
            if not item.answer.done():
                groups.setdefault(item.options, []).append(item)
                n_taken += 1
        return groups

    async def _run(self, options: str, items: Sequence[_Item]) -> None:
        # Some may have been cancelled while another group was searched.
        items = [item for item in items if not item.answer.done()]
        queries, waiting = [item.query for item in items], [item.answer for item in items]
        if not items:
            return
        try:
            answers = await self.call(
                lambda: self._search(options, queries, lambda: all(a.done() for a in waiting))
            )
            pairs = list(zip(waiting, answers, strict=True))
        except Exception as error:  # noqa: BLE001 - raised by submit
            if len(items) > 1:
                for item in items:
                    await self._run(options, [item])
            elif not waiting[0].done():
                waiting[0].set_exception(error)
        else:
            for future, answer in pairs:
                if not future.done():  # cancelled meanwhile
                    future.set_result(answer)


def _safe(function: Callable[[], T]) -> T:
    """Call a function; convert exceptions that an event loop cannot take from a thread.

    StopIteration would leave the future open for ever; CancelledError would seem the caller's.
    """
    try:
        return function()
    except (StopIteration, CancelledError, asyncio.CancelledError, SystemExit) as error:
        raise RuntimeError(f"the search ended with {type(error).__name__}") from error
