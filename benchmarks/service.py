"""The service under concurrent load, with and without batching.

    python -m benchmarks.service [--index DIR | --documents N] [--clients 1 8 32] [--requests 400]
    python -m benchmarks.service --overload [--seconds 10]

Starts ``boolattn serve`` with batching and without, and sends requests from concurrent clients,
each waiting for its response before the next request. Every query is different, and every response
is checked against its query. The two services take turns, so that a busy machine slows both.
With --overload one service with its usual limits gets as many requests as it can answer, and four
and eight times as many. Without --index an index of synthetic documents with random vectors is
built for the shipped model: valid for times, not for results.
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import numpy as np

from boolattn.search import Document, Searcher

#: Queries in one batch, and milliseconds that the first one waits.
MODES = {"batched": (32, 2.0), "one by one": (1, 0.0)}
GROUPS = ("moths", "orchids", "beetles", "birds", "frogs", "bats", "ferns", "spiders", "snails")
PLACES = ("Borneo", "Sumatra", "Peru", "Ecuador", "Kenya", "Uganda", "Brazil", "Mexico", "Java")
FORMS = ("{a} of {b}", "{a} of {b} but not {c}", "{a} AND {b} NOT {c}", "{a} of {b} or {c}")


def make_queries(n: int, seed: int) -> list[str]:
    """Return different queries, a quarter of each form."""
    rng, queries = np.random.default_rng(seed), list[str]()
    for number in range(n):
        a, (b, c) = rng.choice(GROUPS), rng.choice(PLACES, 2, replace=False)
        queries.append(f"{FORMS[number % len(FORMS)].format(a=a, b=b, c=c)} {number}")
    return queries


def random_vectors(batches: Iterable[list[str]]) -> Iterator[np.ndarray]:
    """Yield vectors of the shipped model's length in place of an encoder's."""
    rng = np.random.default_rng(0)
    for batch in batches:
        vectors = rng.standard_normal((len(batch), 384), dtype=np.float32)
        yield vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def index_random(folder: Path, documents: Iterable[Document]) -> None:
    """Index documents with random vectors."""
    Searcher.build(folder, documents, "shipped", encode=random_vectors)


def synthetic(n: int) -> Iterator[Document]:
    """Yield documents about groups and places."""
    for i in range(n):
        text = f"A species of {GROUPS[i % 9]} found in {PLACES[i // 9 % 9]}. " + "Word " * 40
        yield Document(id=str(i), title=f"Species {i}", text=text)


def options_of(mode: str) -> list[str]:
    """Return options of a service without limits."""
    size, wait = MODES[mode]
    limits = ["--concurrency", "1000", "--per-client", "1000", "--timeout", "120"]
    return [*limits, "--batch-size", str(size), "--batch-wait", str(wait)]


@contextmanager
def service(index: Path, options: list[str]) -> Iterator[tuple[str, int]]:
    """Run the service, and stop it with SIGTERM; its address and the process that serves."""
    command = [sys.executable, "-m", "boolattn", "serve", str(index), "--port", "0"]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    try:
        address = process.stdout.readline().strip() if process.stdout else ""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        yield address, int(children.split()[0])
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            raise SystemExit(f"the service ended with status {process.returncode}")
    finally:
        process.kill()


async def load(address: str, mode: str, n_clients: int, queries: list[str]) -> dict[str, Any]:
    """Send all queries from concurrent clients; count errors and answers to other queries."""
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
        start = time.perf_counter()
        await asyncio.gather(*(one_client(client) for _ in range(n_clients)))
        took = time.perf_counter() - start
    return {
        "mode": mode,
        "clients": n_clients,
        "requests": len(queries),
        "wrong": wrong + len(queries) - len(seconds),
        "p50 ms": 1000 * float(np.quantile(seconds, 0.5)),
        "p99 ms": 1000 * float(np.quantile(seconds, 0.99)),
        "per second": len(seconds) / took,
    }


def joined(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of the rounds, and the sums of requests and of wrong responses."""
    medians = {n: statistics.median(r[n] for r in rounds) for n in [*rounds[0]][4:]}
    return rounds[0] | {n: sum(r[n] for r in rounds) for n in ("requests", "wrong")} | medians


