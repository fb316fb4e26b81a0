"""Introductions of films with genre, cast and year."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark_data.domains.items import Item
from boolattn.jsonl import read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BOUNDS = range(1930, 2020, 10)


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read the films; a year counts where the introduction states it."""
    for _, row in read_jsonl(files[0]):
        year = row["year"]
        years = [f"after {n}" for n in _BOUNDS if year > n]
        years += [f"before {n}" for n in _BOUNDS if year < n]
        dates = {"decade": [f"the {year // 10 * 10}s"], "year": years}
        known = {"genre": [name.lower() for name in row["genres"]], "cast": row["cast"]}
        is_stated = str(year) in row["text"]
        yield Item(
            row["id"],
            row["title"],
            row["text"],
            known | (dates if is_stated else {}),
            {} if is_stated else dates,
        )
