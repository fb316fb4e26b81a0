"""The catalogue of data sets (catalog.toml), and how each is opened by name.

The benchmarks taxa and domains are read from folders that ``benchmark_data/`` of a checkout wrote.
A folder of taxa has ``corpus.jsonl``, one file of queries a split, and ``manifest.json`` with the
hash of each file. Domains has such files in a folder a domain and, for queries with kinds of
things, ``kinds.jsonl`` with the documents of each kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.data.beir import read_beir, read_pairs
from boolattn.data.boolquestions import load_boolquestions
from boolattn.data.quest import load_quest, load_quest_intro
from boolattn.data.records import Dataset, Document, Query, read_documents, read_query
from boolattn.errors import ConfigError, DataError
from boolattn.files import cache_folder, checkout_module, package_table
from boolattn.jsonl import check_fields, find_file, parse_object, read_jsonl
from boolattn.settings import Checked, checked

if TYPE_CHECKING:
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
GROUP_RANKS = ("class", "order", "family")  # of groups in queries of taxa
#: Domains of taxa by kingdom; other kingdoms (bacteria, viruses) are only documents.
KINGDOMS: Mapping[str, str] = {"Metazoa": "animals", "Viridiplantae": "plants", "Fungi": "fungi"}
#: Splits by the role of a domain: first with training wordings, then with unseen ones.
DOMAIN_SPLITS = {
    "train": ("train",),
    "validation": ("validation", "validation_unseen"),
    "test": ("test", "unseen"),
}
_QUERY = {"id": str, "text": str, "template": str, "operands": list, "gold": list}


def load_taxa(folder: Path) -> Dataset:
    """Load taxa, with the documents of each operand."""
    manifest = _read_manifest(folder, "taxa", {"size": str, "queries": dict})
    documents = tuple(read_documents(find_file(folder, "corpus.jsonl")))
    members = _members((set_name, d.id) for d in documents for set_name in _taxa_sets(d.metadata))
    splits = {
        split: tuple(_queries(folder, split, members, "unseen:" if split == "unseen" else "seen:"))
        for split in manifest["queries"]
    }
    return Dataset(name=f"taxa-{manifest['size']}", documents=documents, splits=splits)


def load_domains(folder: Path, only: Sequence[str] = (), training: bool = False) -> Dataset:
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
        domain = list(read_documents(find_file(folder / name, "corpus.jsonl")))
        documents += domain
        facets = ((value, d.id) for d in domain for value in d.metadata["facets"].split("|"))
        members = _members((tuple(value.split("=", 1)), id_) for value, id_ in facets)
        if (path := folder / name / "kinds.jsonl").is_file():
            for _, row in read_jsonl(path, {"value": str, "documents": list}):
                members[tuple(row["value"].split("=", 1))] = frozenset(row["documents"])
        for split in dict.fromkeys((*DOMAIN_SPLITS[role], *about.get("queries", ()))):
            # Some kinds of a training domain are for the test.
            if not (training and split.startswith("test")):
                splits[split] = (*splits.get(split, ()), *_queries(folder / name, split, members))
    return Dataset(name=f"domains-{manifest['size']}", documents=documents, splits=splits)


def _read_manifest(folder: Path, name: str, fields: Mapping[str, type]) -> dict[str, Any]:
    remedy = f"build it with: boolattn data build {name}"
    path = find_file(folder, "manifest.json", remedy=remedy)
    values: dict[str, Any] = parse_object(path.read_bytes(), str(path))
    if (written := values.get("format")) != FORMATS[name]:
        raise DataError(f"{path} is in format {written!r}, not {FORMATS[name]!r}; {remedy}")
    check_fields(values, fields, path, 1)
    return values


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
    members = defaultdict(set)
    for name, document in pairs:
        members[name].add(document)
    return {name: frozenset(ids) for name, ids in members.items()}


def _taxa_sets(about: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the sets that a document of taxa is in: rank, group, and each place or none."""
    if about.get("kingdom") in KINGDOMS:
        for rank in GROUP_RANKS:
            for place_name in {"", *str(about.get("places", "")).split("|")}:
                yield rank, str(about.get(rank, "")), place_name


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions(Checked):
    """How to open a data set."""

    folder: Path | None = None  # folder of its files; each data set has a default
    size: str = "small"  # size of a benchmark that is built ("small" or "full")
    seed: int = 0  # for generated data
    tell: Callable[[str], None] | None = None  # called with a line of progress
    splits: Sequence[str] = ()  # splits that are needed, beside those that are always read
    only: tuple[str, ...] = ()  # domains of a benchmark of domains; none means all
    training: bool = False  # leave out what is never trained on


