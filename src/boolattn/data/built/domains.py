"""The domains benchmark: queries over many kinds of documents, read from a built folder.

The folder has ``manifest.json`` and for each domain ``corpus.jsonl``, one file of queries a split
and, for queries with kinds of things, ``kinds.jsonl`` with the documents of each kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from boolattn.data import records
from boolattn.data.built.manifest import read_built, read_documents
from boolattn.errors import DataError
from boolattn.jsonl import find_file, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

#: Format of the folder; another one is refused.
FORMAT = "boolattn-domains-1"
#: Hash of the wordings and kinds that this version builds; part of the name of the cached folder.
WORDINGS_SHA256 = "f3df9839774ef1805d674dd8ddf75001a4ec0820731ee258394a9919ab575103"
#: Splits by the role of a domain: first with training wordings, then with unseen ones.
SPLITS = {
    "train": ("train",),
    "validation": ("validation", "validation_unseen"),
    "test": ("test", "unseen"),
}
_KIND = {"value": str, "documents": list}
_FIELDS = {"id": str, "text": str, "template": str, "operands": list, "gold": list}


@dataclass(frozen=True, kw_only=True)
class DomainsManifest:
    """The content and origin of a built folder."""

    format: str
    size: str
    wordings_sha256: str
    domains: Mapping[str, Mapping[str, Any]]  # role, use, licence, sources, counts
    files: Mapping[str, str]  # SHA-256 of each file


@dataclass(frozen=True)
class DomainsBenchmark:
    """A built folder."""

    folder: Path
    manifest: DomainsManifest

    def dataset(self, only: Sequence[str] = (), *, training: bool = False) -> records.Dataset:
        """Load domains into one data set; ``training`` leaves out the test domains."""
        documents: list[records.Document] = []
        splits: dict[str, list[records.Query]] = {}
        for name, about in self.manifest.domains.items():
            role = about.get("role")
            if role not in SPLITS:
                raise DataError(f"{self.folder}: {name} has the role {role!r}; build it again")
            if (only and name not in only) or (training and role == "test"):
                continue
            files = _DomainFiles(self.folder / name)
            documents += files.documents
            for split in dict.fromkeys((*SPLITS[role], *about.get("queries", ()))):
                # Some kinds of a training domain are for the test.
                if not (training and split.startswith("test")):
                    splits.setdefault(split, []).extend(files.queries(split))
        return records.Dataset(
            name=f"domains-{self.manifest.size}",
            documents=documents,
            splits={split: tuple(queries) for split, queries in splits.items()},
        )


@dataclass(frozen=True)
class _DomainFiles:
    """The files of one domain."""

    folder: Path

    @cached_property
    def documents(self) -> tuple[records.Document, ...]:
        return tuple(read_documents(self.folder))

    def queries(self, split: str) -> Iterator[records.Query]:
        path = find_file(self.folder, f"{split}.jsonl")
        for number, row in read_jsonl(path, _FIELDS):
            try:
                members = [self._members.get(f"{kind}={name}") for kind, name in row["values"]]
                yield records.read_query(row, members or None)
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(f"{path}:{number}: not a query of a domain ({error!r})") from error

    @cached_property
    def _members(self) -> Mapping[str, frozenset[str]]:
        members: dict[str, set[str]] = {}
        for document in self.documents:
            for value in str(document.metadata["facets"]).split("|"):
                members.setdefault(value, set()).add(document.id)
        if (path := self.folder / "kinds.jsonl").is_file():
            members |= {row["value"]: row["documents"] for _, row in read_jsonl(path, _KIND)}
        return {value: frozenset(ids) for value, ids in members.items()}


def load(folder: Path) -> DomainsBenchmark:
    """Load a built folder."""
    return DomainsBenchmark(
        folder, read_built(DomainsManifest, folder, name="domains", expected=FORMAT)
    )
