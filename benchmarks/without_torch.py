"""Search without torch beside its peers, in one run: encoding, one query, cold start, memory.

    python -m benchmarks.without_torch [--texts 300] [--parts documents,query,cold,memory,install]
        [--json FILE]

Every measurement runs in its own process with a fixed number of threads; systems take turns, and a
ratio is taken within a round. Documents are those of the taxa benchmark, as they are and joined to
the length of an abstract. sentence-transformers runs the same weights in torch, float32; fastembed
runs them as a float32 graph, if it is installed. ``install`` makes environments with pip.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
QUERIES = (
    "moths of Borneo but not Sumatra",
    "frogs that live in Peru or Ecuador",
    "freshwater fish of Africa that are also found in Asia",
    "birds",
)
ROUNDS = 2
#: Characters of an abstract.
ABSTRACT = 1300
N_SERVED = 200_000


def texts_of(kind: str, n: int) -> list[str]:
    """Return documents: of taxa, or joined to the length of an abstract."""
    from boolattn.data.catalog import DataOptions, open_dataset

    every = [
        document.text for document in open_dataset("taxa", DataOptions(size="small")).documents
    ]
    if kind == "taxa":
        return every[:: max(1, len(every) // n)][:n]
    joined, part = [], ""
    for text in every:
        part = f"{part} {text}"
        if len(part) > ABSTRACT:
            joined.append(part[:ABSTRACT])
            part = ""
    return joined[: max(20, n // 3)]


def measure_documents(system: str, threads: int, kind: str, n: int, graph: str) -> float:
    """Return documents a second."""
    encode = _encoder(system, threads, graph)
    texts = texts_of(kind, n)
    encode(texts[:16])
    start = time.perf_counter()
    encode(texts)
    return len(texts) / (time.perf_counter() - start)


def _encoder(system: str, threads: int, graph: str) -> Any:  # noqa: ANN401 - a function
    if system == "boolattn":
        from boolattn.encoders.models import SHIPPED, resolve
        from boolattn.encoders.onnx_encoder import OnnxEncoder

        return OnnxEncoder.load(resolve(SHIPPED), threads=threads).encode_documents
    if system == "fastembed":
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        TextEmbedding.add_custom_model(
            model="same-weights",
            pooling=PoolingType.DISABLED,
            normalization=False,
            sources=ModelSource(url="http://127.0.0.1/none"),
            dim=384,
            model_file="model.onnx",
        )
        model = TextEmbedding("same-weights", specific_model_path=graph, threads=threads)
        return lambda texts: list(model.embed(texts))
    return _torch(threads).encode_document


def _torch(threads: int) -> Any:  # noqa: ANN401 - a SentenceTransformer
    import torch
    from sentence_transformers import SentenceTransformer

    from boolattn import shipped_model

    torch.set_num_threads(threads)
    return SentenceTransformer(str(shipped_model()), device="cpu", local_files_only=True)


def measure_query(system: str, threads: int) -> float:
    """Return milliseconds of a query: planned by us, encoded alone by sentence-transformers."""
    if system == "boolattn":
        from boolattn.encoders.models import SHIPPED, resolve
        from boolattn.encoders.onnx_encoder import OnnxEncoder
        from boolattn.query.parser import load_parser
        from boolattn.query.plan import plan_queries
        from boolattn.query.reading import read_queries

        model, parser = OnnxEncoder.load(resolve(SHIPPED), threads=threads), load_parser()
        run = lambda text: plan_queries(read_queries([text], parser), model)  # noqa: E731
    else:
        bare = _torch(threads)
        run = lambda text: bare.encode_document([text])  # noqa: E731
    for text in QUERIES:
        run(text)
    times = []
    for _ in range(20):
        for text in QUERIES[:3]:
            start = time.perf_counter()
            run(text)
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def measure_cold(folder: str, *options: str) -> float:
    """Return CPU seconds of one ``boolattn search`` in a new process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = "from boolattn.cli import main; main()"
    command = [sys.executable, "-c", code, "search", folder, QUERIES[0], *options]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_memory(folder: str, device: str) -> float:
    """Return the resident megabytes of a process that answered queries."""
    from boolattn.search import Searcher, load_model

    searcher = Searcher.open(folder, load_model("shipped", device=device or None))
    for text in QUERIES * 5:
        searcher.search(text, 10)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


