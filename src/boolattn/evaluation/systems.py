"""What is evaluated, by the name a person gives: a model's folder, a known name, a run file.

May import: boolattn.composition, boolattn.encoder, boolattn.evaluation, boolattn.plugin,
boolattn.embedding.models, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation.rankers import Bm25Ranker, RetrieverRanker, TowersRanker
from boolattn.evaluation.ranking import Ranker, RunRanker
from boolattn.files import ENDINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentence_transformers import SentenceTransformer

    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.judgements import Judgements
    from boolattn.evaluation.rankers import Keeps, Tell
    from boolattn.evaluation.ranking import Ranking

GATES = ("own", "label")
#: Names that are no folders.
NAMES = ("bm25", "minilm", "shipped")
#: Endings of run files, compressed or not.
RUNS = tuple(f".{kind}{ending}" for kind in ("run", "trec") for ending in ENDINGS)


@dataclass(frozen=True, kw_only=True)
class How:
    """How a system is asked.

    Attributes:
        gate: ``own``: the model reads the text by itself; ``label``: the query's true operators
            open its gate, which no user's query comes with.
        is_composed: Whether a model that reads operands composes their scores; if not, it ranks
            by one vector a query.
        device: Where models run; left out, on a GPU if there is one.
        tell: Called with what is done, how much of it, and of how much.
        keeps: Strict NOT, as :class:`~boolattn.evaluation.rankers.RetrieverRanker` takes it.
    """

    gate: str = "own"
    is_composed: bool = True
    device: str | None = None
    tell: Tell | None = None
    keeps: Keeps | None = None

    def __post_init__(self) -> None:
        if self.gate not in GATES:
            raise ConfigError(f"no gate {self.gate!r}; there are {', '.join(GATES)}")


@dataclass(frozen=True)
class System:
    """Something that ranks one benchmark's documents.

    Attributes:
        name: What tables call it.
        gate: Who opens its gate: ``label``, ``lexicon``, ``learned``, ``closed`` where nobody
            does, and empty where there is none.
        is_composed: Whether its scores are composed of operands'.
        rank: From queries and a depth to their ranking.
    """

    name: str
    gate: str
    is_composed: bool
    rank: Callable[[Judgements, int], Ranking]


def open_system(model: str, benchmark: Benchmark, how: How | None = None) -> System:
    """Make ready to rank a benchmark's documents; they are encoded or indexed here.

    Args:
        model: One of :data:`NAMES`, a model's folder, or a TREC run.
        benchmark: The documents.
        how: How it is asked.
    """
    how = how or How()
    if how.keeps is not None and (not how.is_composed or model == "bm25" or model.endswith(RUNS)):
        raise ConfigError("strict NOT needs a model that reads what a query excludes")
    if model.endswith(RUNS):
        return _run(Path(model), benchmark, how)
    if model == "bm25":
        _refuse_label(model, how)
        return _texts_only("BM25", Bm25Ranker(benchmark.texts))
    folder, name = _folder(model)
    return _model(folder, name, benchmark, how)


def _run(path: Path, benchmark: Benchmark, how: How) -> System:
    _refuse_label(path.name, how)

    def rank(judgements: Judgements, depth: int) -> Ranking:
        run = RunRanker(path, judgements.ids, benchmark.rows)
        return run.rank(judgements.texts, depth)

    ending = next(ending for ending in sorted(RUNS, key=len)[::-1] if path.name.endswith(ending))
    return System(path.name.removesuffix(ending), "", False, rank)


def _model(folder: Path, name: str, benchmark: Benchmark, how: How) -> System:
    from boolattn.encoder.retriever import Retriever
    from boolattn.encoder.retriever_storage import SETTINGS

    texts = benchmark.texts
    if how.is_composed and (folder / SETTINGS).is_file():
        _refuse_label("a model that composes (add --no-compose for its single vector)", how)
        retriever = Retriever.load(folder, device=how.device)
        ranker = RetrieverRanker(retriever, texts, tell=how.tell, keeps=how.keeps)
        name = name if how.keeps is None else f"{name}, strict NOT"
        return _texts_only(name, ranker, _gate(retriever.towers), is_composed=True)
    if how.keeps is not None:
        raise ConfigError(f"{name} does not read what a query excludes: leave out strict NOT")
    model = _load(folder, how.device)
    gate = _gate(model)
    if how.gate == "label" and not gate:
        raise ConfigError(f"{name} carries no BoolAttn: leave out --gate label")
    towers = TowersRanker(model, texts, tell=how.tell)
    if how.gate == "own":
        return _texts_only(name, towers, gate)

    def rank(judgements: Judgements, depth: int) -> Ranking:
        return towers.rank(judgements.texts, depth, operators=judgements.operators)

    return System(name, "label", False, rank)


def _texts_only(name: str, ranker: Ranker, gate: str = "", *, is_composed: bool = False) -> System:
    return System(
        name, gate, is_composed, lambda judgements, depth: ranker.rank(judgements.texts, depth)
    )


def _refuse_label(what: str, how: How) -> None:
    if how.gate == "label":
        raise ConfigError(f"{what} has no gate that labels open: leave out --gate label")


def _folder(model: str) -> tuple[Path, str]:
    from boolattn.embedding import models

    try:
        folder = models.resolve(model)
    except MissingDataError as error:
        if model in models.NAMES:
            raise
        raise MissingDataError(
            f"{model} is no model's folder (it holds no modules.json), no run "
            f"(*.run, *.trec), and none of {', '.join(NAMES)}"
        ) from error
    labels = {models.MINILM: "all-MiniLM-L6-v2", models.SHIPPED: models.SHIPPED}
    return folder, labels.get(model) or folder.resolve().name


def _load(folder: Path, device: str | None) -> SentenceTransformer:
    """Load towers or any sentence-transformers model; a bare encoder is pooled by the mean."""
    from sentence_transformers import SentenceTransformer

    from boolattn.encoder import build_towers

    if (folder / "modules.json").is_file():
        return SentenceTransformer(str(folder), device=device, local_files_only=True)
    return build_towers(folder).to(device) if device else build_towers(folder)


def _gate(model: SentenceTransformer) -> str:
    """Say who opens a model's gate when nobody brings a label."""
    from boolattn.encoder import BoolBertModel, query_encoder

    try:
        encoder = query_encoder(model)
    except ConfigError:
        # One tower that is not ours.
        return ""
    if not isinstance(encoder, BoolBertModel):
        return ""
    gate = str(encoder.config.boolattn_config.gate)
    return "closed" if gate == "label" else gate
