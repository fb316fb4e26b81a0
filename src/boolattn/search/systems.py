"""Systems that are evaluated: the searcher, BM25, a run file; by name or by folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.encoders import models
from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.ranking import Ranking, read_run
from boolattn.jsonl import ENDINGS
from boolattn.query.parser import SHIPPED
from boolattn.search.searcher import Searcher
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from boolattn.data.records import Document
    from boolattn.encoder.torch_encoder import TorchEncoder
    from boolattn.encoders.callables import Encoder
    from boolattn.evaluation.benchmark import Benchmark, Judgements

    #: Called with what is done, how much of it is done, and of how much.
    Progress = Callable[[str, int, int], None]

_QUERIES = 64  # searched at once
_HEAP = 64_000_000  # bytes
_BODY, _ROW = "body", "row"
_DENSE = {"hybrid": False, "strict_not": False}
#: Ways to search, and their options.
WAYS: Mapping[str, Mapping[str, bool]] = {
    "one vector": _DENSE | {"compose": False},
    "composed": _DENSE,
    "hybrid": _DENSE | {"hybrid": True},
    "strict NOT": _DENSE | {"strict_not": True},
    "hybrid, strict NOT": {"hybrid": True, "strict_not": True},
}
#: Suffixes of run files.
RUNS = tuple(f".{kind}{ending}" for kind in ("run", "trec") for ending in ENDINGS)


@dataclass(frozen=True)
class OpenSystem:
    """A system that is ready to rank the documents of one benchmark."""

    name: str  # shown in tables
    gate: str  # what opens it: label, lexicon, learned, or closed; empty where there is no gate
    way: str  # one of :data:`WAYS`; empty for a baseline
    rank: Callable[[Judgements, int], Ranking]  # from queries and a depth


@dataclass(frozen=True)
class SearchRanker:
    """Ranks all documents of a searcher; their rows in rankings are by id."""

    searcher: Searcher
    rows: Mapping[str, int]

    @classmethod
    def index(
        cls,
        encoder: Encoder,
        documents: Sequence[Document],
        progress: Progress | None = None,
        **settings: Any,
    ) -> SearchRanker:
        """Index documents once, in a temporary folder; ``settings`` as in ``Searcher.build``."""
        if not documents:
            raise DataError("there are no documents to rank")
        counts = [0]

        def count(n: int) -> None:
            counts.append(counts[-1] + n)
            if progress:
                progress("documents", counts[-1], len(documents))

        # Their metadata hold the truth.
        texts = [replace(document, metadata={}) for document in documents]
        # One vector a document, as models are trained and as ``encode`` may have made them.
        searcher = Searcher.from_texts(texts, encoder, progress=count, passages=0, **settings)
        return cls(searcher, {document.id: row for row, document in enumerate(documents)})

    def rank(self, texts: Sequence[str], depth: int, **options: Any) -> Ranking:
        """Rank documents for queries in plain language; ``options`` are those of a search."""
        options = {"mode": "plain", **options, "verdicts": False}
        depth, ranked = min(depth, len(self.rows)), []
        for start in range(0, len(texts), _QUERIES):
            batch = texts[start : start + _QUERIES]
            for result in self.searcher.search_many(batch, depth, **options):
                ranked.append([(self.rows[hit.id], hit.score) for hit in result])
        return Ranking.of_scores(ranked, depth)


class Bm25Ranker:
    """Ranks by BM25 over stemmed English words, as a baseline: operators are words like others.

    The documents' texts are indexed in memory on construction.
    """

    @checked
    def __init__(self, documents: Sequence[str]) -> None:
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field(_ROW, fast=True)
        schema.add_text_field(_BODY, tokenizer_name="en_stem", index_option="freq")
        self._index = tantivy.Index(schema.build())
        # One thread, so that documents are in the order of their rows.
        writer = self._index.writer(heap_size=_HEAP, num_threads=1)
        for row, text in enumerate(documents):
            values = {_ROW: row, _BODY: text}
            writer.add_document(tantivy.Document.from_dict(values, self._index.schema))
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()

    def rank(self, texts: Sequence[str], depth: int) -> Ranking:
        """Rank the documents that have a word of the query; the others are not returned."""
        depth = min(depth, self._searcher.num_docs)
        return Ranking.of_scores([self._search(text, depth) for text in texts], depth)

    def _search(self, text: str, depth: int) -> list[tuple[int, float]]:
        # In lower case nothing is an operator of tantivy's query language.
        words = " ".join(re.findall(r"[^\W_]+", text.lower()))
        if not words or not depth:
            return []
        query = self._index.parse_query(words, [_BODY])
        hits = self._searcher.search(query, depth, count=False).hits
        rows: list[Any] = self._searcher.fast_field_values(_ROW, [address for _, address in hits])
        pairs = [(row, score) for row, (score, _) in zip(rows, hits, strict=True)]
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def _baseline(model: str) -> str:
    """Return ``bm25``, or the suffix of a run; empty for a model."""
    return "bm25" if model == "bm25" else next(filter(model.endswith, RUNS), "")


def ways_of(model: str, *, is_composed: bool, hybrid: bool, strict_not: bool) -> list[str]:
    """Return those of :data:`WAYS` that use no other options; the last one uses all of these."""
    is_composed &= not _baseline(model)
    if not is_composed and (hybrid or strict_not):
        option = "strict NOT" if strict_not else "hybrid search"
        raise ConfigError(f"{option} needs a model that parses queries")
    uses = (True, is_composed, hybrid, strict_not, hybrid and strict_not)
    return [way for way, is_used in zip(WAYS, uses, strict=True) if is_used]


def open_systems(
    model: str,
    benchmark: Benchmark,
    ways: Sequence[str] = ("composed",),
    *,
    gate: str = "own",
    device: str | None = None,
    progress: Progress | None = None,
) -> Iterator[OpenSystem]:
    """Open ``bm25``, a model by its name or folder, or a TREC run; index the documents once.

    A model ranks in some of :data:`WAYS`, with its own gate or, with ``label``, by oracle labels.
    """
    baseline, is_one_vector = _baseline(model), [*ways] == ["one vector"]
    if gate == "label" and (baseline or not is_one_vector):
        composed = "a model with composed scores (add --no-compose for one vector)"
        subject = Path(model).name if baseline else composed
        raise ConfigError(f"{subject} has no gate that labels open: leave out --gate label")
    if baseline == "bm25":
        bm25 = Bm25Ranker(benchmark.texts)
        yield OpenSystem("BM25", "", "", lambda judged, n: bm25.rank(judged.texts, n))
        return
    if baseline:
        run, rows = Path(model), benchmark.rows
        name = run.name.removesuffix(baseline)
        yield OpenSystem(name, "", "", lambda judged, n: read_run(run, judged.ids, rows, n))
        return
    # Every training ends in RUN/model: the run's name tells results apart.
    folder = models.resolve(model)
    home = folder.resolve()
    home = home.parent if (home.parent / "run.json").is_file() else home
    name = model if model in models.NAMES else home.name
    if not is_one_vector or (gate == "own" and models.runs_in_onnx(folder, device)):
        encoder = models.load_model(model, device=device)
    else:
        labelled = benchmark.splits.values() if gate == "label" else ()
        encoder = _load_towers(model, name, device, labelled)
    parser, words = None if is_one_vector else SHIPPED, any(WAYS[way]["hybrid"] for way in ways)
    ranker = SearchRanker.index(encoder, benchmark.documents, progress, parser=parser, words=words)
    for way in ways:

        def rank(judged: Judgements, n: int, options: Mapping[str, bool] = WAYS[way]) -> Ranking:
            return ranker.rank(judged.texts, n, **options)

        yield OpenSystem(name, "label" if gate == "label" else encoder.gate, way, rank)


def _load_towers(
    model: str, name: str, device: str | None, labelled: Iterable[Judgements]
) -> TorchEncoder:
    """Load a torch model with oracle labels; an encoder without pooling gets mean pooling."""
    models.require_torch(name)
    from boolattn.encoder.torch_encoder import TorchEncoder
    from boolattn.encoder.towers import build_towers

    source = Path(models.torch_source(model))
    if (source / "modules.json").is_file():
        encoder = TorchEncoder.load(source, device=device)
    else:
        encoder = TorchEncoder(build_towers(source).to(device))
    for judged in labelled:
        if not encoder.gate:
            raise ConfigError(f"{name} has no BoolAttn: leave out --gate label")
        encoder.labels.update(zip(judged.texts, judged.operators, strict=True))
    return encoder