def child(name: str, *arguments: Any, threads: int = 0) -> float:
    """Run a measurement of this module in a new process."""
    given = json.dumps(json.dumps(arguments))
    code = f"import json, benchmarks.without_torch as b; print(b.{name}(*json.loads({given})))"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    more = {"OMP_NUM_THREADS": str(threads)} if threads else {}
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", **more}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


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
    special = {
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
    }
    (folder / "special_tokens_map.json").write_text(json.dumps(special), encoding="utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings |= {"model_max_length": 256, "max_length": 256, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def compare_documents(n: int, scratch: Path) -> list[dict[str, Any]]:
    """Measure documents a second of all systems."""
    from importlib.util import find_spec

    systems = ["boolattn", "sentence-transformers"]
    if find_spec("fastembed"):
        systems.append("fastembed")
        write_peer_graph(scratch)
    rows = []
    for kind in ("taxa", "abstracts"):
        for threads in (1, 2):
            found: dict[str, list[float]] = {name: [] for name in systems}
            for _ in range(ROUNDS):
                for name in systems:
                    value = child(
                        "measure_documents", name, threads, kind, n, str(scratch), threads=threads
                    )
                    found[name].append(value)
            row: dict[str, Any] = {"texts": kind, "threads": threads}
            row |= {name: round(statistics.median(values), 1) for name, values in found.items()}
            for name in systems[1:]:
                pairs = zip(found["boolattn"], found[name], strict=True)
                row[f"ratio to {name}"] = round(statistics.median(a / b for a, b in pairs), 2)
            rows.append(row)
            print(row, flush=True)
    return rows


def compare_query() -> list[dict[str, Any]]:
    """Measure one query: parse and operands included, beside encoding its text alone."""
    rows = []
    for threads in (1, 2):
        pairs = [
            [
                child("measure_query", name, threads, threads=threads)
                for name in ("boolattn", "torch")
            ]
            for _ in range(ROUNDS)
        ]
        ours, theirs = (round(statistics.median(values), 1) for values in zip(*pairs, strict=True))
        ratio = round(statistics.median(a / b for a, b in pairs), 2)
        rows.append({"threads": threads, "boolattn, ms": ours, "torch, ms": theirs, "ratio": ratio})
        print(rows[-1], flush=True)
    return rows


def _index(folder: Path, n: int) -> str:
    """Build an index of random vectors; what a document says does not matter here."""
    from benchmarks.service import Document, index_random

    documents = (Document(id=str(row), text=f"document {row}") for row in range(n))
    index_random(folder, documents, words=False)
    return str(folder)


def compare_cold(scratch: Path) -> dict[str, Any]:
    """Measure CPU seconds of a cold search of 1,000 documents."""
    folder = _index(scratch / "cold", 1000)
    measure_cold(folder)
    seconds = statistics.median(measure_cold(folder) for _ in range(5))
    row = {"boolattn search, CPU s": round(seconds, 2)}
    print(row, flush=True)
    return row


def compare_memory(scratch: Path) -> dict[str, Any]:
    """Measure memory while serving, in onnxruntime and in torch."""
    folder = _index(scratch / "memory", N_SERVED)
    ours, theirs = child("measure_memory", folder, ""), child("measure_memory", folder, "cpu")
    row = {
        "onnxruntime, MB": round(ours),
        "torch, MB": round(theirs),
        "ratio": round(ours / theirs, 2),
    }
    print(row, flush=True)
    return row


def compare_install(scratch: Path) -> dict[str, Any]:
    """Install both with pip; return megabytes on disk and numbers of packages."""
    row: dict[str, Any] = {}
    for name, what in (("boolattn", str(ROOT)), ("fastembed", "fastembed")):
        folder = scratch / f"env-{name}"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--no-compile", what], check=True, capture_output=True)
        files = [
            path.lstat().st_size
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        ]
        listed = subprocess.run([*pip, "list"], check=True, capture_output=True, text=True).stdout
        row |= {
            f"{name}, MB": round(sum(files) / 1e6),
            f"{name}, packages": len(listed.splitlines()) - 2,
        }
    row["ratio"] = round(row["boolattn, MB"] / row["fastembed, MB"], 2)
    print(row, flush=True)
    return row


def main() -> None:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--parts", default="documents,query,cold,memory,install")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    parts = options.parts.split(",")
    print(f"{platform.machine()}, {os.cpu_count()} processors", flush=True)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="boolattn-") as folder:
        scratch = Path(folder)
        for name, run in (
            ("documents", lambda: compare_documents(options.texts, scratch)),
            ("query", compare_query),
            ("cold", lambda: compare_cold(scratch)),
            ("memory", lambda: compare_memory(scratch)),
            ("install", lambda: compare_install(scratch)),
        ):
            if name in parts:
                found[name] = run()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
