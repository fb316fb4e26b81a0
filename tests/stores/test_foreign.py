"""Composed search over collections that somebody else filled: all answer as an index does."""

import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import psycopg
import pytest
from pgvector.psycopg import register_vector
from qdrant_client import QdrantClient, models

from boolattn.encoders.callables import CallableEncoder, EmbeddingEndpoint, unit
from boolattn.errors import (
    BoolattnError,
    ConfigError,
    DataError,
    IndexMismatchError,
    MissingDataError,
    QueryError,
    ServerError,
)
from boolattn.query.plan import plan_queries
from boolattn.query.syntax import parse
from boolattn.search import Searcher
from boolattn.stores.filters import Filter
from boolattn.stores.foreign import CANDIDATES, ForeignStore
from boolattn.stores.points import postgres_server
from boolattn.stores.points.milvus import MilvusCollection
from boolattn.stores.points.postgres import PostgresCollection
from boolattn.stores.points.qdrant import QdrantCollection
from boolattn.stores.writer import titled
from tests.exact_ranking import rank_plans
from tests.parses import read_trees
from tests.search import word_model
from tests.search.conftest import crash
from tests.stores.arrays import ArrayCollection

DIMENSION = word_model.DIMENSION
DOCUMENTS = word_model.corpus()
ROWS = [{"id": d.id, "title": d.title, "text": d.text, **d.metadata} for d in DOCUMENTS]
QUERIES = ("moths Borneo", "moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)")
FILTERS = (
    None,
    {"place": "Peru"},
    {"place": ["Peru", "Kenya"], "year": {"gt": 1980, "lte": 2005.0}},
    {"place": {"not": ["Peru", "Java"]}},
    {"year": {"exists": True}, "is_old": True},
)
KINDS = ("array", "qdrant", "named", "pgvector", "pgvector-hnsw", "milvus")


@pytest.fixture(scope="module")
def vectors(retriever):
    return retriever.encode_documents([titled(d.title, d.text) for d in DOCUMENTS])


def fill_postgres(address, table, vectors, kind="vector"):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(
            f"CREATE TABLE {table} (id text PRIMARY KEY, title text, text text, place text, "
            f"year int, is_old bool, tags text[], more jsonb, e {kind}({DIMENSION}))"
        )
        register_vector(connection)
        for row, vector in zip(ROWS, vectors, strict=True):
            values = [row.get(name) for name in ("id", "title", "text", "place", "year", "is_old")]
            values += [[row["place"], "all"], json.dumps({"group": row.get("group")}), vector]
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * 9)})", values)


def fill_qdrant(client, name, vectors, *, distance="Cosine", using=""):
    params = models.VectorParams(size=DIMENSION, distance=distance)
    client.create_collection(name, {using: params} if using else params)
    points = []
    for row, vector in zip(ROWS, vectors, strict=True):
        own = vector.tolist()
        key = str(uuid.uuid5(uuid.NAMESPACE_URL, row["id"]))
        points.append(
            models.PointStruct(
                id=key,
                vector={using: own} if using else own,
                payload={**row, "about": about(row), "since": f"{row.get('year', 1000)}-03-15"},
            )
        )
    client.upsert(name, points)


@pytest.fixture(scope="module", params=KINDS)
def store(request, vectors, tmp_path_factory):
    kind = request.param
    if kind == "array":
        return ArrayCollection(vectors, ROWS)
    if kind in ("qdrant", "named"):
        client, using = QdrantClient(":memory:"), "own" if kind == "named" else ""
        fill_qdrant(client, "items", vectors, using=using)
        return QdrantCollection(client, "items", vector=using)
    if kind == "milvus":
        return milvus_collection(tmp_path_factory.mktemp("milvus") / "items.db", vectors)
    address = request.getfixturevalue("postgres").get_uri()
    table = kind.replace("-", "_")
    fill_postgres(address, table, vectors)
    if kind == "pgvector-hnsw":
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE INDEX ON {table} USING hnsw (e vector_ip_ops)")
    return PostgresCollection(address, table)


def about(row):
    """Return nested values of a row."""
    return {"at": {"place": row["place"]}, "list": [{"place": row["place"]}]}


