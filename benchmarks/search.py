"""Indexing and searching a large corpus, engine by engine.

    python -m benchmarks.search [--from FOLDER] [--documents N] [--engines flat ivf hnsw milvus]

Documents are QUEST-intro's where ``--from`` names its folder, else the taxa benchmark's. The
encoder is the mean of all-MiniLM-L6-v2's word vectors: real texts in real directions, without
hours of encoding, so that times are those of the search. Every engine is searched in a process of
its own, from which its memory is read.
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

from boolattn.composition.retriever import Retriever
from boolattn.data.catalog import Options, open_dataset
from boolattn.logic.syntax import unparse
from boolattn.logic.templates import template_tree
from boolattn.search import Searcher
from boolattn.search.measuring import candidate_recall
from boolattn.weights import minilm_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from boolattn.data.records import Dataset, Document

ENGINES = ("flat", "ivf", "hnsw")
N_QUERIES = 150
K = 10


def words_model() -> Retriever:
    """Make an encoder of MiniLM's word vectors."""
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
    """Return plain queries, and composed ones in explicit syntax."""
    every = [query for split in data.splits.values() for query in split]
    plain = [query.text for query in every]
    trees = [
        unparse(template_tree(query.template, [operand.text for operand in query.operands]))
        for query in every
        if query.template not in ("", "_") and query.operands
    ]
    return _spread(plain), _spread(trees)


def _spread(texts: list[str]) -> list[str]:
    step = max(1, len(texts) // N_QUERIES)
    return texts[::step][:N_QUERIES]


def percentiles(searcher: Searcher, queries: Iterable[str], **options: Any) -> dict[str, float]:
    """Time queries one by one, in milliseconds; the processor's time forgets other processes."""
    queries = list(queries)
    for query in queries[:5]:
        searcher.search(query, K, **options)
    walls, cpus = [], []
    for query in queries:
        wall, cpu = time.perf_counter(), time.process_time()
        searcher.search(query, K, **options)
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
    return {
        "p50": round(np.percentile(walls, 50), 2),
        "p99": round(np.percentile(walls, 99), 2),
        "cpu_p50": round(np.percentile(cpus, 50), 2),
    }


def searched(folder: Path, plain: list[str], composed: list[str]) -> dict[str, Any]:
    """Open an index and search it; run in a fresh process."""
    model = words_model()
    before = _memory()
    start = time.perf_counter()
    searcher = Searcher.open(folder, model)
    found: dict[str, Any] = {"open_s": round(time.perf_counter() - start, 2)}
    found["plain"] = percentiles(searcher, plain)
    found["composed"] = percentiles(searcher, composed)
    after = _memory()
    found["memory_mb"] = {name: after[name] - before[name] for name in before}
    found["composed, exhaustive"] = percentiles(searcher, composed[:50], exhaustive=True)
    if searcher.has_lexical:
        found["plain, hybrid"] = percentiles(searcher, plain, hybrid=True)
        found["composed, hybrid"] = percentiles(searcher, composed, hybrid=True)
    start = time.perf_counter()
    searcher.search_many(plain, K)
    found["batch_ms"] = round(1000 * (time.perf_counter() - start) / len(plain), 2)
    exact = [set(map(_id, searcher.search(q, K, exhaustive=True).hits)) for q in plain]
    own = [set(map(_id, searcher.search(q, K).hits)) for q in plain]
    shares = [len(a & b) / len(b) for a, b in zip(own, exact, strict=True)]
    found["recall@10"] = round(float(np.mean(shares)), 4)
    found["candidate recall@10"] = round(candidate_recall(searcher, composed, K), 4)
    found["candidate recall@100"] = round(candidate_recall(searcher, composed, 100), 4)
    found["ratio"] = {
        name: round(found["composed"][name] / found["plain"][name], 2)
        for name in ("p50", "cpu_p50")
    }
    found["stated"] = searcher.manifest.engine_settings.get("recall")
    return found


def _id(hit: Any) -> str:  # noqa: ANN401 - a Hit
    return str(hit.id)


def _memory() -> dict[str, int]:
    """Return the process's own memory, and the pages of files that it shares with others."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        name: int(fields[field].split()[0]) >> 10
        for name, field in (("own", "RssAnon"), ("mapped files", "RssFile"))
    }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) >> 20


def measure(work: Path, engine: str, documents: list[Document], model: Retriever) -> dict[str, Any]:
    """Build one engine's index and search it in a process of its own."""
    folder = work / engine
    start = time.perf_counter()
    Searcher.build(folder, documents, model, engine=engine, lexical=False)
    bare = time.perf_counter() - start
    found = {"build_s": round(bare, 1), "disk_mb": _size(folder)}
    if engine == "flat":
        start = time.perf_counter()
        Searcher.build(folder, documents, model, engine=engine, replace=True)
        # The segments are there already, so this is the words alone.
        found["lexical_s"] = round(time.perf_counter() - start, 1)
        found["disk_with_words_mb"] = _size(folder)
    if engine == "milvus":
        # Its file serves one process, which is this one.
        queries = json.loads((work / "queries.json").read_text())
        return {**found, **searched(folder, queries["plain"], queries["composed"])}
    command = [sys.executable, "-m", "benchmarks.search", "--search", str(folder)]
    done = subprocess.run(
        [*command, "--queries", str(work / "queries.json")],
        check=True,
        capture_output=True,
        text=True,
    )
    return {**found, **json.loads(done.stdout.splitlines()[-1])}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folder", type=Path, help="QUEST-intro's folder")
    parser.add_argument("--documents", type=int, default=0, help="only so many")
    parser.add_argument("--engines", nargs="+", default=ENGINES)
    parser.add_argument("--size", default="full", help="of taxa: small or full")
    parser.add_argument("--out", type=Path, help="write JSON here")
    parser.add_argument("--work", type=Path, help="keep the indexes here")
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--queries", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure every engine."""
    arguments = _arguments()
    if arguments.search:
        queries = json.loads(arguments.queries.read_text())
        print(json.dumps(searched(arguments.search, queries["plain"], queries["composed"])))
        return
    name = "quest-intro" if arguments.folder else "taxa"
    data = open_dataset(name, Options(folder=arguments.folder, size=arguments.size))
    documents = list(islice(data.documents, arguments.documents or None))
    plain, composed = queries_of(data)
    results: dict[str, Any] = {
        "corpus": name,
        "documents": len(documents),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "cores": os.cpu_count(),
        "engines": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        (work / "queries.json").write_text(json.dumps({"plain": plain, "composed": composed}))
        model = words_model()
        for engine in arguments.engines:
            print(f"{engine} ...", file=sys.stderr)
            results["engines"][engine] = measure(work, engine, documents, model)
            print(json.dumps({engine: results["engines"][engine]}, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
