"""Which places an introduction says its taxon is found in: names, and the clauses that count.

A name is not proof of occurrence: a moth can be named after Cuba, described by a botanist from
Brazil, introduced to Hawaii or absent from Ireland. A mention counts when its clause has a
preposition of place before it and none of the words that deny, date or borrow the place.
May import: boolattn.errors.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place of the table.

    Attributes:
        name: As documents and queries spell it.
        adjective: "Peruvian", or nothing.
        the: Whether the name takes an article.
        aliases: Further spellings in documents.
        within: Larger places that contain all or part of it.
    """

    name: str
    adjective: str = ""
    the: bool = False
    aliases: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """The name as it stands after a preposition."""
        return f"the {self.name}" if self.the else self.name

    @property
    def possessive(self) -> str:
        """The name as it stands before what it owns."""
        return f"{self.noun}'" if self.noun.endswith("s") else f"{self.noun}'s"


_DENIED_PHRASE = re.compile(
    r"\b(?:no longer|once|lost from|extinct in|known as|related to|similar to|different from|"
    r"non-native|used (?:in|for|by|as)|opposite|"
    r"state (?:bird|flower|tree|insect|fish|reptile|mammal|butterfly)|"
    r"has spread|spread to|became established|far from|society of|grown (?:in|for|as))\b"
)
# What says outright that something lives there. Only what stands near or after the last of these
# can deny it: "called mother of thousands, is native to Madagascar" is no denial.
_STRONG = re.compile(
    r"\b(?:found|occurs?|occur|native|endemic|indigenous|distributed|lives?|living|known|recorded|restricted|"
    r"ranges?|ranging|widespread|grows?|growing|occurring|resident|breeds?|confined|reported|present)"
    r"(?: \w+ly)? (?:in|from|to|throughout|across|on|at|over|along|through|off|around|near|"
    r"within|only|mainly|as far)\b|\binhabits?\b|\bis an? (?:[\w-]+ ){1,8}(?:from|of|in)\b"
)
_BEFORE_STRONG = 24
_LOCATED = re.compile(
    r"\b(?:in|from|of|to|throughout|across|within|including|between|through|on|off|over|along|around|"
    r"into|inhabits?|covers?|spans?|includes?|ranges?|distribution|habitat|locality|localities|"
    r"as far)\b|"
    r" [-–] "  # a genus's list of species: "Miers - southern Brazil"
)
# Words right after a mention that make it an address, a water or a person's country.
_BORROWED = re.compile(
    r"(?:'s|’s)?\s(?:Museum|University|Institute|Society|Academy|Zoo|College|Herbarium|Expedition|Agricultural|"
    r"Department|State University|Company|Sea\b|Trench|Basin|River|Current|Strait|Ridge|Plateau)|"
    r",? where it (?:is|was|has been) (?:introduced|cultivated|naturali|invasive)|"
    r",? as an? (?:introduced|invasive|exotic|weed)"
)
# A full stop ends a sentence when a capital follows and no abbreviation stands before it.
_SENTENCE = re.compile(
    r"(?<![ .(][A-Z])(?<!\bSt)(?<!\bMt)(?<!\bca)(?<!\bcf)(?<!\bvar)\.\s+(?=[A-Z\"])"
)
_CLAUSE = re.compile(
    r"\b(?:but|whereas|while|although|though)\b|"
    r", (?:where|and (?:is|was|has|it|they|are|named|described))\b"
)
_ASIDE = re.compile(r"\(([^()]*)\)?")
_WORD = re.compile(r"[a-z]+")


@lru_cache(maxsize=1)
def places() -> Mapping[str, Place]:
    """Read the table of places, by name, in alphabetical order."""
    table = _table()["place"]
    return {
        name: Place(
            name=name,
            adjective=row.get("adjective", ""),
            the=row.get("the", False),
            aliases=tuple(row.get("aliases", ())),
            within=tuple(row.get("within", ())),
        )
        for name, row in sorted(table.items())
    }


def are_apart(left: str, right: str) -> bool:
    """Say whether two places share no ground, as far as the table knows.

    >>> are_apart("Borneo", "Sumatra"), are_apart("Borneo", "Indonesia")
    (True, False)
    """
    table = places()
    around_left = {left, *table[left].within}
    around_right = {right, *table[right].within}
    return right not in around_left and left not in around_right


def places_of(text: str) -> tuple[str, ...]:
    """Return the places an introduction says its taxon is found in, in alphabetical order.

    >>> places_of("A moth named after Cuba. It is found in Peru, New Mexico and southern Ecuador.")
    ('Ecuador', 'Peru')
    """
    pattern, owner = _names()
    found: set[str] = set()
    if not pattern.search(text):
        return ()
    for sentence in _SENTENCE.split(text):
        if not pattern.search(sentence):
            continue
        for clause in _CLAUSE.split(sentence):
            found.update(_claims(clause, pattern, owner))
    return tuple(sorted(found))


def _claims(clause: str, pattern: re.Pattern[str], owner: Mapping[str, str]) -> set[str]:
    """Return the places a clause claims, inside its parentheses and outside."""
    # An aside is read after what leads to it, and what follows the aside does not see it:
    # "found in Europe (except Portugal), Turkey and Iran".
    readings = [(_ASIDE.sub(lambda aside: " " * len(aside.group()), clause), 0)]
    for aside in _ASIDE.finditer(clause):
        lead = _ASIDE.sub(" ", clause[: aside.start()])
        readings.append((f"{lead} {aside.group(1)}", len(lead)))
    claimed = set()
    for reading, start in readings:
        for mention in pattern.finditer(reading, start):
            name = owner.get(mention.group())
            if name and _is_claim(reading, mention.start(), mention.end()):
                claimed.add(name)
    return claimed


def _is_claim(reading: str, start: int, end: int) -> bool:
    """Say whether what stands around a mention speaks of where the taxon is found."""
    before = reading[:start].lower()
    outright = [match.start() for match in _STRONG.finditer(before)]
    if outright:
        before = before[max(0, outright[-1] - _BEFORE_STRONG) :]
    elif not _LOCATED.search(before):
        return False
    return (
        _denials().isdisjoint(_WORD.findall(before))
        and not _DENIED_PHRASE.search(before)
        and not _BORROWED.match(reading, end)
    )


@lru_cache(maxsize=1)
def _names() -> tuple[re.Pattern[str], Mapping[str, str]]:
    """One pattern over every name and decoy, longest first; only names have an owner."""
    owner = {alias: place.name for place in places().values() for alias in place.aliases}
    owner |= {name: name for name in places()}
    every = sorted({*owner, *_table()["decoys"]}, key=lambda name: (-len(name), name))
    # Branching on the first letter is what makes it fast: a text has few words that begin so.
    initials = sorted({name[0] for name in every})
    branches = "|".join(
        f"{initial}(?:{'|'.join(re.escape(n[1:]) for n in every if n[0] == initial)})"
        for initial in initials
    )
    return re.compile(rf"(?<![\w-])(?:{branches})(?![\w-])"), owner


@lru_cache(maxsize=1)
def _denials() -> frozenset[str]:
    return frozenset(word for row in _table()["denials"].values() for word in row.split())


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    source = files("boolattn.data.taxa").joinpath("places.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))