def milvus_collection(path, vectors):
    from pymilvus import DataType, MilvusClient

    client = MilvusClient(str(path))
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
    for name in ("title", "text", "place"):
        schema.add_field(name, DataType.VARCHAR, max_length=1024)
    schema.add_field("year", DataType.INT64, nullable=True)
    schema.add_field("is_old", DataType.BOOL, nullable=True)
    schema.add_field("about", DataType.JSON)
    schema.add_field("e", DataType.FLOAT_VECTOR, dim=DIMENSION)
    index = client.prepare_index_params()
    index.add_index("e", index_type="HNSW", metric_type="COSINE", params={"M": 8})
    client.create_collection("items", schema=schema, index_params=index)
    names = ("id", "title", "text", "place", "year", "is_old")
    entries = [{name: row.get(name) for name in names} | {"about": about(row)} for row in ROWS]
    client.insert("items", [e | {"e": v} for e, v in zip(entries, vectors, strict=True)])
    return MilvusCollection(client, "items")


def of(result):
    return [hit.metadata["id"] for hit in result.hits]


def scores(result):
    return [hit.score for hit in result.hits]


def test_a_store_answers_as_an_index_does(store, retriever, shared):
    external = Searcher(store, retriever, parser=None)
    for query in QUERIES:
        for filters in FILTERS:
            result = external.search(query, k=8, filters=filters)
            right = shared.search(query, k=8, filters=filters, hybrid=False)
            assert scores(result) == pytest.approx(scores(right), abs=1e-4)
            # Other places may be shared by rows that the query does not tell apart.
            assert of(result)[:1] == [hit.id for hit in right.hits[:1]]
            assert result.is_composed == right.is_composed
    hit = external.search("moths AND Borneo NOT Sumatra", k=1).hits[0]
    assert (hit.title, hit.metadata["place"]) == ("moths Borneo", "Borneo")
    assert hit.text.startswith("moths moths")
    assert "text" not in hit.metadata


def test_a_store_gives_vectors_of_its_ids(store, vectors):
    field = store.vector_field
    [hits] = store.search(field, [vectors[0]], 3, Filter())
    rows = store.get([key for key, *_ in hits], field)
    for key, score, _ in hits:
        assert rows[key][field] @ vectors[0] == pytest.approx(score, abs=1e-5)
    assert store.get([*rows]).keys() == rows.keys()


def test_words_that_an_operand_must_not_have(store, retriever):
    external = Searcher(store, retriever, parser=None)
    query = "moths AND Borneo NOT Sumatra"
    assert "both" not in of(external.search(query, k=25))
    assert "both" in of(external.search(query, k=25, strict_not=False))
    # No tags of kinds are stored: the texts are read. Two names side by side are none.
    far = [hit.metadata for hit in external.search("moths NOT Asia", k=25).hits]
    assert {row["place"] for row in far if row["id"] != "both"} == {"Peru", "Ecuador", "Kenya"}
    assert len(external.search("moths NOT Asia", k=25, kinds=False).hits) == 25
    with pytest.raises(QueryError, match=r"filter 'place': .* cannot filter by contains; use ="):
        external.search("moths", k=1, filters={"place": {"contains": "sum"}})


def test_a_row_is_an_operand(store, retriever):
    external = Searcher(store, retriever, parser=None)
    [first, second] = external.search("moths AND Borneo", k=2).hits
    result = external.search(f"like:{first.id} NOT birds", k=3)
    assert first.id not in [hit.id for hit in result.hits]
    assert second.id in [hit.id for hit in result.hits]
    again = external.search(positive=[f"like:{first.id}"], negative=["birds"], k=3)
    assert scores(again) == pytest.approx(scores(result), abs=1e-4)
    missing = str(uuid.uuid4()) if isinstance(store, QdrantCollection) else "999"
    with pytest.raises(QueryError, match=f"like:{missing}: no document has the id"):
        external.search(f"like:{missing} NOT birds")


