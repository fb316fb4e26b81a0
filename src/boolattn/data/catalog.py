"""The catalogue of data sets (catalog.toml), and how each is opened by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from boolattn.data.beir import read_beir
from boolattn.data.boolquestions import load_boolquestions
from boolattn.data.built import domains, taxa
from boolattn.data.pairs import read_pairs
from boolattn.data.quest import load_quest, load_quest_intro
from boolattn.data.tables import package_table
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import cache_folder, checkout_module
from boolattn.settings import check_types, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from boolattn.data.records import Dataset

Kind = Literal["queries", "sentences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """How to open a data set."""

    folder: Path | None = None  # folder of its files; each data set has a default
    size: str = "small"  # size of a benchmark that is built ("small" or "full")
    seed: int = 0  # for generated data
    tell: Callable[[str], None] | None = None  # called with a line of progress
    splits: Sequence[str] = ()  # splits that are needed, beside those that are always read
    only: tuple[str, ...] = ()  # domains of a benchmark of domains; none means all
    training: bool = False  # leave out what is never trained on

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One data set of the catalogue: what it is, where it comes from, its licence and size."""

    name: str
    summary: str
    kind: Kind
    source: str
    licence: str
    size: str


#: Every data set by name.
CATALOG: Mapping[str, Entry] = {
    name: Entry(name=name, **row)
    for name, row in package_table("boolattn.data", "catalog.toml").items()
}


def find_entry(name: str) -> Entry:
    """Look up a data set by name."""
    if name not in CATALOG:
        raise ConfigError(f"no data set {name!r}; there are {', '.join(CATALOG)}")
    return CATALOG[name]


@checked
def open_dataset(name: str, options: DataOptions | None = None) -> Dataset:
    """Open a data set of queries by name; it is read, downloaded or built as needed."""
    if find_entry(name).kind != "queries":
        others = ", ".join(known for known in CATALOG if CATALOG[known].kind == "queries")
        raise ConfigError(f"{name} has no queries; those with queries are {others}")
    return _OPENERS[name](options or DataOptions())


def _folder(name: str, folder: Path | None, cached: str) -> Path:
    """Return the folder given, or that of the environment variable, or that of the cache."""
    variable = f"BOOLATTN_{name.upper().replace('-', '_')}"
    if folder is None and (named := os.environ.get(variable)):
        folder = Path(named).expanduser()
    folder = folder or cache_folder() / cached
    if not folder.is_dir():
        raise MissingDataError(
            f"no folder {folder} for {name}; put its files there, or name their folder with "
            f"--from or ${variable}"
        )
    return folder


def _open_quest(options: DataOptions) -> Dataset:
    usual = ("train", "val", "test")
    # The augmented queries are many, and read only where they are asked for.
    return load_quest(options.folder, splits=[*usual, *({"train_aug"} & {*options.splits})])


def _open_quest_intro(options: DataOptions) -> Dataset:
    quest = load_quest_intro(_folder("quest-intro", options.folder, "quest-intro"))
    module = checkout_module("experiments.quest_queries")
    if not quest.categories or module is None:
        if options.tell and quest.categories:
            options.tell("no generated splits: benchmark_data/ of the source repository makes them")
        return quest
    generated: Dataset = module.with_generated(quest, seed=options.seed)
    return generated


def _open_taxa(options: DataOptions) -> Dataset:
    folder = options.folder or taxa_folder(options.size)
    if options.folder is None and not folder.is_dir():
        build_taxa(folder, options)
    return taxa.load(folder).dataset()


def taxa_folder(size: str) -> Path:
    """Return the cache folder of the taxa benchmark; its name changes with the wordings."""
    return cache_folder() / f"{taxa.FORMAT}-{size}-{taxa.WORDINGS_SHA256[:8]}"


def build_taxa(folder: Path, options: DataOptions) -> None:
    """Build the taxa benchmark and report progress."""
    tell = options.tell or (lambda line: None)
    _builder("taxa").build(
        folder, options.size, progress=lambda task, step, steps: tell(f"{step}/{steps} {task}")
    )


def _open_domains(options: DataOptions) -> Dataset:
    folder = options.folder or domains_folder(options)
    if options.folder is None and not folder.is_dir():
        build_domains(folder, options)
    return domains.load(folder).dataset(options.only, training=options.training)


def domains_folder(options: DataOptions) -> Path:
    """Return the cache folder of the domains benchmark; its name changes with the wordings."""
    words = (domains.FORMAT, options.size, *options.only, domains.WORDINGS_SHA256[:8])
    return cache_folder() / "-".join(words)


def build_domains(folder: Path, options: DataOptions) -> None:
    """Build the domains benchmark; ``options.folder`` has files of the sources."""
    variable = os.environ.get("BOOLATTN_DOMAINS")
    source = options.folder or (Path(variable).expanduser() if variable else None)
    build = _builder("domains").build
    build(folder, options.size, only=options.only, source=source, tell=options.tell)


def _builder(name: str) -> Any:  # noqa: ANN401 - a module outside the wheel
    """Import the builder of a benchmark, which is in ``benchmark_data/`` of a checkout."""
    if (module := checkout_module(f"benchmark_data.{name}")) is None:
        raise MissingDataError(
            f"{name} is built by benchmark_data/ of the source repository; install boolattn from a "
            "checkout: pip install -e ."
        )
    return module


def _named_path(name: str, options: DataOptions) -> Path:
    if options.folder is None:
        raise DataError(f"name the folder of {name} with --from, or --data of evaluate")
    return options.folder


_OPENERS: Mapping[str, Callable[[DataOptions], Dataset]] = {
    "taxa": _open_taxa,
    "domains": _open_domains,
    "quest": _open_quest,
    "quest-intro": _open_quest_intro,
    "boolquestions-msmarco": lambda options: load_boolquestions("MSMARCO", options.folder),
    "boolquestions-nq": lambda options: load_boolquestions("NaturalQuestions", options.folder),
    "beir": lambda options: read_beir(_named_path("beir", options)),
    "pairs": lambda options: read_pairs(_named_path("pairs", options)),
}
