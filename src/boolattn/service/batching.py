"""Gathers queries that arrive together and searches them in one call, in a thread of its own.

One thread only: fast tokenizers refuse to be used by two at once, and torch spreads one batch
over the cores by itself. May import: nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

logger = logging.getLogger(__name__)

O = TypeVar("O", bound="Hashable")  # noqa: E741 - options
R = TypeVar("R")
T = TypeVar("T")


@dataclass(eq=False)
class _Item(Generic[O, R]):
    """One query that waits for its answer."""

    options: O
    query: str
    answer: asyncio.Future[R]


class Batcher(Generic[O, R]):
    """A queue before a function that is cheaper for many queries at once.

    A query given up while it waits is never searched. One whose batch fails is tried alone, so
    that it cannot take its neighbours down.
    """

    def __init__(
        self,
        search: Callable[[O, Sequence[str]], Sequence[R]],
        *,
        size: int,
        wait: float,
        seen: Callable[[int, float], None] = lambda _size, _seconds: None,
    ) -> None:
        """Prepare the queue; :meth:`start` lets it run.

        Args:
            search: Answers some queries that share their options, in order.
            size: Most queries of one call.
            wait: Seconds that the first query waits for others.
            seen: Told the size and the seconds of every call.
        """
        self._search, self._size, self._wait, self._seen = search, size, wait, seen
        self._waiting: deque[_Item[O, R]] = deque()
        self._arrived = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="boolattn-search")
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        """Begin to answer; called from the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._answer())

    async def submit(self, options: O, query: str) -> R:
        """Search one query together with what arrives beside it."""
        if self._is_closing:
            raise RuntimeError("the batcher is closed")
        if self._task is None or self._task.done():
            raise RuntimeError("the batcher does not run, so nobody would answer")
        item: _Item[O, R] = _Item(options, query, asyncio.get_running_loop().create_future())
        self._waiting.append(item)
        self._arrived.set()
        return await item.answer

    async def call(self, function: Callable[[], T]) -> T:
        """Run something that uses the model in the batcher's thread."""
        found = await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: _held(function)
        )
        if isinstance(found, _Failure):
            raise found.error
        return found

    async def close(self) -> None:
        """Answer what still waits, then stop."""
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
            if 0 < len(self._waiting) < self._size and self._wait and not self._is_closing:
                await asyncio.sleep(self._wait)
            for options, items in self._take().items():
                try:
                    await self._run(options, items)
                except Exception as error:
                    # Whatever it was: who waits is told, and the next queries are answered.
                    logger.exception("a batch of %d queries failed", len(items))
                    for item in items:
                        _refuse(item, error)
            if not self._waiting:
                if self._is_closing:
                    return
                self._arrived.clear()

    def _take(self) -> dict[O, list[_Item[O, R]]]:
        """Take the oldest queries that somebody still waits for, sorted by their options."""
        groups: dict[O, list[_Item[O, R]]] = {}
        n_taken = 0
        while self._waiting and n_taken < self._size:
            item = self._waiting.popleft()
            if not item.answer.done():
                groups.setdefault(item.options, []).append(item)
                n_taken += 1
        return groups

    async def _run(self, options: O, items: Sequence[_Item[O, R]]) -> None:
        start = time.perf_counter()
        # Another group may have been answered first, and somebody given up since.
        items = [item for item in items if not item.answer.done()]
        if not items:
            return
        queries = [item.query for item in items]
        try:
            answers = await self.call(lambda: self._search(options, queries))
            if len(answers) != len(items):
                raise RuntimeError(f"{len(answers)} answers to {len(items)} queries")
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            await self._failed(options, items, error)
        else:
            for item, answer in zip(items, answers, strict=True):
                with suppress(asyncio.InvalidStateError):  # given up meanwhile
                    item.answer.set_result(answer)
        self._seen(len(items), time.perf_counter() - start)

    async def _failed(self, options: O, items: Sequence[_Item[O, R]], error: Exception) -> None:
        if len(items) > 1:
            for item in items:
                if not item.answer.done():
                    await self._run(options, [item])
            return
        _refuse(items[0], error)


@dataclass(frozen=True)
class _Failure:
    """What a function raised."""

    error: Exception


def _held(function: Callable[[], T]) -> T | _Failure:
    """Call a function, and hold what it raises.

    An event loop cannot take everything from a thread: StopIteration leaves its future open for
    ever, and a thread's CancelledError looks as if the caller had been cancelled.
    """
    try:
        return function()
    except (StopIteration, CancelledError, asyncio.CancelledError, SystemExit) as error:
        failure = RuntimeError(f"the search ended by {type(error).__name__}")
        failure.__cause__ = error
        return _Failure(failure)
    except Exception as error:  # noqa: BLE001 - raised again where it is waited for
        return _Failure(error)


def _refuse(item: _Item[O, R], error: Exception) -> None:
    with suppress(asyncio.InvalidStateError):  # answered, or given up meanwhile
        item.answer.set_exception(error)