CONDITIONS = (
    ("year>=1990", {"year": {"gte": 1990}}),
    ("year:1990..2000", {"year": {"gte": 1990, "lte": 2000}}),
    ("year=1990", {"year": 1990}),
    ("place:Java", {"place": "Java"}),
    ("place!=Java", {"place": {"not": "Java"}}),
    ("NOT place=Java", {"place": {"not": "Java"}}),
    ("year=*", {"year": {"exists": True}}),
    ("NOT year=*", {"year": {"exists": False}}),
)


def test_a_condition_that_every_row_must_meet_is_a_filter(store, retriever, shared):
    external = Searcher(store, retriever, parser=None)
    for condition, filters in CONDITIONS:
        result = external.search(f"moths AND Borneo AND {condition}", k=25)
        right = external.search("moths AND Borneo", k=25, filters=filters)
        assert set(of(result)) == set(of(right)) != set()
        assert scores(result) == pytest.approx(scores(right), abs=1e-4)
    # A row without a year does not hold the condition, which is what NOT asks for.
    for condition in ("NOT year<1990", "NOT year>=1990"):
        query = f"(moths AND {condition}) NOT Sumatra"
        result = external.search(query, k=25, strict_not=False)
        right = shared.search(query, k=25, strict_not=False)
        assert set(of(result)) == {hit.id for hit in right.hits} != set()
    assert "both" in of(external.search("moths NOT year<1990", k=25))
    batch = external.search_many(["moths AND year>=1990", "moths", "moths AND year<1990"], k=25)
    assert [len(result.hits) for result in batch] == [16, 25, 8]
    for query in ("moths OR year>=1990", "(moths AND year>=1990) OR birds"):
        with pytest.raises(
            QueryError, match=r"year.*1990: a collection takes .* an index of ours$"
        ):
            external.search(query)
    for query in ("moths NOT (birds OR year<1990)", "(moths OR birds) AND year>=1990"):
        result = external.search(query, k=25, strict_not=False)
        right = shared.search(query, k=25, strict_not=False)
        assert set(of(result)) == {hit.id for hit in right.hits} != set()
    with pytest.raises(QueryError, match="'old' is neither a number nor a date; between quotes"):
        external.search("moths AND year>=old")
    assert external.search("moths AND year>=1990 NOT year>=1990").hits == ()


def test_weights_count_in_a_store_as_in_an_index(store, retriever, shared):
    external = Searcher(store, retriever, parser=None)
    for query in ("moths^5 AND Peru", "moths AND Peru^5", "moths^3 OR birds", "moths NOT Java^4"):
        result = external.search(query, k=8, strict_not=False)
        right = shared.search(query, k=8, hybrid=False, strict_not=False)
        assert scores(result) == pytest.approx(scores(right), abs=1e-4)
        without = external.search(
            query.split("^")[0] + query.split("^")[1][1:], k=8, strict_not=False
        )
        assert scores(result) != pytest.approx(scores(without), abs=1e-4)
    lists = {"positive": ["moths^5", "Peru"], "negative": ["Java^4"], "k": 8}
    right = shared.search(**lists, hybrid=False)
    assert scores(external.search(**lists)) == pytest.approx(scores(right), abs=1e-4)


class Counted(ArrayCollection):
    """Remembers what it is asked."""

    def search(self, field, queries, n, where, *names):
        self.asked = [*getattr(self, "asked", []), (len(queries), n)]
        return super().search(field, queries, n, where, *names)

    def get(self, ids, *names):
        if not names:
            self.read = [*getattr(self, "read", []), len(ids)]
        return super().get(ids, *names)


class Topics:
    """Rows about two topics each, and an encoder that knows the topics."""

    def __init__(self, n, n_topics=20, dimension=384):
        generator = np.random.default_rng(3)
        self.topics = unit(generator.standard_normal((n_topics, dimension)).astype(np.float32))
        pairs = generator.integers(0, n_topics, (n, 2))
        noise = generator.standard_normal((n, dimension)) / dimension**0.5
        self.vectors = unit((self.topics[pairs].sum(1) + noise).astype(np.float32))
        self.rows = [{"text": f"topic{a} topic{b}", "n": i} for i, (a, b) in enumerate(pairs)]

    def embed(self, texts):
        named = [[int(w[5:]) for w in text.split() if w.startswith("topic")] for text in texts]
        return np.stack([self.topics[numbers].sum(0) for numbers in named])

    def queries(self, n):
        generator = np.random.default_rng(4)
        shapes = ("{} NOT {}", "{} AND {}", "{} AND {} NOT {}", "{} OR {}")
        for number in range(n):
            chosen = generator.choice(len(self.topics), 3, replace=False)
            yield shapes[number % len(shapes)].format(*(f"topic{topic}" for topic in chosen))


