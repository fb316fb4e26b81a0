"""The benchmarks taxa and domains, read from folders that ``benchmark_data/`` of a checkout wrote.

A folder of taxa has ``corpus.jsonl``, one file of queries a split, and ``manifest.json`` with the
hash of each file. Domains has such files in a folder a domain and, for queries with kinds of
things, ``kinds.jsonl`` with the documents of each kind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Dataset, Document, Query, read_query
from boolattn.errors import DataError, MissingDataError
from boolattn.jsonl import check_fields, find_file, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    #: Documents by set: rank, group and place of taxa; kind and value of domains.
    Members = Mapping[tuple[str, ...], frozenset[str]]

#: Formats of the folders; others are refused.
FORMATS = {"taxa": "boolattn-taxa-1", "domains": "boolattn-domains-1"}
#: Hashes of the wordings and kinds that this version builds; part of the cached folders' names.
WORDINGS_SHA256 = {
    "taxa": "f70a0fd171e0958a3670d3d2e24670932ec5b081844084fe9eb71af228622a5d",
    "domains": "f3df9839774ef1805d674dd8ddf75001a4ec0820731ee258394a9919ab575103",
}
TAXA_SPLITS = ("train", "validation", "test", "unseen")
#: Ranks of groups in queries of taxa.
GROUP_RANKS = ("class", "order", "family")
#: Domains of taxa by kingdom; other kingdoms (bacteria, viruses) are only documents.
KINGDOMS: Mapping[str, str] = {"Metazoa": "animals", "Viridiplantae": "plants", "Fungi": "fungi"}
#: Splits by the role of a domain: first with training wordings, then with unseen ones.
DOMAIN_SPLITS = {
    "train": ("train",),
    "validation": ("validation", "validation_unseen"),
    "test": ("test", "unseen"),
}
_DOCUMENT = {"id": str, "title": str, "text": str, "metadata": dict}
_QUERY = {"id": str, "text": str, "template": str, "operands": list, "gold": list}


def load_taxa(folder: Path) -> Dataset:
    """Load taxa, with the documents of each operand."""
    manifest = _read_manifest(folder, "taxa", {"size": str, "queries": dict})
    documents = tuple(_documents(folder))
    members = _members((set_name, d.id) for d in documents for set_name in _taxa_sets(d.metadata))
    splits = {
        split: tuple(_queries(folder, split, members, "unseen:" if split == "unseen" else "seen:"))
        for split in manifest["queries"]
    }
    return Dataset(name=f"taxa-{manifest['size']}", documents=documents, splits=splits)


def load_domains(folder: Path, only: Sequence[str] = (), *, training: bool = False) -> Dataset:
    """Load domains into one data set; ``training`` leaves out the test domains."""
    manifest = _read_manifest(folder, "domains", {"size": str, "domains": dict})
    documents: list[Document] = []
    splits: dict[str, tuple[Query, ...]] = {}
    for name, about in manifest["domains"].items():
        role = about.get("role")
        if role not in DOMAIN_SPLITS:
            raise DataError(f"{folder}: {name} has the role {role!r}; build it again")
        if (only and name not in only) or (training and role == "test"):
            continue
        domain = list(_documents(folder / name))
        documents += domain
        facets = ((value, d.id) for d in domain for value in d.metadata["facets"].split("|"))
        members = _members((tuple(value.split("=", 1)), id_) for value, id_ in facets)
        members |= _kinds(folder / name / "kinds.jsonl")
        for split in dict.fromkeys((*DOMAIN_SPLITS[role], *about.get("queries", ()))):
            # Some kinds of a training domain are for the test.
            if not (training and split.startswith("test")):
                splits[split] = (*splits.get(split, ()), *_queries(folder / name, split, members))
    return Dataset(name=f"domains-{manifest['size']}", documents=documents, splits=splits)


def _read_manifest(folder: Path, name: str, fields: Mapping[str, type]) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingDataError(
            f"no {name} benchmark in {folder}; build it with: boolattn data build {name}"
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}); build the benchmark again") from error
    written = values.get("format") if isinstance(values, dict) else None
    if written != FORMATS[name]:
        raise DataError(
            f"{path} is in format {written!r}, this reads {FORMATS[name]!r}; build it again"
        )
    check_fields(values, fields, path, 1)
    return dict(values)


def _documents(folder: Path) -> Iterator[Document]:
    for _, row in read_jsonl(find_file(folder, "corpus.jsonl"), _DOCUMENT):
        yield Document(**{name: row[name] for name in _DOCUMENT})


def _queries(folder: Path, split: str, members: Members, exposure: str = "") -> Iterator[Query]:
    path = find_file(folder, f"{split}.jsonl")
    for number, row in read_jsonl(path, _QUERY):
        try:
            names = [tuple(map(str, name)) for name in row.get("sets", row.get("values", ()))]
            row["wording"] = row["wording"] and exposure + row["wording"]
            yield read_query(row, [members.get(name) for name in names])
        except (KeyError, TypeError, ValueError) as error:
            reason = f"not a query of this benchmark ({error!r})"
            raise DataError(f"{path}:{number}: {reason}") from error


def _members(pairs: Iterable[tuple[tuple[str, ...], str]]) -> dict[tuple[str, ...], frozenset[str]]:
    members: dict[tuple[str, ...], set[str]] = {}
    for name, document in pairs:
        members.setdefault(name, set()).add(document)
    return {name: frozenset(ids) for name, ids in members.items()}


def _taxa_sets(about: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the sets that a document of taxa is in: rank, group, and each place or none."""
    if about.get("kingdom") in KINGDOMS:
        for rank in GROUP_RANKS:
            for place_name in {"", *str(about.get("places", "")).split("|")}:
                yield rank, str(about.get(rank, "")), place_name


def _kinds(path: Path) -> dict[tuple[str, ...], frozenset[str]]:
    if not path.is_file():
        return {}
    rows = (row for _, row in read_jsonl(path, {"value": str, "documents": list}))
    return {tuple(row["value"].split("=", 1)): frozenset(row["documents"]) for row in rows}
