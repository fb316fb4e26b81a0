"""The budget of a search: how many operands it may have, and whether anyone still waits for it.

A service sets it in the thread that searches; without one nothing is limited.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from boolattn.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class StoppedError(Exception):
    """Nobody waits for the result of a search any more."""


#: Most operands of a query, and whether to stop.
_BUDGET: ContextVar[tuple[int, Callable[[], bool]] | None] = ContextVar("budget", default=None)


@contextmanager
def limited(max_operands: int, is_over: Callable[[], bool]) -> Iterator[None]:
    """Limit the searches of this thread."""
    token = _BUDGET.set((max_operands, is_over))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def check_budget(n_operands: int = 0) -> None:
    """Stop a search that nobody waits for; refuse a query with too many operands."""
    if (budget := _BUDGET.get()) is None:
        return
    max_operands, is_over = budget
    if is_over():
        raise StoppedError
    if n_operands > max_operands:
        raise QueryError(
            f"the query has {n_operands} operands, and with so many results at most "
            f"{max_operands} are searched; ask for fewer of either"
        )