def test_few_candidates_find_what_composing_every_row_finds():
    corpus = Topics(6000)
    store = Counted(corpus.vectors, corpus.rows)
    external = Searcher(store, corpus.embed, parser=None)
    n_found = 0
    for text in (queries := list(corpus.queries(24))):
        plans = plan_queries(read_trees([parse(text)]), external.encoder)
        right = set(rank_plans(plans, corpus.vectors, 10).rows[0].tolist())
        n_found += len(
            right & {hit.metadata["n"] for hit in external.search(text, strict_not=False).hits}
        )
    assert n_found >= 0.98 * 10 * len(queries)
    # One request for the neighbours of all probes, one for the rows.
    assert len(store.asked) == len(store.read) == len(queries)
    assert {n for _, n in store.asked} == {CANDIDATES}
    assert max(store.read) == 10
    n_read = len(store.read)
    external.search("topic1 NOT topic2")
    assert len(store.read) == n_read + 2  # also for what NOT leaves out
    assert store.read[-1] <= 32
    # They are among the neighbours that were asked for.
    assert store.asked[len(queries) :] == [(2, CANDIDATES)]


def test_what_needs_an_index_or_cannot_be_is_one_line(store, retriever, shared):
    external = Searcher(store, retriever, parser=None)
    with pytest.raises(ConfigError, match="has no words; leave out hybrid, or index words"):
        external.search("moths", hybrid=True)
    with pytest.raises(ConfigError, match="cannot compare every document: leave out exhaustive"):
        external.search("moths NOT birds", exhaustive=True)
    with pytest.raises(QueryError, match="k must be at least 1"):
        external.search("moths", k=0)
    other = Searcher(store, lambda texts: np.ones((len(texts), 3)), parser=None)
    with pytest.raises(IndexMismatchError, match=r"vectors of length 32, and .* has 3; use"):
        other.search("moths NOT birds")
    result = external.search("moths AND Borneo", k=2, offset=1)
    assert of(result) == of(external.search("moths AND Borneo", k=3))[1:]


def test_plain_text_is_parsed_by_the_shipped_parser(vectors, retriever):
    external = Searcher(ArrayCollection(vectors, ROWS), retriever)
    result = external.search("moths of Borneo but not Sumatra", k=25, strict_not=False)
    assert result.is_composed
    assert result.hits[0].verdict == "kept"
    assert of(result)[0] == "moths-borneo"
    assert of(result).index("both") > 2


def test_dot_ranks_as_cosine_for_vectors_of_length_one(vectors, retriever):
    right = Searcher(ArrayCollection(vectors, ROWS), retriever, parser=None)
    external = Searcher(ArrayCollection(vectors, ROWS, metric="dot"), retriever, parser=None)
    for query in QUERIES:
        assert scores(external.search(query)) == pytest.approx(
            scores(right.search(query)), abs=1e-4
        )


def test_a_ranking_that_would_be_wrong_is_refused(vectors, retriever, postgres):
    longer = vectors * np.linspace(1, 3, len(vectors))[:, None].astype(np.float32)
    # Cosine does not mind the length.
    external = Searcher(ArrayCollection(longer, ROWS), retriever, parser=None)
    right = Searcher(ArrayCollection(vectors, ROWS), retriever, parser=None)
    expected = pytest.approx(scores(right.search(QUERIES[1])), abs=1e-4)
    assert scores(external.search(QUERIES[1])) == expected
    with pytest.raises(ConfigError, match="compares vectors by l2; composed search needs cosine"):
        Searcher(ArrayCollection(vectors, ROWS, metric="l2"), retriever)
    client = QdrantClient(":memory:")
    fill_qdrant(client, "far", vectors, distance="Manhattan")
    with pytest.raises(ConfigError, match="compares vectors by manhattan"):
        Searcher(QdrantCollection(client, "far"), retriever)
    fill_postgres(postgres.get_uri(), "l2", vectors)
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE INDEX ON l2 USING hnsw (e vector_l2_ops)")
    with pytest.raises(ConfigError, match="compares vectors by L2 distance; composed"):
        Searcher(PostgresCollection(postgres.get_uri(), "l2"), retriever)


