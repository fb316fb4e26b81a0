"""Contents of generated queries: the words of each domain, and taxa by place.

A content fills the slots of one query; wordings.toml explains the slot letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from benchmark_data.taxa.places import places
from benchmark_data.taxa.sets import common_names
from benchmark_data.taxa.wordings import links
from experiments.parser_queries.wordings import table

if TYPE_CHECKING:
    import random

#: Most operands of one query; slots without a number take the index after them.
MAX_OPERANDS = 6
#: Attempts at a phrase that repeats no other.
_MAX_DRAWS = 6
_ARTICLE = re.compile(r"^(?:an?|the) ")
_PLANTS = ("aceae", "ales", "opsida")


@dataclass(frozen=True, slots=True)
class Content:
    """Lists of words, by slot letter; "N", "P", "B" and "X" are derived from the others."""

    lists: Mapping[str, tuple[str, ...]]
    prepositions: tuple[tuple[str, tuple[str, ...]], ...]  # each with its objects
    names: tuple[str, ...]  # phrases that contain a name with a cue word
    pronoun: str = "that"  # or "who"

    @property
    def slots(self) -> frozenset[str]:
        """The slot letters that it can fill."""
        return _letters(tuple(self.lists))

    def draw(self, wanted: Iterable[str], rng: random.Random, names: float) -> dict[str, str]:
        """Draw words for slots such as "H", "M0", "M1" and "V".

        Args:
            wanted: Names of slots, sorted.
            rng: Source of every choice.
            names: Probability that one phrase contains a name with a cue word.
        """
        head, tie = rng.choice(self.lists["H"]), rng.choice(self.prepositions)
        slots: dict[str, str] = {}
        drawn: dict[str, list[str]] = {}
        for slot in wanted:
            letter, index = slot[0], int(slot[1:] or MAX_OPERANDS)
            if letter == "H":
                slots[slot] = self._head(head, slots, rng)
            elif letter == "T":
                slots[slot] = tie[0]
            elif letter in "NP":
                slots[slot] = self._phrase(letter, head, slots, rng)
            else:
                source = "F" if letter == "B" else letter
                if source not in drawn:
                    pool = tie[1] if source == "X" else self.lists[source]
                    drawn[source] = rng.sample(pool, min(MAX_OPERANDS + 1, len(pool)))
                words = drawn[source][index]
                slots[slot] = _ARTICLE.sub("", words) if letter == "B" else words
        if self.names and rng.random() < names:
            phrases = [slot for slot in slots if slot[0] == "M"]
            if phrases:
                slots[rng.choice(phrases)] = rng.choice(self.names)
        return slots

    def _head(self, head: str, slots: Mapping[str, str], rng: random.Random) -> str:
        adjective = rng.choice(self.lists["A"])
        has_adjective = rng.random() < 0.25 and adjective not in slots.values()
        return f"{adjective} {head}" if has_adjective else head

    def _phrase(self, letter: str, head: str, slots: Mapping[str, str], rng: random.Random) -> str:
        """Draw a phrase that repeats nothing of the query so far."""
        make = self._noun_phrase if letter == "N" else self._modifier
        used = [words for slot, words in slots.items() if slot[0] not in "HT"]
        for _ in range(_MAX_DRAWS):
            phrase = make(head, rng)
            if not any(words in phrase or phrase in words for words in used):
                return phrase
        return phrase

    def _modifier(self, head: str, rng: random.Random) -> str:
        """Draw what follows a head: "by Ozu", "with an SSD", "that run Linux"."""
        del head
        kind = rng.choice(sorted({"M", "F", "V", "X"} & self.slots))
        if kind == "X":
            tie = rng.choice(self.prepositions)
            return f"{tie[0]} {rng.choice(tie[1])}"
        words = rng.choice(self.lists[kind])
        return {"M": words, "F": f"with {words}", "V": f"{self.pronoun} {words}"}[kind]

    def _noun_phrase(self, head: str, rng: random.Random) -> str:
        """Draw a full operand, with the head of the query or another."""
        draw = rng.random()
        if draw > 0.5:
            head = rng.choice(self.lists["H" if draw > 0.75 else "K"])
        kind = rng.choice(sorted({"A", "M", "F", "V", "X", "K"} & self.slots))
        if kind == "X":
            tie = rng.choice(self.prepositions)
            return f"{head} {tie[0]} {rng.choice(tie[1])}"
        words = rng.choice(self.lists[kind])
        return {
            "A": f"{words} {head}",
            "M": f"{head} {words}",
            "F": f"{head} with {words}",
            "V": f"{head} {self.pronoun} {words}",
            "K": words,
        }[kind]


@lru_cache(maxsize=16)
def _letters(letters: tuple[str, ...]) -> frozenset[str]:
    return frozenset({*letters, "N", "P", "T", "X"} | ({"B"} if "F" in letters else set()))


@lru_cache(maxsize=1)
def contents() -> tuple[Content, ...]:
    """Return the contents of all domains, sorted by name."""
    keys = {"H": "heads", "K": "kinds", "A": "adjectives", "M": "phrases"}
    keys |= {"F": "features", "V": "verbs"}
    rows = table("contents")["domain"]
    return tuple(
        Content(
            lists={letter: tuple(row[key]) for letter, key in keys.items() if key in row},
            prepositions=tuple((tie, tuple(words)) for tie, words in row["prepositions"].items()),
            names=tuple(row["names"]),
            pronoun="who" if row.get("who") else "that",
        )
        for _, row in sorted(rows.items())
    )


def taxa_content(rng: random.Random) -> Content:
    """Draw a content of groups of organisms and places, named as in the taxa benchmark."""
    group, is_plant = rng.choice(_groups())
    n_each = MAX_OPERANDS + 1
    somewhere = rng.sample(_places(), 3 * n_each)
    verb = rng.choice(("grow", "occur") if is_plant else ("live", "occur"))
    prepositions = rng.sample(_links(clauses=False), 4)
    return Content(
        lists={
            "H": (group,),
            "K": tuple(name for name, _ in rng.sample(_groups(), n_each)),
            "A": tuple(rng.sample(_adjectives(), n_each)),
            "M": tuple(
                f"{prepositions[at % 4]} {place}" for at, place in enumerate(somewhere[:n_each])
            ),
            "V": tuple(f"{verb} in {place}" for place in somewhere[n_each : 2 * n_each]),
        },
        prepositions=((rng.choice(_links(clauses=True)), tuple(somewhere[2 * n_each :])),),
        names=(),
    )


@lru_cache(maxsize=1)
def _groups() -> tuple[tuple[str, bool], ...]:
    """Return common and scientific names of groups, and whether each is a plant."""
    rows = [
        (name, common)
        for _, row in sorted(common_names().items())
        for name, common in sorted(row.items())
    ]
    return tuple(
        (called, name.endswith(_PLANTS)) for name, common in rows for called in (common, name)
    )


@lru_cache(maxsize=1)
def _places() -> tuple[str, ...]:
    return tuple(place.noun for _, place in sorted(places().items()))


@lru_cache(maxsize=1)
def _adjectives() -> tuple[str, ...]:
    return tuple(sorted({place.adjective for place in places().values()} - {""}))


@lru_cache(maxsize=2)
def _links(*, clauses: bool) -> tuple[str, ...]:
    """Return links of place and group; "that occur in" cannot follow "that are"."""
    return tuple(
        link.replace("|", " ").strip()
        for link in links().seen
        if "{" not in link and (clauses or not link.startswith(("that", "which")))
    )
