"""Systems to evaluate, by name: a model's folder, a known name, a TREC run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.encoders import models
from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation.ranking import read_run
from boolattn.jsonl import ENDINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentence_transformers import SentenceTransformer

    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.judgements import Judgements
    from boolattn.evaluation.ranking import Ranker, Ranking
    from boolattn.search.model_rankers import Progress

GATES = ("own", "label")
#: Names that are not folders.
NAMES = ("bm25", models.MINILM, models.SHIPPED)
#: Suffixes of run files.
RUNS = tuple(f".{kind}{ending}" for kind in ("run", "trec") for ending in ENDINGS)


@dataclass(frozen=True, kw_only=True)
class SystemOptions:
    """How a system ranks."""

    gate: str = "own"  # the model's own gate, or ``label``: oracle labels of the operators
    is_composed: bool = True  # compose operand scores, if the model has a parser
    device: str | None = None  # of the model; left out, a GPU if there is one
    progress: Progress | None = None  # called while documents are encoded
    hybrid: bool = False  # use lexical scores too
    strict_not: bool = False  # remove documents with a negated operand's words

    def __post_init__(self) -> None:
        if self.gate not in GATES:
            raise ConfigError(f"unknown gate {self.gate!r}; there are {', '.join(GATES)}")

    @property
    def is_searched(self) -> bool:
        """Whether an index is searched, with its options."""
        return self.hybrid or self.strict_not


@dataclass(frozen=True)
class OpenSystem:
    """A system that is ready to rank the documents of one benchmark."""

    name: str  # shown in tables
    gate: str  # what opens it: label, lexicon, learned, or closed; empty where there is no gate
    is_composed: bool
    rank: Callable[[Judgements, int], Ranking]  # from queries and a depth


def open_system(
    model: str, benchmark: Benchmark, options: SystemOptions | None = None
) -> OpenSystem:
    """Open one of :data:`NAMES`, a model's folder or a TREC run; encode or index the documents."""
    options = options or SystemOptions()
    is_lexical = model == "bm25" or model.endswith(RUNS)
    if options.is_searched and (is_lexical or not options.is_composed):
        what = "strict NOT" if options.strict_not else "hybrid search"
        raise ConfigError(f"{what} needs a model that parses queries")
    if model.endswith(RUNS):
        return _run(Path(model), benchmark, options)
    if model == "bm25":
        from boolattn.search.lexical import Bm25Ranker

        _refuse_label(model, options)
        return _system("BM25", Bm25Ranker(benchmark.texts))
    return _model(model, benchmark, options)


def _run(path: Path, benchmark: Benchmark, options: SystemOptions) -> OpenSystem:
    _refuse_label(path.name, options)

    def rank(judgements: Judgements, depth: int) -> Ranking:
        return read_run(path, judgements.ids, benchmark.rows).resized(depth)

    ending = next(ending for ending in sorted(RUNS, key=len)[::-1] if path.name.endswith(ending))
    return OpenSystem(path.name.removesuffix(ending), "", False, rank)


def _model(model_name: str, benchmark: Benchmark, options: SystemOptions) -> OpenSystem:
    from boolattn.search.index_ranker import WAYS, IndexRanker
    from boolattn.search.model_rankers import RetrieverRanker, TowersRanker, VectorRanker

    folder, name = _folder(model_name)
    texts, progress = benchmark.texts, options.progress
    if options.is_composed:
        _refuse_label("a model with composed scores (add --no-compose for one vector)", options)
        retriever = models.load_model(model_name, device=options.device)
        if not options.is_searched:
            ranker = RetrieverRanker(retriever, texts, progress=progress)
            return _system(name, ranker, retriever.gate, is_composed=True)
        own = {"hybrid": options.hybrid, "strict_not": options.strict_not}
        [way] = [way for way, how in WAYS.items() if how == own]
        index = IndexRanker(
            retriever, benchmark.documents, lexical=options.hybrid, progress=progress
        )

        def search(judgements: Judgements, depth: int) -> Ranking:
            return index.rank(judgements.texts, depth, **own)

        return OpenSystem(f"{name}, {way}", retriever.gate, True, search)
    if models.runs_in_onnx(folder, options.device) and options.gate == "own":
        found = models.load_model(model_name)
        return _system(name, VectorRanker(found, texts, progress=progress), found.gate)
    models.require_torch(name)
    model = _load(Path(models.torch_source(model_name)), options.device)
    from boolattn.encoder.retriever import Retriever

    gate = Retriever(model).gate
    if options.gate == "label" and not gate:
        raise ConfigError(f"{name} has no BoolAttn: leave out --gate label")
    towers = TowersRanker(model, texts, progress=progress)
    if options.gate == "own":
        return _system(name, towers, gate)

    def rank(judgements: Judgements, depth: int) -> Ranking:
        return towers.rank(judgements.texts, depth, operators=judgements.operators)

    return OpenSystem(name, "label", False, rank)


def _system(name: str, ranker: Ranker, gate: str = "", *, is_composed: bool = False) -> OpenSystem:
    return OpenSystem(
        name, gate, is_composed, lambda judgements, depth: ranker.rank(judgements.texts, depth)
    )


def _refuse_label(what: str, options: SystemOptions) -> None:
    if options.gate == "label":
        raise ConfigError(f"{what} has no gate that labels open: leave out --gate label")


def _folder(model: str) -> tuple[Path, str]:
    try:
        folder = models.resolve(model)
    except MissingDataError as error:
        if model in models.NAMES:
            raise
        raise MissingDataError(
            f"{model} is not a model's folder (no modules.json), not a run (*.run, *.trec), and "
            f"not one of {', '.join(NAMES)}"
        ) from error
    labels = {models.MINILM: "all-MiniLM-L6-v2", models.SHIPPED: models.SHIPPED}
    own = folder.resolve()
    # Every training ends in RUN/model: the run's name tells results apart.
    is_of_run = (own.parent / "run.json").is_file()
    return folder, labels.get(model) or (own.parent.name if is_of_run else own.name)


def _load(folder: Path, device: str | None) -> SentenceTransformer:
    """Load any sentence-transformers model; an encoder without pooling gets mean pooling."""
    from boolattn.encoder import build_towers
    from boolattn.encoder.tower_storage import load_towers

    if (folder / "modules.json").is_file():
        return load_towers(folder, device=device)
    return build_towers(folder).to(device) if device else build_towers(folder)