def test_rows_without_a_vector_are_not_found(vectors, retriever, postgres):
    address = postgres.get_uri()
    fill_postgres(address, "holes", [None, *vectors[1:]])
    external = Searcher(PostgresCollection(address, "holes"), retriever, parser=None)
    assert len(external.search("moths NOT birds", k=25, strict_not=False).hits) == 24


def test_columns_of_lists_and_json_are_filtered(vectors, retriever, postgres):
    address = postgres.get_uri()
    fill_postgres(address, "halves", vectors, kind="halfvec")
    external = Searcher(PostgresCollection(address, "halves"), retriever, parser=None)
    for filters in ({"tags": "Peru"}, {"place": "Peru", "more.group": "moths"}):
        assert of(external.search("moths NOT birds", k=1, filters=filters)) == ["moths-peru"]
    result = external.search(
        "moths NOT birds", k=25, filters={"tags": {"not": "Peru"}}, strict_not=False
    )
    assert len(result.hits) == 21
    with pytest.raises(QueryError, match="no column 'colour'; there are: id, title"):
        external.search("moths", filters={"colour": "red"})
    for option, there in (("vector", "'e'"), ("text", "'id', "), ("title", "'id', ")):
        with pytest.raises(ConfigError, match=f"has no {option} 'x'; there are: {there}"):
            PostgresCollection(address, "halves", **{option: "x"})


def test_values_inside_json_are_filtered(store, retriever):
    if not isinstance(store, (QdrantCollection, MilvusCollection)):
        return
    external = Searcher(store, retriever, parser=None)
    for value in ("Peru", ["Peru", "Kenya"], {"not": "Peru"}, {"exists": True}, []):
        inside, plain = (
            external.search("moths NOT birds", k=25, filters={name: value}, strict_not=False)
            for name in ("about.at.place", "place")
        )
        assert of(inside) == of(plain)
    assert not external.search("moths", filters={"about.at.x": {"exists": True}}).hits
    result = external.search("moths AND NOT about.at.place=Peru", k=25)
    assert {hit.metadata["place"] for hit in result.hits} == {d["place"] for d in ROWS} - {"Peru"}


def test_nested_values_are_no_facets(store, retriever):
    result = Searcher(store, retriever, parser=None).search("moths", facets=True)
    assert {facet.field for facet in result.facets} & {"place", "about"} == {"place"}


DATES = (
    ({"gte": "1990"}, lambda year: year >= 1990),
    ({"lte": "1990-03"}, lambda year: year <= 1990),
    ({"lt": "1990-03"}, lambda year: year < 1990),
    ({"gt": "1990-03"}, lambda year: year > 1990),
    ({"gte": "1990-03-15", "lte": "1990-03-15"}, lambda year: year == 1990),
    ({"gt": "1990-03-15T00:00:00Z"}, lambda year: year > 1990),
)


@pytest.mark.parametrize("store", ["qdrant"], indirect=True)
@pytest.mark.parametrize(("limits", "is_in"), DATES)
def test_a_limit_that_is_a_month_or_a_year_has_a_length(store, retriever, limits, is_in):
    external = Searcher(store, retriever, parser=None)
    result = external.search("moths", k=25, filters={"since": limits})
    assert {*of(result)} == {row["id"] for row in ROWS if is_in(row.get("year", 1000))} != set()


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    for kind, name in ((QdrantCollection, "folder"), (MilvusCollection, "file.db")):
        with pytest.raises(MissingDataError, match=rf"it\): there is no database at .*{name}"):
            kind(str(tmp_path / name), "it")
    assert not [*tmp_path.iterdir()]


