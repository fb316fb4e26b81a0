"""Speed of search beside its peers, in one run: the table of ``make bench``, in five minutes.

    python -m benchmarks.without_torch [--parts documents,query,service,cold,install,memory]

Systems take turns in small blocks, so that a busy machine slows all of them; a ratio is taken
within a block, and the table shows medians. Texts are those of the taxa benchmark: their first 20
words, whole (110 tokens), and joined to 1,300 characters. Peers are those that are installed:
sentence-transformers runs the same weights in torch, fastembed as a graph, both in float32, each
with batches of its default size and of one text, of which the faster counts. boolattn runs 7-bit
weights, one text at a time in each thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
QUERY = "moths of Borneo but not Sumatra"
#: Characters of a long text, and texts of each length.
LONG, SIZES = 1300, {"short": 64, "taxa": 32, "long": 16}
BLOCKS = 4
N_SEARCHED, N_SERVED, N_CLIENTS, N_REQUESTS = 5000, 200_000, 16, 160
DIMENSION = 384
COLUMNS = ("what", "boolattn", "other", "ratio", "aim", "peer")
PEERS = ("sentence-transformers", "fastembed")


def texts_of(kind: str) -> list[str]:
    """Return documents: short, of taxa, or long."""
    from boolattn.data.catalog import DataOptions, open_dataset

    n, dataset = SIZES[kind], open_dataset("taxa", DataOptions(size="small"))
    every = [document.text for document in dataset.documents]
    if kind == "long":
        joined = " ".join(every[: 8 * n])
        return [joined[LONG * i : LONG * (i + 1)] for i in range(n)]
    chosen = every[:: len(every) // n][:n]
    return chosen if kind == "taxa" else [" ".join(text.split()[:20]) for text in chosen]


def encoders(graph: str, threads: int) -> dict[str, Callable[[list[str]], Any]]:
    """Return what encodes documents, by system and setting; 0 threads: what each takes."""
    from boolattn.encoders.models import SHIPPED, resolve
    from boolattn.encoders.onnx_encoder import OnnxEncoder

    ours = OnnxEncoder.load(resolve(SHIPPED), threads=threads or None)
    systems: dict[str, Callable[[list[str]], Any]] = {"boolattn": ours.encode_documents}
    if find_spec("sentence_transformers"):
        plain = _torch(threads)
        systems["sentence-transformers"] = plain.encode_document
        systems["sentence-transformers, batch 1"] = partial(plain.encode_document, batch_size=1)
    if find_spec("fastembed"):
        other = _fastembed(graph, threads)
        systems["fastembed"] = lambda texts: list(other.embed(texts))
        systems["fastembed, batch 1"] = lambda texts: list(other.embed(texts, batch_size=1))
    return systems


def _torch(threads: int) -> Any:  # noqa: ANN401 - a SentenceTransformer
    import torch
    from sentence_transformers import SentenceTransformer

    from boolattn import shipped_model

    if threads:
        torch.set_num_threads(threads)
    return SentenceTransformer(str(shipped_model()), device="cpu", local_files_only=True)


def _fastembed(graph: str, threads: int) -> Any:  # noqa: ANN401 - a TextEmbedding
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model="same-weights",
        pooling=PoolingType.DISABLED,
        normalization=False,
        sources=ModelSource(url="http://127.0.0.1/none"),
        dim=DIMENSION,
        model_file="model.onnx",
    )
    return TextEmbedding("same-weights", specific_model_path=graph, threads=threads or None)


def measure_documents(graph: str, threads: int) -> list[dict[str, Any]]:
    """Return documents a second of all systems, for each length of texts."""
    systems, rows = encoders(graph, threads), []
    for kind in SIZES:
        texts = texts_of(kind)
        speeds: dict[str, list[float]] = {name: [] for name in systems}
        for block in range(BLOCKS):
            part = texts[block::BLOCKS]
            for name, encode in systems.items():
                if not block:
                    encode(part[:2])
                speeds[name].append(len(part) / _seconds(lambda e=encode, p=part: e(p)))
        for peer in PEERS:
            settings = [name for name in systems if name.startswith(peer)]
            if settings:
                best = max(settings, key=lambda name: np.median(speeds[name]))
                what = f"documents a second, {kind}, threads: {threads or 'default'}"
                aim = 2 if kind == "long" else {"fastembed": 4}.get(peer, 3)
                rows.append(_row(what, speeds["boolattn"], best, speeds[best], f">= {aim}"))
    return rows


def _row(
    what: str, ours: list[float], peer: str, theirs: list[float], aim: str = ""
) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    values = [round(float(np.median(column)), 2) for column in (ours, theirs, ratios)]
    return dict(zip(COLUMNS, (what, *values, aim, peer), strict=True))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure_query(index: str, threads: int) -> list[dict[str, Any]]:
    """Return milliseconds of a query of new words, and where they go; of a peer, of its text."""
    from benchmarks.service import make_queries
    from boolattn.encoders.models import SHIPPED, resolve
    from boolattn.encoders.onnx_encoder import OnnxEncoder
    from boolattn.query.parser import load_parser
    from boolattn.query.plan import plan_queries
    from boolattn.query.reading import QueryReader
    from boolattn.search import Searcher

    model, parser = OnnxEncoder.load(resolve(SHIPPED), threads=threads), load_parser()
    searcher = Searcher.open(index, model)
    encode = _torch(threads).encode_query if find_spec("sentence_transformers") else len
    steps: dict[str, list[float]] = {}
    for text in make_queries(48, seed=7):
        model._recent.cache_clear()  # as if nobody had asked before
        parser._recent.cache_clear()
        plan = 1000 * _seconds(lambda t=text: plan_queries([QueryReader(parser).read(t)], model))
        parser._recent.cache_clear()
        took = {"plan": plan, "parse": 1000 * _seconds(lambda t=text: parser.parse([t]))}
        result = searcher.search(text)
        took["spelling and titles"] = result.took["read"]
        took["vectors and words"] = result.took["filter"] + result.took["vectors"]
        took["documents"] = result.took["documents"]
        took["again"] = 1000 * _seconds(lambda t=text: searcher.search(t))
        took["peer"] = 1000 * _seconds(lambda t=text: encode([t]))
        for name, value in took.items():
            steps.setdefault(name, []).append(value)
    steps = {name: values[8:] for name, values in steps.items()}
    what = f"one query, ms: parse and operands, threads: {threads}"
    rows = [_row(what, steps.pop("plan"), PEERS[0], theirs := steps.pop("peer"), "<= 0.55")]
    return rows + [_row(f"- {name}", values, PEERS[0], theirs) for name, values in steps.items()]


def write_peer_graph(folder: Path) -> None:
    """Write the document tower in float32 for fastembed."""
    import shutil

    from boolattn import TorchEncoder, shipped_model
    from boolattn.encoder.export.graphs import TowerGraph, write_graph

    source = shipped_model()
    towers = TorchEncoder.load(source, device="cpu").towers
    write_graph(TowerGraph(towers, "document"), folder / "model.onnx")
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copyfile(source / name, folder / name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": 0}), encoding="utf-8")
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "unk")}
    (folder / "special_tokens_map.json").write_text(json.dumps(special), encoding="utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings |= {"model_max_length": 256, "max_length": 256, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def serve_peer(graph: str, workers: str) -> None:
    """Serve plain vector queries: FastAPI, fastembed and numpy."""
    import uvicorn
    from fastapi import FastAPI

    from boolattn.service.app import address_of, listen
    from boolattn.service.supervisor import supervise

    listeners = listen("127.0.0.1", 0, int(workers))
    listener, ready = supervise(listeners, address_of(listeners[0]))
    model, app = _fastembed(graph, 1), FastAPI()
    vectors = np.random.default_rng(0).standard_normal((N_SEARCHED, DIMENSION), dtype=np.float32)

    @app.post("/search")
    def search(body: dict[str, Any]) -> dict[str, Any]:
        [vector] = model.embed([body["query"]])
        scores = vectors @ vector
        best = np.argsort(-scores)[: body["k"]]
        hits = [{"id": str(row), "score": float(scores[row])} for row in best]
        return {"query": body["query"], "hits": hits}

    ready()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


@contextmanager
def peer_service(graph: Path, workers: str) -> Iterator[str]:
    """Run the peer's service, one thread for each query, its faster setting; yield its address."""
    module = "benchmarks.without_torch"
    command = [sys.executable, "-W", "ignore", "-m", module, "--peer", str(graph), workers]
    variables = _environment() | {"OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
    try:
        yield process.stdout.readline().strip() if process.stdout else ""
    finally:
        process.terminate()


def compare_service(index: Path, graph: Path, workers: str) -> list[dict[str, Any]]:
    """Load both services in turn from concurrent clients; return queries a second."""
    from benchmarks.service import load, make_queries, service

    if not find_spec("fastembed"):
        return []
    speeds: dict[str, list[float]] = {"boolattn": [], "FastAPI": []}
    options = ["--per-client", "1000", "--workers", workers]
    with service(index, options) as (ours, _), peer_service(graph, workers) as theirs:
        for block in range(BLOCKS + 1):
            for name, address in (("boolattn", ours), ("FastAPI", theirs)):
                queries = make_queries(N_REQUESTS, seed=block)
                row = asyncio.run(load(address, name, N_CLIENTS, queries))
                if row["wrong"]:
                    raise SystemExit(f"{name}: {row['wrong']} wrong responses")
                speeds[name].append(row["per second"])
    what = f"queries a second, {N_CLIENTS} clients, {N_SEARCHED:,} documents, processes: {workers}"
    pair = [values[1:] for values in speeds.values()]
    return [_row(what, pair[0], "FastAPI, fastembed, numpy", pair[1], ">= 0.6")]


def compare_cold(index: Path) -> list[dict[str, Any]]:
    """Return CPU seconds of one ``boolattn search`` in a new process."""
    command = [sys.executable, "-m", "boolattn", "search", str(index), QUERY]
    seconds = []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, env=_environment())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(sum(after[:2]) - sum(before[:2]))
    return [_row("cold search, CPU s", seconds[1:], "", [np.nan] * 5, "<= 0.8")]


