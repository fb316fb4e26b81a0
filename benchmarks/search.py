"""Indexing and searching a large corpus by engine, and an estimate for a billion documents.

    python -m benchmarks.search [--from FOLDER] [--documents N] [--engines flat ivf hnsw milvus]
        [--vectors FILE --model shipped] [--out RESULTS.json] [--docs docs/search.md]

Documents are those of QUEST-intro where ``--from`` names its folder, else of the taxa benchmark.
With ``--vectors`` their vectors come from a file (see ``benchmarks.stored_vectors``), and queries
are parsed and encoded here. Without, the encoder is the mean of all-MiniLM-L6-v2's word vectors:
no hours of encoding, and valid for the times of a search. Every index is built in one process and
searched in another, whose memory and processor time are measured with those of its children.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.candidate_recall import candidate_recall
from benchmarks.resource_usage import cpu_seconds, memory_mb, peak_mb
from benchmarks.search_tables import page, write_page
from benchmarks.stored_vectors import StoredVectors
from boolattn.data.catalog import Options, open_dataset
from boolattn.encoder.retriever import Retriever
from boolattn.encoders.models import minilm_folder
from boolattn.query.structure import template_tree
from boolattn.query.syntax import parse, unparse
from boolattn.search import Searcher, load_model
from boolattn.search.candidates import probes
from boolattn.search.engines.base import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from boolattn.data.records import Dataset, Document
    from boolattn.search import Hit

ENGINES = ("flat", "ivf", "hnsw", "milvus")
#: Queries that are timed, and those of secondary measurements.
N_QUERIES, N_FEW = 150, 50
K = 10
#: Vectors alone, whose speed and recall depend on the engine.
DENSE = {"hybrid": False, "strict_not": False}


def words_model() -> Retriever:
    """Return an encoder of MiniLM's word vectors."""
    from safetensors.numpy import load_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from tokenizers import Tokenizer

    folder = minilm_folder()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    [weights] = [
        value
        for name, value in load_file(folder / "model.safetensors").items()
        if name.endswith("word_embeddings.weight")
    ]
    static = StaticEmbedding(tokenizer, embedding_weights=weights.astype(np.float32))
    return Retriever(SentenceTransformer(modules=[static, Normalize()], device="cpu"))


def queries_of(data: Dataset) -> tuple[list[str], list[str]]:
    """Return queries in plain language, and composed ones in explicit syntax."""
    every = [query for split in data.splits.values() for query in split]
    trees = [
        unparse(template_tree(query.template, [operand.text for operand in query.operands]))
        for query in every
        if query.template not in ("", "_") and query.operands
    ]
    return _spread([query.text for query in every]), _spread(trees)