def measure(index: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Load both services in turn, round by round."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    batched, alone = (service(index, options_of(mode)) for mode in MODES)
    with batched as (first, _), alone as (second, _):
        addresses = dict(zip(MODES, (first, second), strict=True))
        for number in range(args.rounds):
            for n_clients in args.clients:
                for mode, address in addresses.items():
                    queries = make_queries(args.requests, seed=1000 * number + n_clients)
                    one = asyncio.run(load(address, mode, n_clients, queries))
                    found.setdefault((n_clients, mode), []).append(one)
    return [joined(rounds) for rounds in found.values()]


async def flood(address: str, per_second: float, seconds: float) -> dict[str, float]:
    """Send requests at a rate, from eight addresses, whether they are answered or not."""
    queries = make_queries(round(per_second * seconds) + 1, seed=round(per_second))

    async def ask(client: httpx2.AsyncClient, number: int) -> tuple[int, float]:
        start, body = time.perf_counter(), {"query": queries[number]}
        headers = {"X-Forwarded-For": f"10.0.0.{number % 8}"}
        try:
            reply = await client.post("/search", json=body, headers=headers)
        except httpx2.HTTPError:
            return -1, 0.0
        is_wrong = reply.status_code == 200 and reply.json()["query"] != queries[number]
        return -1 if is_wrong else reply.status_code, 1000 * (time.perf_counter() - start)

    limits = httpx2.Limits(max_connections=400)
    async with httpx2.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        start, tasks = time.perf_counter(), []
        for number in range(len(queries) - 1):
            tasks.append(asyncio.create_task(ask(client, number)))
            await asyncio.sleep(max(0.0, start + number / per_second - time.perf_counter()))
        end = time.perf_counter()
        while (await ask(client, -1))[0] != 200:
            await asyncio.sleep(0.01)
        recovery = time.perf_counter() - end
        replies = await asyncio.gather(*tasks)
    answered, refused = ([ms for got, ms in replies if got == status] for status in (200, 503))
    return {
        "requests": len(replies),
        "answered": len(answered),
        "refused": len(refused),
        "wrong": len(replies) - len(answered) - len(refused),
        "p50 ms": np.quantile(answered, 0.5),
        "p99 ms": np.quantile(answered, 0.99),
        "refusal ms": np.quantile(refused or [0], 0.5),
        "recovery s": recovery,
    }


def overload(index: Path, args: argparse.Namespace) -> list[dict[str, float]]:
    """Give a service with its usual limits more requests than it can answer."""
    with service(index, ["--trusted-proxy", "127.0.0.1"]) as (address, process):
        queries, rows = make_queries(args.requests, seed=0), []
        asyncio.run(load(address, "batched", 8, queries[:40]))
        capacity = asyncio.run(load(address, "batched", 32, queries))["per second"]
        for times in (1, 4, 8):
            row = asyncio.run(flood(address, times * capacity, args.seconds))
            memory = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
            rows.append({"load": times} | row | {"MB": int(memory[1]) >> 10 if memory else 0})
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table."""
    print("".join(f"{name:>12}" for name in rows[0]))
    for row in rows:
        texts = (f"{v:.1f}" if isinstance(v, float) else str(v) for v in row.values())
        print("".join(f"{text:>12}" for text in texts))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", type=Path)
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        index = args.index or Path(folder) / "index"
        if args.index is None:
            index_random(index, synthetic(args.documents))
        rows = overload(index, args) if args.overload else measure(index, args)
    show(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if any(row["wrong"] for row in rows):
        raise SystemExit("responses were missing or wrong")


if __name__ == "__main__":
    main()
