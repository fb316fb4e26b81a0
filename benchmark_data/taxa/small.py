"""The small size: a few thousand documents that allow queries of all seven templates."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from benchmark_data.taxa.sets import read_member, split_of
from boolattn.data.built.taxa import DOMAINS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchmark_data.taxa.sets import Member
    from benchmark_data.taxa.source import Introduction

#: Documents of each split's taxa; the others are drawn from all that remain.
QUOTAS: Mapping[str, int] = {"train": 1800, "validation": 600, "test": 1100}
N_OTHERS = 500
# Families of one order make nested queries possible; few documents of each keep variety.
_FAMILIES_PER_ORDER = 4
_MIN_FAMILY, _MAX_FAMILY = 30, 90
# Documents of a family that are considered, for speed.
_READ_FAMILY = 500


def choose_small(introductions: Sequence[Introduction]) -> list[Member]:
    """Choose documents with several places, family by family, in the order of their hashes.

    In a random sample of this size too few sets would overlap for AND and NOT.
    """
    orders = _by_order(introductions)
    chosen: dict[int, Member] = {}
    for split, quota in QUOTAS.items():
        mine = [row for key, row in sorted(orders.items()) if key[0] == split]
        mine.sort(key=lambda families: _shuffle(min(families)))
        for member in islice(_several_places(mine), quota):
            chosen[member.introduction.taxid] = member
    rest = [item for item in introductions if item.taxid not in chosen]
    rng = random.Random("taxa small")
    for item in rng.sample(rest, N_OTHERS):
        chosen[item.taxid] = read_member(item)
    return [chosen[taxid] for taxid in sorted(chosen)]


def _by_order(
    introductions: Iterable[Introduction],
) -> Mapping[tuple[str, str], Mapping[str, list[Introduction]]]:
    """Sort introductions into families, by split and order."""
    orders: defaultdict[tuple[str, str], defaultdict[str, list[Introduction]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for item in introductions:
        lineage = item.lineage
        if lineage.get("kingdom") in DOMAINS and "order" in lineage and "family" in lineage:
            orders[split_of(lineage), lineage["order"]][lineage["family"]].append(item)
    return orders


def _several_places(orders: Iterable[Mapping[str, list[Introduction]]]) -> Iterator[Member]:
    """Yield members of a few families of each order that name two places or more."""
    for families in orders:
        n_families = 0
        for family in sorted(families, key=_shuffle):
            if len(families[family]) < _MIN_FAMILY or n_families == _FAMILIES_PER_ORDER:
                continue
            members = [
                member
                for member in map(read_member, families[family][:_READ_FAMILY])
                if len(member.places) > 1
            ]
            if len(members) >= _MIN_FAMILY:
                n_families += 1
                yield from members[:_MAX_FAMILY]


def _shuffle(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
