"""The atomic sets: a group of organisms, everywhere or in one place, and its documents."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from benchmark_data.taxa.places import places_of
from boolattn.data.catalog import GROUP_RANKS, KINGDOMS
from boolattn.files import package_table
from boolattn.query.tokens import find_cues

if TYPE_CHECKING:
    from benchmark_data.taxa.source import Introduction

#: Fewest and most documents of an atomic set.
MIN_SIZE, MAX_SIZE = 5, 300
#: Splits with their shares of the taxa, in hundredths.
SHARES: Mapping[str, int] = {"train": 62, "validation": 12, "test": 26}
# The salt decides the split of each taxon; it is part of the benchmark's version.
_SALT = "boolattn-taxa-6"

# NCBI's common names that are one plain plural; others are lists or singular.
_PLAIN_PLURAL = re.compile(r"[A-Z]?[a-z]+(?:[ '-][A-Za-z]+)*s")
_FAMILY_NAME = re.compile(r"([a-z -]+) fam(?:i?)ly")


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """A taxon in queries."""

    rank: str  # "class", "order" or "family"
    name: str  # scientific name
    common: str  # common name in the plural, or empty
    domain: str  # "animals", "plants" or "fungi"
    split: str  # the split of its queries


@dataclass(frozen=True, slots=True, order=True)
class Operand:
    """The name of an atomic set: a group, and a place (empty: everywhere)."""

    group: Group
    place: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A document with its places."""

    introduction: Introduction
    places: tuple[str, ...]

    @property
    def id(self) -> str:
        """The document's id."""
        return str(self.introduction.taxid)


def split_of(lineage: Mapping[str, str]) -> str:
    """Return the split of a lineage: by class where the class is a group, else by order or family.

    It depends on a name alone, so a taxon has the same split in every size of the benchmark.
    """
    taxon = lineage.get("class", "")
    if taxon not in common_names()["class"]:
        taxon = lineage.get("order") or lineage.get("family") or taxon
    return _split_of_taxon(taxon)


@cache
def _split_of_taxon(taxon: str) -> str:
    number = int.from_bytes(hashlib.sha256(f"{_SALT} {taxon}".encode()).digest()[:4], "big") % 100
    for split, share in SHARES.items():
        if number < share:
            return split
        number -= share
    return "train"


def read_member(introduction: Introduction) -> Member:
    """Find the places of an introduction."""
    return Member(introduction, places_of(introduction.text))


def find_groups(
    members: Iterable[Member], ncbi_name: Callable[[str], str]
) -> Mapping[tuple[str, str], Group]:
    """Return the groups of documents, by rank and name; ``ncbi_name`` gives common names."""
    lineages: dict[tuple[str, str], Mapping[str, str]] = {}
    for member in members:
        lineage = member.introduction.lineage
        for rank in GROUP_RANKS:
            if rank in lineage and lineage.get("kingdom") in KINGDOMS:
                lineages.setdefault((rank, lineage[rank]), lineage)
    chosen = {key for key in lineages if key[0] != "class" or key[1] in common_names()["class"]}
    common = {key: _common_name(*key, ncbi_name) for key in sorted(chosen)}
    times = Counter(common.values())
    return {
        key: Group(
            rank=key[0],
            name=key[1],
            # A name that two groups share is ambiguous.
            common=common[key] if times[common[key]] == 1 else "",
            domain=KINGDOMS[lineages[key]["kingdom"]],
            split=split_of(lineages[key]),
        )
        for key in sorted(chosen)
    }


def find_sets(
    members: Iterable[Member], groups: Mapping[tuple[str, str], Group]
) -> Mapping[Operand, frozenset[str]]:
    """Return every atomic set of an allowed size, sorted."""
    postings: defaultdict[Operand, set[str]] = defaultdict(set)
    for member in members:
        lineage = member.introduction.lineage
        if lineage.get("kingdom") not in KINGDOMS:
            continue
        for rank in GROUP_RANKS:
            group = groups.get((rank, lineage.get(rank, "")))
            if group is not None:
                for place in ("", *member.places):
                    postings[Operand(group, place)].add(member.id)
    return {
        operand: frozenset(postings[operand])
        for operand in sorted(postings)
        if MIN_SIZE <= len(postings[operand]) <= MAX_SIZE
    }


def _common_name(rank: str, name: str, ncbi_name: Callable[[str], str]) -> str:
    ours = common_names().get(rank, {}).get(name)
    if ours:
        return ours
    theirs = ncbi_name(name)
    if match := _FAMILY_NAME.fullmatch(theirs):
        return "" if find_cues(theirs) else f"{match.group(1)} family plants"
    is_plain = _PLAIN_PLURAL.fullmatch(theirs) and not find_cues(theirs)
    # NCBI's names for orders are misleading: "turkeys" for all pheasants.
    return theirs if is_plain and rank == "family" and "others" not in theirs else ""


def common_names() -> Mapping[str, Mapping[str, str]]:
    """Return the common names of the table, by rank and scientific name."""
    return package_table("benchmark_data.taxa", "groups.toml")
