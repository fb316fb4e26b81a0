"""Kinds of the things that documents name: butter is dairy, Kenya is part of Africa (kinds.toml).

A document is of a kind if its text names a narrower thing and not the kind itself. Where it names
the kind, or something doubtful, it is undecided.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmark_data.domains.items import Decided, Value, longest_names, named_values, stems
from boolattn.files import package_table

if TYPE_CHECKING:
    Group = Mapping[str, Any]

#: The groups of kinds, and the members of each kind.
TABLE = package_table("benchmark_data.domains", "kinds.toml")
#: Begins the facet of a kind: "kind of ingredient".
PREFIX = "kind of "
#: Queries with a kind and without one.
STRUCTURES = ("single", "and2", "not2", "question", "long1", "neither")
#: Fewest documents of a kind of a hierarchy, and their largest share of all.
_MIN_DOCUMENTS, _MAX_SHARE = 8, 0.25


class Kind(NamedTuple):
    """One kind: who may train on it, and the documents of which it is sure and unsure."""

    role: str
    value: Value
    yes: set[str]
    maybe: set[str]

    def row(self) -> dict[str, Any]:
        """Return the kind as it is written."""
        sets = {"documents": sorted(self.yes), "undecided": sorted(self.maybe)}
        return {"value": "=".join(self.value), "role": self.role, **sets}


def groups(domain: str) -> dict[str, Group]:
    """Return the groups of kinds of a domain, by the facet that they widen."""
    return dict(TABLE["groups"].get(domain, {}))


def find_kinds(domain: str, documents: Sequence[Decided]) -> Iterator[Kind]:
    """Find the kinds of all documents."""
    for facet, group in groups(domain).items():
        if "kinds" not in group:
            yield from _of_hierarchy(facet, group, documents)
        for name in group.get("kinds", ()):
            yield _listed(name, facet, group, documents)


def _listed(name: str, facet: str, group: Group, documents: Sequence[Decided]) -> Kind:
    """Decide a kind by its list of members."""
    row = TABLE["kinds"][name]
    marks = {
        tuple(stems(words)): mark
        for mark in ("others", "doubtful", "members", "called")
        for words in (*row.get(mark, ()), *([name] if mark == "called" else ()))
    }
    yes, maybe = set(), set()
    for document in documents:
        named = {marks[words] for words in longest_names(stems(document.item.text), marks)}
        stated = {
            marks[words]
            for label in _stated(document, group, row["members"])
            for words in longest_names(stems(label), marks)
        }
        if "members" in stated and "called" not in named:
            yes.add(document.item.id)
        elif (named | stated) - {"others"}:
            maybe.add(document.item.id)
    return Kind(row["role"], Value(PREFIX + facet, name), yes, maybe)


def _stated(document: Decided, group: Group, members: Sequence[str]) -> Iterable[str]:
    """Return what decides: labels that the text names, or the names in one part of the text."""
    if "labels" in group:
        return [v.name for v in document.yes if v.kind == group["labels"] and v.name in members]
    part = re.search(group["stated"], document.item.text)
    return part[1].split(", ") if part else ()


def _of_hierarchy(facet: str, group: Group, documents: Sequence[Decided]) -> Iterator[Kind]:
    """Take kinds from the hierarchy of the source."""
    wider = {document.item.id: set(document.item.wider.get(facet, ())) for document in documents}
    counts = Counter(name for names in wider.values() for name in names)
    limit = _MAX_SHARE * len(documents)
    chosen = {name for name, n in counts.items() if _MIN_DOCUMENTS <= n <= limit}
    chosen.difference_update(group.get("leave_out", ()))
    names = {tuple(stems(name)): [Value(facet, name)] for name in sorted(chosen)}
    sets: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in sorted(chosen)}
    for document in documents:
        named = {value.name for value in named_values(document.item.text, names)}
        item = document.item
        labels = {*item.labels.get(facet, ()), *item.undecided.get(facet, ()), *named}
        for name in chosen & (wider[document.item.id] | labels):
            is_unsure = name not in wider[document.item.id] or name in named
            sets[name][is_unsure].add(document.item.id)
    for name, (yes, maybe) in sets.items():
        if len(yes) >= _MIN_DOCUMENTS:
            yield Kind(group["role"], Value(PREFIX + facet, name), yes, maybe)