def compare_install() -> list[dict[str, Any]]:
    """Return megabytes of the core and of a peer, with what they need, as installed here."""
    if not find_spec("fastembed"):
        return []
    ours = installed_mb("boolattn") + _megabytes((ROOT / "src" / "boolattn").rglob("*.*"))
    return [
        _row("core installation, MB", [ours], "fastembed", [installed_mb("fastembed")], "<= 1.3")
    ]


def installed_mb(root: str) -> float:
    """Return megabytes of a package and all that it needs; byte code is not counted."""
    from packaging.requirements import Requirement

    names, pending, total = set[str](), [root], 0.0
    while pending:
        name = pending.pop().lower().replace("_", "-")
        if name not in names:
            names.add(name)
            package = distribution(name)
            total += _megabytes(package.locate_file(file) for file in package.files or ())
            needed = map(Requirement, package.requires or ())
            pending += [r.name for r in needed if not r.marker or r.marker.evaluate({"extra": ""})]
    return total


def _megabytes(paths: Any) -> float:  # noqa: ANN401 - paths
    files = {Path(path) for path in paths if "__pycache__" not in str(path)}
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def write_served(folder: str) -> list[dict[str, Any]]:
    """Add documents with random vectors to an index of one document."""
    from benchmarks.service import Document, index_random, random_vectors
    from boolattn.search import Searcher

    index_random(Path(folder), [Document(id="first", text="a moth of Borneo")])
    documents = (Document(id=str(row), text=f"moth {row} of Java") for row in range(N_SERVED))
    Searcher.open(folder).add(documents, encode=random_vectors)
    return []