def test_a_server_that_is_killed_is_one_line_and_found_again(vectors, retriever, own_postgres):
    address = own_postgres.get_uri()
    fill_postgres(address, "items", vectors)
    external = Searcher(PostgresCollection(address, "items"), retriever, parser=None)
    before = of(external.search(QUERIES[1]))
    crash(own_postgres)
    with pytest.raises(ServerError, match=r"Postgres \(items\): ") as caught:
        external.search(QUERIES[1])
    assert "\n" not in str(caught.value)
    own_postgres.start()
    assert of(external.search(QUERIES[1])) == before


def test_a_slow_or_deleted_store_is_one_line(vectors, retriever, postgres, monkeypatch):
    address = postgres.get_uri()
    fill_postgres(address, "busy", vectors)
    monkeypatch.setattr(postgres_server, "TIMEOUT", 0.3)
    external = Searcher(PostgresCollection(address, "busy"), retriever, parser=None)
    with psycopg.connect(address) as other:
        other.execute("LOCK TABLE busy IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ServerError, match="statement timeout"):
            external.search("moths NOT birds")
    assert len(external.search("moths NOT birds").hits) == 10
    with psycopg.connect(address) as other:
        other.execute("DROP TABLE busy")
    with pytest.raises(ServerError, match='relation "busy" does not exist'):
        external.search("moths NOT birds")
    client = QdrantClient(":memory:")
    fill_qdrant(client, "items", vectors)
    external = Searcher(QdrantCollection(client, "items"), retriever, parser=None)
    client.delete_collection("items")
    with pytest.raises(ServerError, match=r"Qdrant \(items\): .*not found"):
        external.search("moths NOT birds")
    for missing in (
        lambda: QdrantCollection(client, "gone"),
        lambda: QdrantCollection("http://127.0.0.1:9", "items"),
        lambda: PostgresCollection("postgresql://127.0.0.1:9/x", "items"),
    ):
        with pytest.raises(ServerError) as caught:
            missing()
        assert "\n" not in str(caught.value)


class Endpoint(BaseHTTPRequestHandler):
    """Answers as an embedding endpoint does, as the path says."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "/slow/" in self.path:
            time.sleep(1)
        code = 401 if "/locked/" in self.path and "Authorization" not in self.headers else 200
        data = [
            {"index": place, "embedding": vector.tolist()}
            for place, vector in enumerate(self.server.encode(asked["input"]))
        ]
        body = json.dumps({"data": data[::-1]} if "/odd/" not in self.path else {}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def endpoint(retriever):
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.encode = retriever.encode_queries
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_endpoint_encodes(endpoint, vectors, retriever, monkeypatch):
    store = ArrayCollection(vectors, ROWS)
    right = Searcher(store, retriever, parser=None).search(QUERIES[1])
    assert of(Searcher(store, f"{endpoint}/v1/", parser=None).search(QUERIES[1])) == of(right)
    with pytest.raises(ServerError, match=r"answers 401 .*is SOME_KEY set"):
        EmbeddingEndpoint(f"{endpoint}/locked/v1", key_variable="SOME_KEY")(["moths"])
    monkeypatch.setenv("SOME_KEY", "k")
    assert len(EmbeddingEndpoint(f"{endpoint}/locked/v1", key_variable="SOME_KEY")(["moths"])) == 1
    with pytest.raises(ServerError, match="does not answer"):
        EmbeddingEndpoint(f"{endpoint}/slow/v1", timeout=0.2)(["moths"])
    with pytest.raises(ServerError, match="not with embeddings"):
        EmbeddingEndpoint(f"{endpoint}/odd/v1")(["moths"])
    with pytest.raises(ServerError, match="does not answer"):
        EmbeddingEndpoint("http://127.0.0.1:9/v1")(["moths"])
    with pytest.raises(ConfigError, match="begins with http"):
        EmbeddingEndpoint("ftp://x")


def test_encoders_that_are_none_are_refused(vectors):
    store = ArrayCollection(vectors, ROWS)
    for embed, what in ((lambda _: [[1.0]], "shape"), (lambda _: "no", "no array of numbers")):
        with pytest.raises(DataError, match=what):
            Searcher(store, embed, parser=None).search("moths NOT birds")
    with pytest.raises(BoolattnError, match="does not encode"):
        Searcher(store, 7)


def test_texts_are_searched_without_a_folder(retriever):
    texts = [d.text for d in DOCUMENTS]
    searcher = Searcher.from_texts(texts, retriever)
    folder, result = searcher.store.folder, searcher.search(QUERIES[1], k=3)
    assert DOCUMENTS[int(result.hits[0].id)].id == "moths-borneo"
    rows = Searcher.from_texts(ROWS, retriever).search("moths", 1, filters={"year": {"gte": 2005}})
    assert rows.hits[0].id == "moths-kenya"
    own = CallableEncoder(lambda own: retriever.encode_queries(own))
    assert len(Searcher.from_texts(texts, own)) == 25
    del searcher
    assert not Path(folder).exists()
    with pytest.raises(DataError, match="document 1 has no text under 'text': "):
        Searcher.from_texts(["moths", {"title": "x"}], retriever)


def test_an_encoder_of_long_vectors_gives_cosines(vectors, retriever):
    collection = ArrayCollection(vectors, ROWS)
    right = Searcher(collection, retriever, parser=None)
    long = CallableEncoder(lambda texts: 7 * retriever.encode_queries(texts), similarity="dot")
    external = Searcher(collection, long, parser=None)
    for query in QUERIES:
        assert scores(external.search(query)) == pytest.approx(
            scores(right.search(query)), abs=1e-4
        )
    # An inner product counts the length.
    dot = Searcher(ArrayCollection(vectors, ROWS, metric="dot"), long, parser=None)
    expected = [7 * score for score in scores(right.search("moths Borneo"))]
    assert scores(dot.search("moths Borneo")) == pytest.approx(expected, abs=1e-3)


def test_a_collection_is_read_and_never_written(vectors, retriever):
    external = Searcher(ArrayCollection(vectors, ROWS), retriever, parser=None)
    assert len(external) == 0
    assert (external.settings.words, external.fields, external.facets, external.examples) == (
        False,
        [],
        (),
        (),
    )
    assert external.document("3").metadata["place"] == "Peru"
    with pytest.raises(DataError, match="no document '999' in the array"):
        external.document("999")
    for change in (lambda: external.add([DOCUMENTS[0]]), lambda: external.delete(["3"])):
        with pytest.raises(ConfigError, match="the array is only read; make an index of it"):
            change()
    assert external.store.info()["dimension"] == DIMENSION


class Worded(ArrayCollection):
    """Has a word index of its own, which knows whole words alone."""

    def describe(self):
        return [*super().describe()[:3], ["words"]]

    def search(self, field, queries, n, where, *names):
        if field != "words":
            return super().search(field, queries, n, where, *names)
        self.asked = [*getattr(self, "asked", []), (list(queries), n, len(where.conditions))]
        answers = []
        for text in queries:
            terms = set(text.split())
            words = [set(row["text"].lower().replace("moths", "moth").split()) for row in ROWS]
            counts = {row: float(len(terms & known)) for row, known in enumerate(words)}
            best = sorted((row for row in counts if counts[row]), key=lambda row: -counts[row])[:n]
            answers.append([(row, counts[row], {}) for row in best])
        return answers


def test_a_word_index_of_the_collection_counts(vectors, retriever):
    collection = Worded(np.roll(vectors, 1, axis=0), ROWS)  # the vectors are of other rows
    external = Searcher(collection, retriever, parser=None)
    assert external.settings.words
    by_vector = external.search("moths AND Borneo", k=3, hybrid=False)
    assert not by_vector.hybrid
    assert not hasattr(collection, "asked")
    both = external.search("moths AND Borneo", k=3, filters={"place": "Borneo"})
    assert both.hybrid
    assert both.warnings[-1] == "words are those of the array's own index"
    # All operands and conjunctions in one request, with the conditions.
    [(texts, n, n_conditions)] = collection.asked
    assert texts == ["moth", "borneo", "moth borneo"]
    assert (n, n_conditions) == (ForeignStore.max_word_hits, 1)
    assert scores(both) != scores(by_vector)
