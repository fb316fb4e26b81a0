"""Estimate of the resources for a billion documents, from measurements of ``benchmarks.search``.

    python -m benchmarks.billion RESULTS.json [--documents N] [--node-gb G] [--node-cores C]

Measured: memory per document in the engine, processor time of one neighbour search, searches and
candidates of a composed query, size of the index folder. Assumed, and printed as such: the machines
and their price, and that the search time of a graph grows with the logarithm of its size.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BILLION = 1_000_000_000
#: Share of a machine's memory for vectors.
USABLE = 0.75


@dataclass(frozen=True)
class Nodes:
    """Assumed machines.

    Attributes:
        gb: Memory of one, in gigabytes.
        cores: Of one.
        core_hour: Dollars for an hour of one core, with its memory.
    """

    gb: float = 64.0
    cores: int = 16
    core_hour: float = 0.05


@dataclass(frozen=True)
class Measured:
    """Measurements of a run.

    Attributes:
        documents: Number of indexed documents.
        bytes_in_memory: Of one document in the engine.
        bytes_on_disk: Of one document in the index's folder: text, metadata, vector.
        plain_ms: Processor time of one search for 10 neighbours.
        probe_ms: Processor time of one search for the candidates of a composed query.
        probes: Searches of a composed query.
        candidates: Documents whose scores are composed for it.
        compose_ms: Processor time of composing.
        read_ms: Time to parse and encode a query.
    """

    documents: int
    bytes_in_memory: float
    bytes_on_disk: float
    plain_ms: float
    probe_ms: float
    probes: float
    candidates: float
    compose_ms: float
    read_ms: float

    @classmethod
    def of(cls, results: dict[str, Any], engine: str) -> Measured:
        """Return the measurements of one engine."""
        own, n = results["engines"][engine], results["documents"]
        flat = results["engines"].get("flat", own)
        return cls(
            documents=n,
            # faiss maps its file and needs all of it; for Milvus the measured memory counts.
            bytes_in_memory=2**20
            * (sum(own["memory_mb"].values()) if engine == "milvus" else own["engine_mb"])
            / n,
            bytes_on_disk=flat["disk_mb"] * 2**20 / n,
            plain_ms=own["probe"]["10"],
            probe_ms=own["probe"]["candidates"],
            probes=own["probe"]["a_query"],
            candidates=own["probe"]["composed"],
            compose_ms=own["probe"]["compose"],
            read_ms=own["one vector"]["read_p50"],
        )


def estimate(measured: Measured, nodes: Nodes, n: int = BILLION) -> dict[str, float]:
    """Compute the resources for ``n`` documents."""
    a_shard = math.floor(nodes.gb * 1e9 * USABLE / measured.bytes_in_memory)
    shards = math.ceil(n / a_shard)
    size = n / shards
    growth = max(1.0, math.log(size) / math.log(measured.documents))
    plain = shards * measured.plain_ms * growth
    composed = shards * measured.probes * measured.probe_ms * growth + measured.compose_ms
    a_second = shards * nodes.cores * 1000
    return {
        "documents": n,
        "memory_tb": n * measured.bytes_in_memory / 1e12,
        "disk_tb": n * measured.bytes_on_disk / 1e12,
        "documents_a_shard": size,
        "shards": shards,
        "growth": growth,
        "plain_core_ms": plain,
        "composed_core_ms": composed,
        "plain_latency_ms": measured.read_ms + measured.plain_ms * growth,
        "composed_latency_ms": measured.read_ms
        + math.ceil(measured.probes / nodes.cores) * measured.probe_ms * growth
        + measured.compose_ms,
        "plain_a_second": a_second / plain,
        "composed_a_second": a_second / composed,
        "plain_dollars_a_million": plain / 3.6e6 * nodes.core_hour * 1e6,
        "composed_dollars_a_million": composed / 3.6e6 * nodes.core_hour * 1e6,
        "cluster_dollars_an_hour": shards * nodes.cores * nodes.core_hour,
    }


def report(measured: Measured, engine: str, nodes: Nodes, n: int = BILLION) -> str:
    """Return the estimate in Markdown."""
    own = estimate(measured, nodes, n)
    return f"""\
Measured ({engine}, {measured.documents:,} documents): {measured.bytes_in_memory:,.0f} bytes of
memory a document; {measured.plain_ms:.2f} ms of one core for 10 neighbours, {measured.probe_ms:.2f}
ms for the candidates of one vector; a composed query has {measured.probes:.1f} such vectors and
composes {measured.candidates:,.0f} documents in {measured.compose_ms:.1f} ms;
{measured.bytes_on_disk:,.0f} bytes of a document on disk.

Assumed: machines of {nodes.gb:g} GB and {nodes.cores} cores, {USABLE:.0%} of the memory for
vectors, {nodes.core_hour:g} dollars per core and hour; the search time of a graph grows with the
logarithm of its size, here by {own["growth"]:.2f}; a query searches all shards in parallel.

{_table(own)}
"""


def _table(own: dict[str, float]) -> str:
    size = own["documents_a_shard"] / 1e6

    def both(form: str, name: str) -> tuple[str, str]:
        return form.format(own[f"plain_{name}"]), form.format(own[f"composed_{name}"])

    same = "the same"
    rows = (
        (f"{own['documents']:,.0f} documents", "one vector", "composed"),
        ("---",) * 3,
        ("memory of the vectors and their graph", f"{own['memory_tb']:.2f} TB", same),
        ("shards, one per machine", f"{own['shards']:,.0f} of {size:.1f} million", same),
        ("texts, metadata and vectors for composing", f"{own['disk_tb']:.2f} TB on disk", same),
        ("processor time of a query, all cores", *both("{:,.0f} ms", "core_ms")),
        ("a million queries", *both("${:,.2f}", "dollars_a_million")),
        ("maximum queries per second", *both("{:,.0f}", "a_second")),
        ("latency of a single query", *both("{:.0f} ms", "latency_ms")),
        ("cost of the machines", f"${own['cluster_dollars_an_hour']:,.2f} an hour", same),
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print the estimate of a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="output of benchmarks.search --out")
    parser.add_argument("--documents", type=int, default=BILLION)
    parser.add_argument("--node-gb", type=float, default=Nodes.gb)
    parser.add_argument("--node-cores", type=int, default=Nodes.cores)
    parser.add_argument("--core-hour", type=float, default=Nodes.core_hour)
    given = parser.parse_args()
    results = json.loads(given.results.read_text())
    nodes = Nodes(given.node_gb, given.node_cores, given.core_hour)
    print(both(results, nodes, given.documents))


def both(results: dict[str, Any], nodes: Nodes, n: int = BILLION) -> str:
    """Return the estimates by faiss and by Milvus Lite, which have the same kind of graph.

    A cluster searches in C++ as faiss does, so it lies between them: Milvus Lite passes every
    result through Python.
    """
    labels = {"hnsw": "From the graph alone (faiss)", "milvus": "From Milvus Lite"}
    found = [
        f"**{labels[engine]}.** {report(Measured.of(results, engine), engine, nodes, n)}"
        for engine in labels
        if engine in results["engines"]
    ]
    return "\n".join(found)


if __name__ == "__main__":
    main()
