"""Choice of the operands of each query, so that every operator changes the answer.

An AND needs documents that match in part, and a NOT needs documents to exclude; otherwise a system
that ignores the operator would answer as well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from benchmark_data.taxa.places import are_apart
from boolattn.data.records import answer_sets

if TYPE_CHECKING:
    import random

    from benchmark_data.taxa.sets import Group, Operand

#: Fewest relevant documents of a query.
MIN_GOLD = 3
# Failed draws in a row after which a template is exhausted.
_MAX_FAILURES = 2000
_OR = ("_ or _", "_ or _ or _")
_NOT = ("_ that are not _", "_ that are also _ but not _")


class Planner:
    """Draws the operands of queries from the atomic sets of one split."""

    def __init__(self, sets: Mapping[Operand, frozenset[str]], split: str) -> None:
        self._sets = {op: ids for op, ids in sets.items() if op.group.split == split}
        self._operands = list(self._sets)
        self._local = [op for op in self._operands if op.place]
        self._unrestricted = [op for op in self._operands if not op.place]
        by_group: defaultdict[Group, list[Operand]] = defaultdict(list)
        by_place: defaultdict[str, list[Operand]] = defaultdict(list)
        for operand in self._local:
            by_group[operand.group].append(operand)
            by_place[operand.place].append(operand)
        self._by_group = {group: row for group, row in by_group.items() if len(row) > 1}
        self._groups = list(self._by_group)
        self._places = [(place, row) for place, row in by_place.items() if len(row) > 2]
        self._partners: dict[Group, dict[Operand, list[Operand]]] = {}
        self._inner = self._find_inner()

    def draw(self, template: str, rng: random.Random, count: int) -> Iterator[tuple[Operand, ...]]:
        """Yield up to ``count`` different combinations of operands for a template."""
        known: set[frozenset[Operand]] = set()
        misses = 0
        while len(known) < count and misses < _MAX_FAILURES:
            operands = self._draw_one(template, rng)
            key = frozenset(operands or ())
            if not operands or key in known or not self._is_useful(template, operands):
                misses += 1
                continue
            known.add(key)
            misses = 0
            yield operands

    def _draw_one(self, template: str, rng: random.Random) -> tuple[Operand, ...] | None:
        if template == "_":
            pool = self._unrestricted if self._unrestricted and rng.random() < 0.2 else self._local
            return (rng.choice(pool),) if pool else None
        n_operands = template.count("_")
        if template in _OR:
            return self._one_or(rng, n_operands)
        if self._inner and rng.random() < 0.3:
            return self._nested(rng, n_operands)
        return self._places_of_one_group(rng, n_operands)

    def _one_or(self, rng: random.Random, n_operands: int) -> tuple[Operand, ...] | None:
        draw = rng.random()
        if draw < 0.45 and self._groups:
            row = self._by_group[rng.choice(self._groups)]
            return _sample(rng, row, n_operands)
        if draw < 0.75 and self._places:
            return _sample(rng, rng.choice(self._places)[1], n_operands)
        return _sample(rng, self._operands, n_operands)

    def _places_of_one_group(
        self, rng: random.Random, n_operands: int
    ) -> tuple[Operand, ...] | None:
        """Draw places of one group; the first shares documents with all others."""
        if not self._groups:
            return None
        partners = self._partners_of(rng.choice(self._groups))
        if not partners:
            return None
        first = rng.choice(list(partners))
        rest = _sample(rng, partners[first], n_operands - 1)
        return (first, *rest) if rest else None

    def _nested(self, rng: random.Random, n_operands: int) -> tuple[Operand, ...] | None:
        """Draw a group in one or two places, and a family of it that overlaps them."""
        outer = rng.choice(list(self._inner))
        inner = rng.choice(self._inner[outer])
        if n_operands == 2:
            return outer, inner
        more = self._partners_of(outer.group).get(outer, [])
        return (outer, rng.choice(more), inner) if more else None

    def _is_useful(self, template: str, operands: Sequence[Operand]) -> bool:
        """Say whether every operator changes the answer and the places are disjoint."""
        if len(set(operands)) < len(operands):
            return False
        places = [operand.place for operand in operands if operand.place]
        if not all(are_apart(*pair) for pair in combinations(dict.fromkeys(places), 2)):
            return False
        sets = [self._sets[operand] for operand in operands]
        answers = answer_sets(template, sets)
        if len(answers.gold) < MIN_GOLD:
            return False
        if template in _OR:
            # Every operand has a document of its own.
            times = Counter(document for ids in sets for document in ids)
            return all(any(times[document] == 1 for document in ids) for ids in sets)
        if template in _NOT and not answers.excluded:
            return False
        return template in ("_", "_ that are not _") or bool(answers.partial)

    def _partners_of(self, group: Group) -> dict[Operand, list[Operand]]:
        """Return, for each operand of a group, those that share documents with it."""
        if group not in self._partners:
            homes = self._homes(self._by_group.get(group, ()))
            shared: Counter[tuple[Operand, Operand]] = Counter()
            for row in homes.values():
                shared.update(combinations(sorted(row), 2))
            partners: defaultdict[Operand, list[Operand]] = defaultdict(list)
            for left, right in sorted(pair for pair, times in shared.items() if times >= MIN_GOLD):
                partners[left].append(right)
                partners[right].append(left)
            self._partners[group] = dict(sorted(partners.items()))
        return self._partners[group]

    def _homes(self, operands: Iterable[Operand]) -> defaultdict[str, list[Operand]]:
        """Return the operands of each document."""
        homes: defaultdict[str, list[Operand]] = defaultdict(list)
        for operand in operands:
            for document in self._sets[operand]:
                homes[document].append(operand)
        return homes

    def _find_inner(self) -> dict[Operand, list[Operand]]:
        """Return, for each set of an order or class, the families that overlap it."""
        homes = self._homes(op for op in self._operands if op.group.rank == "family")
        inner: dict[Operand, list[Operand]] = {}
        for outer in self._local:
            if outer.group.rank == "family":
                continue
            shared = Counter(
                operand
                for document in self._sets[outer]
                for operand in homes[document]
                # The same place or none; another place would be a third condition.
                if operand.place in ("", outer.place)
            )
            limit = len(self._sets[outer]) - MIN_GOLD
            row = sorted(op for op, times in shared.items() if MIN_GOLD <= times <= limit)
            if row:
                inner[outer] = row
        return inner


def _sample(rng: random.Random, row: Sequence[Operand], count: int) -> tuple[Operand, ...] | None:
    return tuple(rng.sample(row, count)) if len(row) >= count else None
