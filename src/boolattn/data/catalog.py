"""The catalogue of data sets (catalog.toml), and how each is opened by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from boolattn.data.beir import read_beir, read_pairs
from boolattn.data.boolquestions import load_boolquestions
from boolattn.data.built import FORMATS, WORDINGS_SHA256, load_domains, load_taxa
from boolattn.data.quest import load_quest, load_quest_intro
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import cache_folder, checkout_module, package_table
from boolattn.settings import check_types, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from boolattn.data.records import Dataset


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


#: Every data set by name: what it is, where it comes from, its licence and size.
CATALOG: Mapping[str, Mapping[str, str]] = {
    name: {"name": name, **row}
    for name, row in package_table("boolattn.data", "catalog.toml").items()
}


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


def _open_quest(options: DataOptions) -> Dataset:
    usual = ("train", "val", "test")
    # The augmented queries are many, and read only where they are asked for.
    return load_quest(options.folder, splits=[*usual, *({"train_aug"} & {*options.splits})])


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
    return load_domains(folder, options.only, training=options.training)


def built_folder(name: str, options: DataOptions) -> Path:
    """Return the cache folder of taxa or domains; its name changes with the wordings."""
    words = (FORMATS[name], options.size, *options.only, WORDINGS_SHA256[name][:8])
    return cache_folder() / "-".join(words)


def build_benchmark(name: str, folder: Path, options: DataOptions) -> None:
    """Build taxa or domains; of domains ``options.folder`` has files of the sources."""
    if (module := checkout_module(f"benchmark_data.{name}")) is None:
        raise MissingDataError(
            f"{name} is built by benchmark_data/ of the source repository; install boolattn from a "
            "checkout: pip install -e ."
        )
    is_domains = name == "domains"
    sources = {"only": options.only, "source": options.folder} if is_domains else {}
    module.build(folder, options.size, tell=options.tell, **sources)


def _named_path(name: str, options: DataOptions) -> Path:
    if options.folder is None:
        raise DataError(f"name the folder of {name} with --from, or --data of evaluate")
    return options.folder


_OPENERS: Mapping[str, Callable[[DataOptions], Dataset]] = {
    "taxa": partial(_open_built, "taxa"),
    "domains": partial(_open_built, "domains"),
    "quest": _open_quest,
    "quest-intro": _open_quest_intro,
    "boolquestions-msmarco": lambda options: load_boolquestions("MSMARCO", options.folder),
    "boolquestions-nq": lambda options: load_boolquestions("NaturalQuestions", options.folder),
    "beir": lambda options: read_beir(_named_path("beir", options)),
    "pairs": lambda options: read_pairs(_named_path("pairs", options)),
}
