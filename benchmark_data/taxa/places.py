"""Places, and those where a taxon occurs according to its introduction.

A mention is not an occurrence: a moth can be named after Cuba, introduced to Hawaii or absent from
Ireland. A mention counts when a preposition of place precedes it in its clause and no word there
denies or dates the occurrence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from boolattn.files import package_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place of the table."""

    name: str  # as documents and queries spell it
    adjective: str = ""  # "Peruvian", or empty
    the: bool = False  # whether the name takes an article
    aliases: tuple[str, ...] = ()  # further spellings in documents
    within: tuple[str, ...] = ()  # larger places that contain all or part of it

    @property
    def noun(self) -> str:
        """The name after a preposition."""
        return f"the {self.name}" if self.the else self.name

    @property
    def possessive(self) -> str:
        """The name in the possessive."""
        return f"{self.noun}'" if self.noun.endswith("s") else f"{self.noun}'s"


_TABLE = ("benchmark_data.taxa", "places.toml")
_PATTERNS = {name: re.compile(text) for name, text in package_table(*_TABLE)["patterns"].items()}
_DENIALS = frozenset(" ".join(package_table(*_TABLE)["denials"].values()).split())
_BEFORE_STRONG = 24
_ASIDE = re.compile(r"\(([^()]*)\)?")
_WORD = re.compile(r"[a-z]+")


@lru_cache(maxsize=1)
def places() -> Mapping[str, Place]:
    """Return the places by name, sorted."""
    table = {}
    for name, row in sorted(package_table(*_TABLE)["place"].items()):
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        table[name] = Place(name=name, **values)
    return table


def are_apart(left: str, right: str) -> bool:
    """Say whether two places are disjoint according to the table.

    >>> are_apart("Borneo", "Sumatra"), are_apart("Borneo", "Indonesia")
    (True, False)
    """
    table = places()
    return right not in {left, *table[left].within} and left not in {right, *table[right].within}


def places_of(text: str) -> tuple[str, ...]:
    """Return the places where a taxon occurs according to its introduction, sorted.

    >>> places_of("A moth named after Cuba. It is found in Peru, New Mexico and southern Ecuador.")
    ('Ecuador', 'Peru')
    """
    pattern, owner = _names()
    names: set[str] = set()
    if not pattern.search(text):
        return ()
    for sentence in _PATTERNS["sentence"].split(text):
        if not pattern.search(sentence):
            continue
        for clause in _PATTERNS["clause"].split(sentence):
            names.update(_occurrences(clause, pattern, owner))
    return tuple(sorted(names))


def _occurrences(clause: str, pattern: re.Pattern[str], owner: Mapping[str, str]) -> set[str]:
    """Return the places of a clause, outside and inside its parentheses."""
    # Parentheses are parsed after what precedes them, and ignored for what follows them:
    # "found in Europe (except Portugal), Turkey and Iran".
    versions = [(_ASIDE.sub(lambda aside: " " * len(aside.group()), clause), 0)]
    for aside in _ASIDE.finditer(clause):
        lead = _ASIDE.sub(" ", clause[: aside.start()])
        versions.append((f"{lead} {aside.group(1)}", len(lead)))
    names = set()
    for version, start in versions:
        for mention in pattern.finditer(version, start):
            name = owner.get(mention.group())
            if name and _is_occurrence(version, mention.start(), mention.end()):
                names.add(name)
    return names


def _is_occurrence(clause: str, start: int, end: int) -> bool:
    """Say whether the words around a mention state an occurrence."""
    before = clause[:start].lower()
    statements = [match.start() for match in _PATTERNS["strong"].finditer(before)]
    if statements:
        before = before[max(0, statements[-1] - _BEFORE_STRONG) :]
    elif not _PATTERNS["located"].search(before):
        return False
    return (
        _DENIALS.isdisjoint(_WORD.findall(before))
        and not _PATTERNS["denied_phrase"].search(before)
        and not _PATTERNS["other_sense"].match(clause, end)
    )


@lru_cache(maxsize=1)
def _names() -> tuple[re.Pattern[str], Mapping[str, str]]:
    """Return one pattern of all names and decoys, longest first, and the place of each name."""
    owner = {alias: place.name for place in places().values() for alias in place.aliases}
    owner |= {name: name for name in places()}
    every = sorted({*owner, *package_table(*_TABLE)["decoys"]}, key=lambda name: (-len(name), name))
    # Branching on the first letter makes it fast.
    initials = sorted({name[0] for name in every})
    branches = "|".join(
        f"{initial}(?:{'|'.join(re.escape(n[1:]) for n in every if n[0] == initial)})"
        for initial in initials
    )
    return re.compile(rf"(?<![\w-])(?:{branches})(?![\w-])"), owner
