"""The taxa benchmark: exact sets of animals and plants, read from a built folder.

The folder has ``corpus.jsonl``, one file of queries a split, and ``manifest.json`` with the hash of
each file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boolattn.data import records
from boolattn.data.built.manifest import read_built, read_documents
from boolattn.errors import DataError
from boolattn.jsonl import find_file, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    SetName = tuple[str, ...]  # rank, group and place

#: Format of the folder; another one is refused.
FORMAT = "boolattn-taxa-1"
#: Hash of the wordings that this version builds; part of the name of the cached folder.
WORDINGS_SHA256 = "f70a0fd171e0958a3670d3d2e24670932ec5b081844084fe9eb71af228622a5d"
SPLITS = ("train", "validation", "test", "unseen")
#: Ranks of groups in queries.
GROUP_RANKS = ("class", "order", "family")
#: Domains by kingdom; other kingdoms (bacteria, viruses) are only documents.
DOMAINS: Mapping[str, str] = {"Metazoa": "animals", "Viridiplantae": "plants", "Fungi": "fungi"}
_FIELDS = {"id": str, "text": str, "template": str, "operands": list, "gold": list}


@dataclass(frozen=True, kw_only=True)
class TaxaManifest:
    """The content and origin of a built folder."""

    format: str  # layout of the folder
    size: str  # "small" or "full"
    wordings: str
    wordings_sha256: str
    packages: Mapping[str, str]  # versions of the source packages
    documents: int
    sets: int  # number of atomic sets
    queries: Mapping[str, Mapping[str, int]]  # number of queries, by split and template
    files: Mapping[str, str]  # SHA-256 of each file


@dataclass(frozen=True)
class TaxaBenchmark:
    """A built folder."""

    folder: Path
    manifest: TaxaManifest

    def dataset(self) -> records.Dataset:
        """Load everything, with the member documents of each operand."""
        documents = tuple(read_documents(self.folder))
        files = [
            (split, find_file(self.folder, f"{split}.jsonl")) for split in self.manifest.queries
        ]
        rows = [
            (split, f"{path}:{number}", row)
            for split, path in files
            for number, row in read_jsonl(path, _FIELDS)
        ]
        names = {name for _, source, row in rows for name in _set_names(row, source)}
        sets = members_of(((document.id, document.metadata) for document in documents), names)
        splits: dict[str, list[records.Query]] = {split: [] for split, _ in files}
        for split, source, row in rows:
            splits[split].append(_query(split, row, source, sets))
        return records.Dataset(
            name=f"taxa-{self.manifest.size}",
            documents=documents,
            splits={split: tuple(queries) for split, queries in splits.items()},
        )


def load(folder: Path) -> TaxaBenchmark:
    """Load a built folder."""
    return TaxaBenchmark(folder, read_built(TaxaManifest, folder, name="taxa", expected=FORMAT))


def members_of(
    documents: Iterable[tuple[str, Mapping[str, object]]], names: Iterable[SetName]
) -> Mapping[SetName, frozenset[str]]:
    """Find sets, named by rank, group and place, in the ids and metadata of a built corpus."""
    members: dict[SetName, set[str]] = {name: set() for name in names}
    groups = {name[:2] for name in members}
    for document, about in documents:
        if about.get("kingdom") not in DOMAINS:
            continue
        for rank in GROUP_RANKS:
            group = (rank, str(about.get(rank, "")))
            if group in groups:
                for place_name in {"", *str(about.get("places", "")).split("|")}:
                    if (*group, place_name) in members:
                        members[*group, place_name].add(document)
    return {name: frozenset(ids) for name, ids in members.items()}


def _set_names(row: Mapping[str, Any], source: str) -> list[SetName]:
    """Return the name of each operand's set."""
    try:
        return [tuple(map(str, name)) for name in row.get("sets") or ()]
    except TypeError as error:
        raise DataError(f"{source}: not a query of this benchmark ({error!r})") from error


def _query(
    split: str, row: Mapping[str, Any], source: str, sets: Mapping[SetName, frozenset[str]]
) -> records.Query:
    """Return the record; its wording begins with "seen:" or "unseen:"."""
    try:
        exposure = "unseen" if split == "unseen" else "seen"
        values = {**row, "wording": row["wording"] and f"{exposure}:{row['wording']}"}
        return records.read_query(values, [sets.get(name) for name in _set_names(row, source)])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{source}: not a query of this benchmark ({error!r})") from error
