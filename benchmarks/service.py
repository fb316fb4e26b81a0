"""The service under concurrent load, with and without batching.

    python -m benchmarks.service [--index DIR | --documents N] [--clients 1 8 32] [--requests 400]

Starts ``boolattn serve`` with batching and without, and sends requests from concurrent clients,
each waiting for its response before the next request. Every query is different, and every response
is checked against its query. The two services take turns, so that a busy machine slows both.
Without --index an index of synthetic documents with random vectors is built for the shipped model:
valid for times, not for results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np

from boolattn.search import Document, Searcher, load_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Queries in one batch, and milliseconds that the first one waits.
MODES = {"batched": (32, 2.0), "one by one": (1, 0.0)}
GROUPS = ("moths", "orchids", "beetles", "birds", "frogs", "bats", "ferns", "spiders", "snails")
PLACES = ("Borneo", "Sumatra", "Peru", "Ecuador", "Kenya", "Uganda", "Brazil", "Mexico", "Java")
FORMS = ("{a} of {b}", "{a} of {b} but not {c}", "{a} AND {b} NOT {c}", "{a} of {b} or {c}")


@dataclass
class Load:
    """Results of one load.

    Attributes:
        mode: Batched or one by one.
        clients: Concurrent clients.
        requests: Number of requests.
        wrong: Responses that were an error, or did not belong to the query.
        p50_ms: Median latency.
        p99_ms: 99th percentile of the latency.
        per_second: Responses per second.
        batch: Mean batch size.
    """

    mode: str
    clients: int
    requests: int
    wrong: int
    p50_ms: float
    p99_ms: float
    per_second: float
    batch: float


def make_queries(n: int, seed: int) -> list[str]:
    """Return different queries, a quarter of each form."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < n:
        a, (b, c) = rng.choice(GROUPS), rng.choice(PLACES, 2, replace=False)
        text = FORMS[len(found) % len(FORMS)].format(a=a, b=b, c=c)
        found[f"{text} {len(found)}"] = None
    return list(found)


def build_synthetic(folder: Path, n: int) -> None:
    """Index synthetic documents with random vectors."""
    rng = np.random.default_rng(0)
    model = load_model("shipped")

    def encode(batches: Iterable[list[str]]) -> Iterator[np.ndarray]:
        for batch in batches:
            vectors = rng.standard_normal((len(batch), model.dimension), dtype=np.float32)
            yield vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    documents = (
        Document(
            id=str(i),
            title=f"Species {i}",
            text=f"A species of {GROUPS[i % 9]} found in {PLACES[i // 9 % 9]}. " + "Word " * 40,
        )
        for i in range(n)
    )
    Searcher.build(folder, documents, model, encode=encode, model="shipped")


@contextmanager
def service(index: Path, mode: str) -> Iterator[str]:
    """Run the service, and stop it with SIGTERM."""
    size, wait = MODES[mode]
    options = ["--port", "0", "--batch-size", str(size), "--batch-wait", str(wait)]
    options += ["--concurrency", "1000", "--timeout", "120", "--no-compare"]
    command = [sys.executable, "-c", "from boolattn.cli import main; main()", "serve", str(index)]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    try:
        yield process.stdout.readline().strip() if process.stdout else ""
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            raise SystemExit(f"the service ended with status {process.returncode}")
    finally:
        process.kill()


async def load(address: str, mode: str, n_clients: int, queries: list[str]) -> Load:
    """Send all queries from concurrent clients."""
    pending = list(reversed(queries))
    seconds: list[float] = []
    wrong = 0

    async def one_client(client: httpx2.AsyncClient) -> None:
        nonlocal wrong
        while pending:
            query = pending.pop()
            start = time.perf_counter()
            response = await client.post("/search", json={"query": query, "k": 10})
            seconds.append(time.perf_counter() - start)
            found = response.json()
            is_right = response.status_code == 200 and found["query"] == query
            wrong += not (is_right and len(found["hits"]) == 10)

    limits = httpx2.Limits(max_connections=n_clients, max_keepalive_connections=n_clients)
    async with httpx2.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        before = await _calls(client)
        start = time.perf_counter()
        await asyncio.gather(*(one_client(client) for _ in range(n_clients)))
        took = time.perf_counter() - start
        after = await _calls(client)
    seconds.sort()
    return Load(
        mode=mode,
        clients=n_clients,
        requests=len(queries),
        wrong=wrong + len(queries) - len(seconds),
        p50_ms=1000 * statistics.median(seconds),
        p99_ms=1000 * seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))],
        per_second=len(seconds) / took,
        batch=(after[0] - before[0]) / max(1, after[1] - before[1]),
    )


async def _calls(client: httpx2.AsyncClient) -> tuple[float, float]:
    """Return the numbers of queries and of batches so far, from the service's metrics."""
    text = (await client.get("/metrics")).text
    found = [re.search(rf"^boolattn_batch_queries_{n} (\S+)", text, re.M) for n in ("sum", "count")]
    return tuple(float(value[1]) if value else 0.0 for value in found)  # type: ignore[return-value]


def joined(rounds: list[Load]) -> Load:
    """Return the medians of the rounds, and the sum of wrong responses."""
    first = rounds[0]
    numbers: dict[str, Any] = {
        name: statistics.median(getattr(one, name) for one in rounds)
        for name in ("p50_ms", "p99_ms", "per_second", "batch")
    }
    return Load(
        mode=first.mode,
        clients=first.clients,
        requests=sum(one.requests for one in rounds),
        wrong=sum(one.wrong for one in rounds),
        **numbers,
    )


def measure(index: Path, args: argparse.Namespace) -> list[Load]:
    """Load both services in turn, round by round."""
    found: dict[tuple[int, str], list[Load]] = {}
    with service(index, "batched") as batched, service(index, "one by one") as alone:
        addresses = {"batched": batched, "one by one": alone}
        for number in range(args.rounds):
            for n_clients in args.clients:
                for mode, address in addresses.items():
                    queries = make_queries(args.requests, seed=1000 * number + n_clients)
                    one = asyncio.run(load(address, mode, n_clients, queries))
                    found.setdefault((n_clients, mode), []).append(one)
    return [joined(rounds) for rounds in found.values()]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", type=Path)
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        index = args.index or Path(folder) / "index"
        if args.index is None:
            build_synthetic(index, args.documents)
        rows = measure(index, args)
    print("clients  mode        requests  wrong   p50 ms   p99 ms      1/s      batch size")
    for row in rows:
        print(
            f"{row.clients:7}  {row.mode:10} {row.requests:9} {row.wrong:6} {row.p50_ms:8.1f} "
            f"{row.p99_ms:8.1f} {row.per_second:8.1f} {row.batch:15.1f}"
        )
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    if any(row.wrong for row in rows):
        raise SystemExit("responses were missing or wrong")


if __name__ == "__main__":
    main()