#: Every data set by name: what it is, where it comes from, its licence and size.
CATALOG: Mapping[str, Mapping[str, str]] = package_table("boolattn.data", "catalog.toml")


def check_name(name: str) -> None:
    """Refuse a name that the catalogue does not have."""
    if name not in CATALOG:
        raise ConfigError(f"no data set {name!r}; there are {', '.join(CATALOG)}")


@checked
def open_dataset(name: str, options: DataOptions | None = None) -> Dataset:
    """Open a data set of queries by name; it is read, downloaded or built as needed."""
    check_name(name)
    if name not in _OPENERS:
        raise ConfigError(f"{name} has no queries; those with queries are {', '.join(_OPENERS)}")
    return _OPENERS[name](options or DataOptions())


def _open_quest_intro(options: DataOptions) -> Dataset:
    quest = load_quest_intro(options.folder or cache_folder() / "quest-intro")
    if not quest.categories:
        return quest
    if (module := checkout_module("experiments.quest_queries")) is not None:
        generated: Dataset = module.with_generated(quest, seed=options.seed)
        return generated
    if options.tell:
        options.tell("no generated splits: experiments/ of the source repository makes them")
    return quest


def _open_built(name: str, options: DataOptions) -> Dataset:
    folder = options.folder or built_folder(name, options)
    if options.folder is None and not folder.is_dir():
        build_benchmark(name, folder, options)
    if name == "taxa":
        return load_taxa(folder)
    return load_domains(folder, options.only, options.training)


def built_folder(name: str, options: DataOptions) -> Path:
    """Return the cache folder of taxa or domains; its name changes with the wordings."""
    words = (FORMATS[name], options.size, *options.only, WORDINGS_SHA256[name][:8])
    return cache_folder() / "-".join(words)


def build_benchmark(name: str, folder: Path, options: DataOptions) -> None:
    """Build taxa or domains; of domains ``options.folder`` has files of the sources."""
    module = checkout_module(f"benchmark_data.{name}", f"{name} is built")
    sources = {"only": options.only, "source": options.folder} if name == "domains" else {}
    module.build(folder, options.size, tell=options.tell, **sources)


def _named_path(name: str, options: DataOptions) -> Path:
    if options.folder is None:
        raise DataError(f"name the folder of {name} with --from, or --data of evaluate")
    return options.folder


_OPENERS: Mapping[str, Callable[[DataOptions], Dataset]] = {
    "taxa": partial(_open_built, "taxa"),
    "domains": partial(_open_built, "domains"),
    # The augmented queries are many, and read only where they are asked for.
    "quest": lambda options: load_quest(
        options.folder, splits=["train", "val", "test", *({"train_aug"} & {*options.splits})]
    ),
    "quest-intro": _open_quest_intro,
    "boolquestions-msmarco": lambda options: load_boolquestions("MSMARCO", options.folder),
    "boolquestions-nq": lambda options: load_boolquestions("NaturalQuestions", options.folder),
    "beir": lambda options: read_beir(_named_path("beir", options)),
    "pairs": lambda options: read_pairs(_named_path("pairs", options)),
}