def measure_memory(folder: str) -> list[dict[str, Any]]:
    """Return resident megabytes that an index adds to one of one document, after queries."""
    from benchmarks.resource_usage import memory_mb
    from benchmarks.service import make_queries
    from boolattn.search import Searcher

    sizes, small = [], Searcher.from_texts(["a moth of Borneo"])
    for searcher in (small, Searcher.open(folder, small.encoder)):
        for text in make_queries(20, seed=0):
            searcher.search(text, 10)
        sizes.append(sum(memory_mb().values()))
    what, vectors = f"memory added to {sizes[0]} MB", len(searcher) * DIMENSION * 4 / 2**20
    return [_row(what, [sizes[1] - sizes[0]], "vectors alone", [vectors], "<= 1.3")]


def _environment(threads: int = 0) -> dict[str, str]:
    """Return variables of a child process; byte code is kept, as where things are installed."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    chosen = {"OMP_NUM_THREADS": str(threads), "BOOLATTN_THREADS": str(threads)} if threads else {}
    others = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return {**others, "PYTHONPATH": path, **quiet, **chosen}


def child(name: str, *arguments: Any, threads: int = 0) -> list[dict[str, Any]]:
    """Run a measurement of this module in a new process; return its rows."""
    values = json.dumps(json.dumps(arguments))
    code = f"import json, benchmarks.without_torch as b; r = b.{name}(*json.loads({values}))"
    command = [sys.executable, "-W", "ignore", "-c", f"{code}; print(json.dumps(r))"]
    printed = subprocess.check_output(command, text=True, env=_environment(threads))
    rows: list[dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return rows


def main() -> None:
    """Measure the chosen parts and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--parts", default="documents,query,service,cold,install,memory")
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        serve_peer(*options.peer)
        return
    from benchmarks.service import index_random, synthetic

    print(f"{platform.machine()}, {os.cpu_count()} processors\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="boolattn-") as folder:
        graph, index, served = (Path(folder) / name for name in ("graph", "index", "served"))
        graph.mkdir()
        index_random(index, synthetic(N_SEARCHED))
        if find_spec("fastembed") and {"documents", "service"} & {*options.parts.split(",")}:
            write_peer_graph(graph)
        parts: dict[str, list[Callable[[], list[dict[str, Any]]]]] = {
            "documents": [
                lambda n=n: child("measure_documents", str(graph), n, threads=n) for n in (0, 1)
            ],
            "query": [lambda n=n: child("measure_query", str(index), n, threads=n) for n in (1, 2)],
            "service": [lambda n=n: compare_service(index, graph, n) for n in "12"],
            "cold": [lambda: compare_cold(index)],
            "install": [compare_install],
            "memory": [
                lambda: child("write_served", str(served)),
                lambda: child("measure_memory", str(served)),
            ],
        }
        for measure in (m for name in options.parts.split(",") for m in parts[name]):
            for row in measure():
                print(f"| {' | '.join(str(row[name]) for name in COLUMNS)} |", flush=True)


if __name__ == "__main__":
    main()
