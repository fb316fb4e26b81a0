"""Data that many tests share, made when the first of them runs, not when tests are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any


class Lazy(Sequence[Any]):
    """A list that is made at its first use."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make = make

    @cached_property
    def _items(self) -> list[Any]:
        return list(self._make())

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        return self._items[place]
