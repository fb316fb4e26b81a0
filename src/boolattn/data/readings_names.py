"""Real names with a cue word inside ("Not of This Earth"), in queries that are one operand.

A test set: no name of it stands in a table that training queries are made from, and one, "Argyll
& Bute", in a natural query.
May import: boolattn.logic.parsed_query.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery

_N_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Name:
    """One name of the test set.

    Attributes:
        kind: "film", "book", "place", "group", "species", "song", "tv" or "law".
        text: The name as it is written.
        query: A query that holds it, in any capitals.
    """

    kind: str
    text: str
    query: str


@lru_cache(maxsize=1)
def names() -> tuple[Name, ...]:
    """Return the names, in the order of the table."""
    source = files("boolattn.data").joinpath("names.txt").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in source.splitlines() if line and line[0] != "#"]
    return tuple(Name(*row[:_N_FIELDS]) for row in rows)


def name_queries() -> list[LabelledQuery]:
    """Return the queries, each read as one operand.

    >>> all(marked.parsed.is_plain for marked in name_queries())
    True
    """
    return [
        LabelledQuery(name.query, ParsedQuery((((0, len(name.query.rstrip("?!"))),),)))
        for name in names()
    ]