def _spread(texts: list[str]) -> list[str]:
    step = max(1, len(texts) // N_QUERIES)
    return texts[::step][:N_QUERIES]


def timed(searcher: Searcher, queries: Iterable[str], **options: Any) -> dict[str, float]:
    """Time queries one at a time, in milliseconds."""
    queries = list(queries)
    for query in queries[:5]:
        searcher.search(query, K, **options)
    totals, reads = [], []
    before = cpu_seconds()
    for query in queries:
        start = time.perf_counter()
        took = searcher.search(query, K, **options).took
        totals.append(1000 * (time.perf_counter() - start))
        reads.append(took["read"])
    cpu = 1000 * (cpu_seconds() - before) / len(queries)
    rest = np.subtract(totals, reads)
    found = {
        "p50": np.percentile(totals, 50),
        "p99": np.percentile(totals, 99),
        "read_p50": np.percentile(reads, 50),
        "search_p50": np.percentile(rest, 50),
        "search_p99": np.percentile(rest, 99),
        "cpu_mean": cpu,
    }
    return {name: round(float(value), 2) for name, value in found.items()}


def probed(searcher: Searcher, composed: list[str]) -> dict[str, float]:
    """Measure the processor time of one neighbour search, and the searches of composed queries."""
    plans = searcher.retriever.plan_trees([parse(text) for text in composed[:N_FEW]])
    asked = [probes(plan) for plan in plans]
    every, selection, engine = np.concatenate(asked), Selection(), searcher.engine

    def milliseconds(n: int) -> float:
        engine.search(every[:1], n, selection)
        before = cpu_seconds()
        for vector in every:
            engine.search(vector[None], n, selection)
        return 1000 * (cpu_seconds() - before) / len(every)

    rows = [np.unique(engine.search(own, engine.n_candidates(K), selection).rows) for own in asked]
    rows = [own[own >= 0] for own in rows]
    before = cpu_seconds()
    for plan, own in zip(plans, rows, strict=True):
        searcher.retriever.score(plan, plan.vectors @ engine.vectors(own).T)
    return {
        "compose": round(1000 * (cpu_seconds() - before) / len(plans), 3),
        "10": round(milliseconds(K), 3),
        "candidates": round(milliseconds(engine.n_candidates(K)), 3),
        "a_query": round(float(np.mean([len(own) for own in asked])), 2),
        "composed": round(float(np.mean([len(own) for own in rows])), 1),
    }


def searched(
    folder: Path, model: Retriever, said: list[str], composed: list[str]
) -> dict[str, Any]:
    """Open an index and search it; run in its own process."""
    before = memory_mb()
    start = time.perf_counter()
    searcher = Searcher.open(folder, model)
    found: dict[str, Any] = {"open_s": round(time.perf_counter() - start, 2)}
    found["one vector"] = timed(searcher, said, compose=False)
    found["memory_mb"] = {name: value - before[name] for name, value in memory_mb().items()}
    found["composed"] = timed(searcher, composed, **DENSE)
    found["as said"] = timed(searcher, said[:N_FEW], **DENSE)
    found["composed, exhaustive"] = timed(searcher, composed[:N_FEW], exhaustive=True, **DENSE)
    if searcher.has_lexical:
        found["one vector, hybrid"] = timed(searcher, said[:N_FEW], compose=False, hybrid=True)
        found["composed, hybrid"] = timed(searcher, composed[:N_FEW], hybrid=True)
    start = time.perf_counter()
    searcher.search_many(said, K, compose=False)
    found["batch_ms"] = round(1000 * (time.perf_counter() - start) / len(said), 2)
    found["recall@10"] = round(_recall(searcher, said), 4)
    found["candidate recall@10"] = round(candidate_recall(searcher, composed, K, **DENSE), 4)
    found["candidate recall@100"] = round(candidate_recall(searcher, composed, 100, **DENSE), 4)
    found["ratio"] = {
        name: round(found["composed"][name] / found["one vector"][name], 2)
        for name in ("p50", "search_p50", "cpu_mean")
    }
    found["stated"] = searcher.manifest.engine_settings.get("recall")
    found["probe"] = probed(searcher, composed)
    return found


def _recall(searcher: Searcher, queries: list[str]) -> float:
    """Return the share of the ten nearest that the engine finds."""
    own = searcher.search_many(queries, K, compose=False)
    exact = searcher.search_many(queries, K, compose=False, exhaustive=True)

    def ids(hits: Iterable[Hit]) -> set[str]:
        return {hit.id for hit in hits}

    shares = [len(ids(a.hits) & ids(b.hits)) / len(b.hits) for a, b in zip(own, exact, strict=True)]
    return float(np.mean(shares))


def built(
    folder: Path,
    engine: str,
    documents: list[Document],
    model: Retriever,
    stored: StoredVectors | None,
) -> dict[str, Any]:
    """Build an index; run in its own process. Encoding is timed separately."""
    spent = 0.0

    def encode(batches: Iterable[list[str]], /) -> Iterator[Any]:
        nonlocal spent
        if stored is not None:
            yield from stored.encoder()(batches)
            return
        for texts in batches:
            start = time.perf_counter()
            vectors = model.encode_documents(texts)
            spent += time.perf_counter() - start
            yield vectors

    start = time.perf_counter()
    settings = {"engine": engine, "encode": encode, "passages": 0}
    Searcher.build(folder, documents, model, lexical=False, **settings)
    found = {"build_s": round(time.perf_counter() - start - spent, 1), "encode_s": round(spent, 1)}
    found |= {"disk_mb": _size(folder), "build_peak_mb": peak_mb()}
    found["engine_mb"] = _engine_size(folder, engine, len(documents) * model.dimension * 4)
    if engine == "flat":
        start = time.perf_counter()
        Searcher.build(folder, documents, model, replace=True, **settings)
        # The segments exist already, so this is the lexical index alone.
        found["lexical_s"] = round(time.perf_counter() - start, 1)
        found["disk_with_words_mb"] = _size(folder)
    return found


def _size(folder: Path) -> float:
    return round(sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 2**20, 1)


def _engine_size(folder: Path, engine: str, vectors: int) -> float:
    """Return the megabytes that an engine searches: its own file, Milvus's, or the vectors."""
    own = {"flat": vectors / 2**20, "milvus": _size(folder / "milvus.db")}
    if (folder / "milvus.db").is_file():
        own["milvus"] = (folder / "milvus.db").stat().st_size / 2**20
    files = [path.stat().st_size for path in folder.glob("engine-*")]
    return round(own.get(engine, sum(files) / 2**20), 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folder", type=Path, help="QUEST-intro's folder")
    parser.add_argument("--taxa", type=Path, help="a built taxa folder; default: the cache")
    parser.add_argument("--size", default="full", help="of taxa: small or full")
    parser.add_argument("--documents", type=int, default=0, help="use only so many")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--vectors", type=Path, help="document vectors: .npy or .npz")
    parser.add_argument("--model", default="", help="model of the vectors: shipped or a folder")
    parser.add_argument("--out", type=Path, help="write JSON here")
    parser.add_argument(
        "--docs", type=Path, help="write the tables between the markers of this page"
    )
    parser.add_argument("--work", type=Path, help="keep the indexes here")
    parser.add_argument("--step", choices=("build", "search"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if bool(given.vectors) != bool(given.model):
        parser.error("--vectors needs --model, which encodes the queries, and the reverse")
    return given


def _data(given: argparse.Namespace) -> Dataset:
    name = "quest-intro" if given.folder else "taxa"
    return open_dataset(name, Options(folder=given.folder or given.taxa, size=given.size))


def step(given: argparse.Namespace) -> dict[str, Any]:
    """Run one step for one engine, in its own process."""
    model = load_model(given.model) if given.model else words_model()
    [engine] = given.engines
    folder = given.work / engine
    if given.step == "search":
        queries = json.loads((given.work / "queries.json").read_text())
        return searched(folder, model, queries["said"], queries["composed"])
    documents = list(islice(_data(given).documents, given.documents or None))
    stored = StoredVectors(given.vectors, documents) if given.vectors else None
    if stored is not None:
        stored.check(model, documents)
    return {"documents": len(documents), **built(folder, engine, documents, model, stored)}


def measure(engine: str, work: Path) -> dict[str, Any]:
    """Build and search the index of one engine, with the options of this program."""
    found: dict[str, Any] = {}
    for name in ("build", "search"):
        own = ["--work", str(work), "--engines", engine, "--step", name]
        command = [sys.executable, "-m", "benchmarks.search", *sys.argv[1:], *own]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{engine}: the step {name} ended with status {done.returncode}")
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure every engine."""
    given = _arguments()
    if given.step:
        print(json.dumps(step(given)))
        return
    data = _data(given)
    said, composed = queries_of(data)
    results: dict[str, Any] = {
        "corpus": "QUEST-intro" if given.folder else "taxa",
        "model": given.model or "the mean of MiniLM's word vectors",
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "cores": os.cpu_count(),
        "queries": N_QUERIES,
        "engines": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        (work / "queries.json").write_text(json.dumps({"said": said, "composed": composed}))
        for engine in given.engines:
            print(f"{engine} ...", file=sys.stderr)
            found = measure(engine, work)
            results["documents"] = found.pop("documents")
            results["engines"][engine] = found
            # Written after each engine, in case a later one fails.
            if given.out:
                given.out.write_text(json.dumps(results, indent=1) + "\n")
            print(json.dumps({engine: found}, indent=1), file=sys.stderr)
    print(page(results))
    if given.docs:
        write_page(given.docs, results)


if __name__ == "__main__":
    main()
