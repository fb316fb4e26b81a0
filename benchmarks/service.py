"""The service under concurrent load: nothing lost, no error, and what batching is worth.

    python -m benchmarks.service [--index DIR | --documents N] [--clients 1 8 32] [--requests 400]

Starts ``boolattn serve`` as a process of its own, with batching and without, and asks it from so
many clients at once, each waiting for its answer before it asks again. Every question is another
one, and every answer must be the answer to it. The two ways take turns, so that a slow moment of
the machine touches both. Without --index an index of made-up documents with random vectors is
built for the shipped model: good for times, not for results.
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

#: Batching on and off: queries in one call, milliseconds that the first one waits.
WAYS = {"batched": (32, 2.0), "one by one": (1, 0.0)}
GROUPS = ("moths", "orchids", "beetles", "birds", "frogs", "bats", "ferns", "spiders", "snails")
PLACES = ("Borneo", "Sumatra", "Peru", "Ecuador", "Kenya", "Uganda", "Brazil", "Mexico", "Java")
FORMS = ("{a} of {b}", "{a} of {b} but not {c}", "{a} AND {b} NOT {c}", "{a} of {b} or {c}")


@dataclass
class Load:
    """What one load gave.

    Attributes:
        way: Batched or not.
        clients: At once.
        requests: Sent.
        wrong: Answers that were an error, or the answer to another question.
        p50_ms: Half of the answers took less.
        p99_ms: 99 of 100 took less.
        per_second: Answers.
        batch: Mean queries of one call.
    """

    way: str
    clients: int
    requests: int
    wrong: int
    p50_ms: float
    p99_ms: float
    per_second: float
    batch: float


def questions(n: int, seed: int) -> list[str]:
    """Make different questions, a quarter of each form."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < n:
        a, (b, c) = rng.choice(GROUPS), rng.choice(PLACES, 2, replace=False)
        text = FORMS[len(found) % len(FORMS)].format(a=a, b=b, c=c)
        found[f"{text} {len(found)}"] = None
    return list(found)


def made_up(folder: Path, n: int) -> None:
    """Index documents whose vectors are random."""
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
def service(index: Path, way: str) -> Iterator[str]:
    """Run the service, and end it as an operator would."""
    size, wait = WAYS[way]
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


async def load(address: str, way: str, n_clients: int, asked: list[str]) -> Load:
    """Ask all questions from so many clients."""
    waiting = list(reversed(asked))
    seconds: list[float] = []
    wrong = 0

    async def one_client(client: httpx2.AsyncClient) -> None:
        nonlocal wrong
        while waiting:
            question = waiting.pop()
            start = time.perf_counter()
            answer = await client.post("/search", json={"query": question, "k": 10})
            seconds.append(time.perf_counter() - start)
            found = answer.json()
            is_right = answer.status_code == 200 and found["query"] == question
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
        way=way,
        clients=n_clients,
        requests=len(asked),
        wrong=wrong + len(asked) - len(seconds),
        p50_ms=1000 * statistics.median(seconds),
        p99_ms=1000 * seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))],
        per_second=len(seconds) / took,
        batch=(after[0] - before[0]) / max(1, after[1] - before[1]),
    )


async def _calls(client: httpx2.AsyncClient) -> tuple[float, float]:
    """Return queries and calls of the searcher so far, from the service's own metrics."""
    text = (await client.get("/metrics")).text
    found = [re.search(rf"^boolattn_batch_queries_{n} (\S+)", text, re.M) for n in ("sum", "count")]
    return tuple(float(value[1]) if value else 0.0 for value in found)  # type: ignore[return-value]


def joined(rounds: list[Load]) -> Load:
    """Take the median of the rounds, and all that was wrong in any."""
    first = rounds[0]
    numbers: dict[str, Any] = {
        name: statistics.median(getattr(one, name) for one in rounds)
        for name in ("p50_ms", "p99_ms", "per_second", "batch")
    }
    return Load(
        way=first.way,
        clients=first.clients,
        requests=sum(one.requests for one in rounds),
        wrong=sum(one.wrong for one in rounds),
        **numbers,
    )


def measure(index: Path, args: argparse.Namespace) -> list[Load]:
    """Ask both services in turn, round by round."""
    found: dict[tuple[int, str], list[Load]] = {}
    with service(index, "batched") as batched, service(index, "one by one") as alone:
        addresses = {"batched": batched, "one by one": alone}
        for number in range(args.rounds):
            for n_clients in args.clients:
                for way, address in addresses.items():
                    asked = questions(args.requests, seed=1000 * number + n_clients)
                    one = asyncio.run(load(address, way, n_clients, asked))
                    found.setdefault((n_clients, way), []).append(one)
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
            made_up(index, args.documents)
        rows = measure(index, args)
    print("clients  way         requests  wrong   p50 ms   p99 ms      1/s  queries a call")
    for row in rows:
        print(
            f"{row.clients:7}  {row.way:10} {row.requests:9} {row.wrong:6} {row.p50_ms:8.1f} "
            f"{row.p99_ms:8.1f} {row.per_second:8.1f} {row.batch:15.1f}"
        )
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    if any(row.wrong for row in rows):
        raise SystemExit("answers were lost or wrong")


if __name__ == "__main__":
    main()
