"""Building the domains benchmark into a folder, and loading it.

The folder has ``manifest.json`` and for each domain ``corpus.jsonl`` and one file of queries a
split. Choices have fixed seeds and loops are sorted, so that two machines write the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from boolattn.data import records
from boolattn.data.domains import wordings
from boolattn.data.domains.items import Value, choose, decide
from boolattn.data.domains.queries import Planner, generate
from boolattn.data.domains.sources import fetch_file
from boolattn.data.manifest import read_built
from boolattn.data.tables import package_table
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import atomic_folder
from boolattn.jsonl import find_file, read_jsonl, write_jsonl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from boolattn.data.domains.items import Decided

FORMAT = "boolattn-domains-1"
#: The domains by name: role, terms of use, files, kinds of facets.
DOMAINS: Mapping[str, Mapping[str, Any]] = package_table("boolattn.data.domains", "domains.toml")
#: Splits by the role of a domain: first with training wordings, then with unseen ones.
SPLITS = {
    "train": ("train",),
    "validation": ("validation", "validation_unseen"),
    "test": ("test", "unseen"),
}
#: Documents of a domain, most judged documents of a query, queries of each structure.
SIZES = {"small": (2000, 150, 12), "full": (20_000, 300, 60)}
#: Structures with other numbers of queries than the others, as multiples.
_MORE = {"known": 4, "name": 2}
_TRAINING = 5  # training splits have so many times as many queries
_STRUCTURES = (*wordings.STRUCTURES, "explicit", *_MORE)
#: Value of a document's ``use`` that forbids training.
EVALUATION_ONLY = "evaluation"
_DOCUMENT = {"id": str, "title": str, "text": str, "metadata": dict}
_FIELDS = {"id": str, "text": str, "template": str, "operands": list, "gold": list}


@dataclass(frozen=True, kw_only=True)
class Manifest:
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
    manifest: Manifest

    def dataset(self, only: Sequence[str] = (), *, training: bool = False) -> records.Dataset:
        """Load domains into one data set; ``training`` leaves out the test domains."""
        names = [n for n in self.manifest.domains if not only or n in only]
        names = [n for n in names if not (training and DOMAINS[n]["role"] == "test")]
        documents: list[records.Document] = []
        splits: dict[str, list[records.Query]] = {}
        for name in names:
            part = _Part(self.folder / name)
            documents += part.documents
            for split in SPLITS[DOMAINS[name]["role"]]:
                splits.setdefault(split, []).extend(part.queries(split))
        return records.Dataset(
            name=f"domains-{self.manifest.size}",
            documents=documents,
            splits={split: tuple(queries) for split, queries in splits.items()},
        )


@dataclass(frozen=True)
class _Part:
    """The files of one domain."""

    folder: Path

    @cached_property
    def documents(self) -> tuple[records.Document, ...]:
        path = find_file(self.folder, "corpus.jsonl")
        rows = (row for _, row in read_jsonl(path, _DOCUMENT))
        return tuple(records.Document(**{name: row[name] for name in _DOCUMENT}) for row in rows)

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
        found: dict[str, set[str]] = {}
        for document in self.documents:
            for value in str(document.metadata["facets"]).split("|"):
                found.setdefault(value, set()).add(document.id)
        return {value: frozenset(own) for value, own in found.items()}


def build(
    folder: Path,
    size: str = "small",
    *,
    only: Sequence[str] = (),
    source: Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> Manifest:
    """Build the benchmark, completely or not at all.

    ``source`` is a folder with the sources' files, else they come from cache and network. Without
    ``only``, a domain whose file must be provided and is not there is left out and reported.
    """
    if size not in SIZES:
        raise ConfigError(f"domains has no size {size!r}; it has {', '.join(SIZES)}")
    if unknown := [name for name in only if name not in DOMAINS]:
        raise ConfigError(f"no domain {unknown[0]!r}; there are {', '.join(DOMAINS)}")
    report = tell or (lambda line: None)
    files: dict[str, list[Path]] = {}
    for name in only or DOMAINS:
        rows = DOMAINS[name]["files"]
        try:
            files[name] = [fetch_file(row, source) for row in rows]
        except MissingDataError as error:
            if only or any("wheel" in row or "url" in row for row in rows):
                raise
            report(f"{name} is left out: {error}")
    about: dict[str, Any] = {}
    with atomic_folder(folder) as draft:
        for name, own in files.items():
            report(f"{len(about) + 1}/{len(files)} {name}")
            about[name] = _build_domain(name, own, size, draft / name)
        manifest = Manifest(
            format=FORMAT,
            size=size,
            wordings_sha256=wordings.digest(),
            domains=about,
            files={
                str(path.relative_to(draft)): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(draft.glob("*/*"))
            },
        )
        text = json.dumps(asdict(manifest), indent=2, ensure_ascii=False)
        (draft / "manifest.json").write_text(text + "\n", encoding="utf-8")
    return manifest


def _build_domain(name: str, files: Sequence[Path], size: str, folder: Path) -> dict[str, Any]:
    row = DOMAINS[name]
    n_documents, max_judged, n_queries = SIZES[size]
    reader = import_module(f"boolattn.data.domains.readers.{name}")
    documents = choose(decide(reader.read(files, size), row["kinds"], name), n_documents)
    rows = (_document_row(name, one) for one in documents)
    write_jsonl(folder / "corpus.jsonl", rows)
    planner = Planner(name, documents, max_judged)
    counts = {}
    for split in SPLITS[row["role"]]:
        times = _TRAINING if split == "train" else 1
        numbers = {one: n_queries * times * _MORE.get(one, 1) for one in _STRUCTURES}
        queries = generate(planner, documents, split, numbers)
        counts[split] = write_jsonl(folder / f"{split}.jsonl", queries)
    return {
        "role": row["role"],
        "use": row.get("use", "training and evaluation"),
        "licence": row["licence"],
        "sources": [one.get("wheel") or one.get("url") or one["name"] for one in row["files"]],
        "sha256": [one["sha256"] for one in row["files"]],
        "documents": len(documents),
        "facets": len(planner.yes),
        "queries": counts,
    }


def load(folder: Path) -> DomainsBenchmark:
    """Load a built folder."""
    return DomainsBenchmark(folder, read_built(Manifest, folder, name="domains", expected=FORMAT))


def _document_row(domain: str, one: Decided) -> dict[str, Any]:
    return {
        "id": one.item.id,
        "title": one.item.title,
        "text": one.item.text,
        "metadata": {
            "domain": domain,
            "use": DOMAINS[domain].get("use", "training"),
            "facets": _joined(one.yes),
            "undecided": _joined(one.maybe),
        },
    }


def _joined(values: frozenset[Value]) -> str:
    return "|".join(f"{value.kind}={value.name}" for value in sorted(values))
