"""A store in Postgres: built, changed, searched, stopped, and its errors."""

import math
import threading

import numpy as np
import psycopg
import pytest

from boolattn.data.records import Document
from boolattn.encoders.callables import CallableEncoder
from boolattn.errors import (
    BoolattnError,
    ConfigError,
    DataError,
    IndexBusyError,
    IndexFolderError,
    IndexMismatchError,
    QueryError,
    ServerError,
)
from boolattn.search import Searcher
from boolattn.stores.address import parse_postgres
from boolattn.stores.analysis import document_terms, term_weights
from boolattn.stores.filters import Filter, read_filters, resolve
from boolattn.stores.points import postgres as postgres_store
from boolattn.stores.points.postgres import PostgresCollection
from boolattn.stores.points.store import PointStore
from boolattn.stores.settings import StoreSettings
from boolattn.stores.writer import batches
from tests.search.conftest import crash

DIMENSION = 32
SETTINGS = StoreSettings(fingerprint="abc", dimension=DIMENSION, model="tiny", vectors="hnsw")
TEXTS = (
    "Moths of Borneo. They fly at night and rest by day.",
    "Birds of Peru, without moths.",
    "A cake without eggs. Bake it for an hour in an oven.",
    "Eggs of birds, and of moths: eggs, eggs, eggs.",
    "Nut-free bread from Kenya",
    "100% of snow_leopards are cats",
)
METADATA = (
    {"year": 1990, "place": "Borneo", "tags": ["insects", "night"], "on": "2024-03-01"},
    {"year": 2000, "place": "Peru", "tags": ["birds"], "on": "2024-04-15"},
    {"place": "Kitchen", "is_old": True},
    {"year": [1980, 2010], "place": ["Java", "Peru"]},
    {"place": "Kenya", "on": "2023-01-01T12:00:00Z"},
    {},
)
DOCUMENTS = [
    Document(id=f"d{number}", title=f"Title {number}", text=text, metadata=metadata)
    for number, (text, metadata) in enumerate(zip(TEXTS, METADATA, strict=True))
]


@pytest.fixture(scope="module")
def server(postgres):
    return postgres


@pytest.fixture
def address(server, request):
    return f"{server.get_uri()}&table={request.node.name.split('[')[0][:39]}"


def encoded(text):
    """A vector of a text alone."""
    vector = np.random.default_rng(list(text.encode())).normal(size=DIMENSION)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def passage_vectors(batch):
    rows = [
        encoded(entry.document.text[start:end]) for entry in batch for start, end in entry.spans
    ]
    return np.stack(rows)


def fill(draft, documents, size=2, n_tokens=0):
    n_written = 0
    for batch in batches(documents, size, n_tokens):
        if not draft.has(batch):
            draft.write(batch, passage_vectors(batch))
            n_written += len(batch)
    return n_written


def build(address, documents=DOCUMENTS, settings=SETTINGS, **options):
    with PointStore.create(address, settings, **options) as draft:
        fill(draft, documents, n_tokens=settings.passages)
    return PointStore.open(address)


def ids(store, keys):
    return [document.id for document in store.documents(np.asarray(keys, np.int64))]


def execute(server, statement):
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        return connection.execute(statement)


def tables_of(server, address):
    """Return the name that the tables of a store have in common."""
    view = f"SELECT boolattn_collection FROM {address.partition('table=')[2]}"
    with psycopg.connect(server.get_uri()) as connection:
        return connection.execute(view).fetchone()[0]


@pytest.fixture(scope="module")
def store(server):
    """A store that no test changes."""
    return build(f"{server.get_uri()}&table=shared")


@pytest.mark.parametrize("vectors", ["hnsw", "exact"])
def test_neighbours_are_those_of_all_vectors(address, vectors):
    documents = [Document(id=f"d{n}", text=f"text {n}") for n in range(300)]
    settings = StoreSettings(fingerprint="f", dimension=DIMENSION, vectors=vectors)
    store = build(address, documents, settings, replace=True)
    matrix = np.stack([encoded(document.text) for document in documents])
    queries = np.stack([encoded(f"query {n}") for n in range(3)])
    products = queries @ matrix.T
    numbers = {key: int(name[1:]) for name, key in store.find([d.id for d in documents]).items()}
    every = {number: key for key, number in numbers.items()}
    for scores, ranked in zip(products, store.nearest(queries, 20, Filter()), strict=True):
        found = [numbers[key] for key in ranked.rows.tolist()]
        assert found == np.argsort(-scores)[:20].tolist()
        np.testing.assert_allclose(ranked.scores, np.sort(scores)[::-1][:20], atol=1e-5)
    keys = np.array([every[7], every[3], every[299], 10**6])
    right = np.column_stack([products[:, [7, 3, 299]], np.zeros(3)])
    np.testing.assert_allclose(store.similarities(queries, keys), right, atol=1e-5)
    assert store.similarities(queries, keys[:0]).shape == (3, 0)
    assert len(store.nearest(queries, 1000, Filter())[0].rows) == 300
    np.testing.assert_allclose(store.vectors(["d5", "x"])["d5"], matrix[5], atol=1e-6)


def test_vectors_are_stored_in_half_the_bytes(address, server):
    # Not searched: the tests' pgvector computes these with instructions that not every ARM has.
    settings = StoreSettings(
        fingerprint="f", dimension=DIMENSION, vectors="exact", precision="float16"
    )
    store = build(address, settings=settings)
    np.testing.assert_allclose(store.vectors(["d1"])["d1"], encoded(TEXTS[1]), atol=1e-3)
    sizes = f"SELECT DISTINCT pg_column_size(vector) FROM {tables_of(server, address)}"
    with psycopg.connect(server.get_uri()) as connection:
        assert connection.execute(sizes).fetchone()[0] < 3 * DIMENSION


def right_scores(terms, documents=DOCUMENTS):
    counts = [document_terms(document, None).counts for document in documents]
    mean = sum(c.total() for c in counts) / len(counts)
    scores = {}
    for document, own in zip(documents, counts, strict=True):
        weights = term_weights(own, mean)
        for term in terms:
            n = sum(term in c for c in counts)
            if term in own:
                idf = math.log(1 + (len(counts) - n + 0.5) / (n + 0.5))
                scores[document.id] = scores.get(document.id, 0) + idf * weights[term]
    return scores


FILTERS = (
    ({"place": "Peru"}, "13"),
    ({"place": ["Borneo", "Kenya"]}, "04"),
    ({"place": {"not": "Peru"}}, "0245"),
    ({"tags": "night"}, "0"),
    ({"year": {"gte": 1990}}, "013"),
    ({"year": {"lt": 1990}}, "3"),
    ({"year": {"gt": 1990, "lte": 2000}}, "13"),
    ({"on": {"gte": "2024-03", "lt": "2024-04"}}, "0"),
    ({"on": {"lte": "2023"}}, "4"),
    ({"on": "2024-03-01"}, "0"),
    ({"year": {"exists": True}}, "013"),
    ({"year": {"exists": False}}, "245"),
    ({"is_old": True}, "2"),
    ({"place": []}, ""),
)


def conditions(store, filters):
    return tuple(resolve(condition, store.fields()) for condition in read_filters(filters))


def passing(store, where):
    """Digits of the documents that pass, by every kind of search."""
    [near] = store.nearest(encoded("x")[None], 10, where)
    [words] = store.words([["titl"]], 10, where)
    assert store.count(where) == len(near.rows)
    assert set(near.rows.tolist()) == set(words.rows.tolist())
    return "".join(sorted(name[1:] for name in ids(store, near.rows)))


def test_a_graph_is_asked_with_a_filter(store, monkeypatch):
    monkeypatch.setattr(postgres_store, "_FEW", 0)
    for filters, right in FILTERS:
        assert passing(store, Filter(conditions(store, filters))) == right
    assert passing(store, Filter(lacking=(("moth",),))) == "1245"


def test_a_stopped_build_is_resumed_or_begun_again(address):
    def stopped(**options):
        with PointStore.create(address, SETTINGS, **options) as draft:
            fill(draft, DOCUMENTS[:4])
            raise KeyError("stopped")

    with pytest.raises(KeyError):
        stopped()
    # One document changed, another stands with it, and two were written.
    changed = Document(id="d1", text="Moths of Java")
    with PointStore.create(address, SETTINGS, resume=True) as draft:
        assert draft.known(["d0"]) == set()
        corpus = [DOCUMENTS[2], DOCUMENTS[3], changed, DOCUMENTS[0], *DOCUMENTS[4:]]
        assert fill(draft, corpus) == 4
    store = PointStore.open(address)
    assert sorted(d.id for d in store.sample(9)) == [f"d{n}" for n in range(6)]
    assert store.info()["documents"] == store.info()["passages"] == 6
    assert store.frequencies(["peru", "java"]) == [1, 2]  # one in the metadata
    with pytest.raises(KeyError):
        stopped(replace=True)
    assert store.count(Filter()) == 6
    with pytest.raises(IndexFolderError, match=r"holds an index: add .*, or build it again with"):
        build(address)
    assert build(address, resume=True).count(Filter()) == 6


def test_the_old_store_is_searched_until_the_new_one_is_complete(address):
    store = build(address)
    with PointStore.create(address, SETTINGS, replace=True) as draft:
        fill(draft, DOCUMENTS[:3])
        assert store.count(Filter()) == 6
        assert store.words([["kenya"]], 5, Filter())[0].rows.size == 1
        with pytest.raises(IndexBusyError, match="is being written by another process; wait"):
            store.delete(["d0"])
        errors = []
        thread = threading.Thread(target=search_until, args=(store, errors))
        thread.start()
    thread.join()
    assert errors == []
    assert store.refresh()
    assert not store.refresh()
    assert store.count(Filter()) == 3
    assert store.find(["d5"]) == {}
    with pytest.raises(DataError, match="the corpus holds no documents"):
        build(address, [], replace=True)
    assert store.count(Filter()) == 3


def search_until(store, errors):
    """Search while the tables are replaced."""
    try:
        while store.count(Filter()) == 6:
            store.nearest(encoded("x")[None], 3, Filter(lacking=(("moth",),)))
    except ServerError as error:
        errors.append(error)


def test_documents_are_added_replaced_and_deleted(address, server):
    store = build(address, DOCUMENTS[:4])
    before = store.fields()
    with store.adding() as draft:
        assert draft.known(["d0", "d5"]) == {"d0"}
        fill(draft, DOCUMENTS[4:])
        assert store.count(Filter()) == 4
        with pytest.raises(IndexBusyError), store.adding():
            pass
    assert store.count(Filter()) == 6
    new = Document(id="d3", text="Whales of Java, whales", metadata={"depth": 7})
    with store.adding() as draft:
        fill(draft, [new])
    corpus = [*DOCUMENTS[:3], *DOCUMENTS[4:], new]
    [ranked] = store.words([["whale", "moth"]], 9, Filter())
    found = dict(zip(ids(store, ranked.rows), ranked.scores, strict=True))
    assert found == pytest.approx(right_scores(["whale", "moth"], corpus), abs=1e-4)
    assert store.fields()["depth"].numbers == (7, 7)
    with pytest.raises(DataError, match=r"no document 'x' in postgres.*; nothing was deleted"):
        store.delete(["d0", "x"])
    assert store.count(Filter()) == 6
    store.delete(["d3", "d3", "d4", "d5"])
    assert store.info()["documents"] == store.info()["passages"] == 3
    assert store.frequencies(["whale", "moth"]) == [0, 2]
    assert set(store.fields()) == {*before, "depth"}  # a field stays
    assert store.vectors(["d3"]) == {}
    table = tables_of(server, address)
    for name in (table, f"{table}_terms"):
        orphans = f"document NOT IN (SELECT key FROM {table})"
        sql = f"SELECT count(*) FROM {name} WHERE {orphans}"
        with psycopg.connect(server.get_uri()) as connection:
            assert connection.execute(sql).fetchone() == (0,)


def test_an_addition_that_was_cut_off_leaves_nothing(address, server):
    store = build(address)
    idle = "FROM pg_stat_activity WHERE state = 'idle in transaction'"

    def cut_off():
        with store.adding() as draft:
            fill(draft, [Document(id="d0", text="whales"), Document(id="d9", text="whales")])
            execute(server, f"SELECT pg_terminate_backend(pid) {idle}")
            fill(draft, [Document(id="d8", text="whales")])

    with pytest.raises(ServerError, match=r"^postgresql:.*table=test_an_addition.*: ") as error:
        cut_off()
    assert "\n" not in str(error.value)
    assert store.count(Filter()) == 6
    assert store.frequencies(["whale"]) == [0]
    assert store.documents(np.array([store.find(["d0"])["d0"]])) == [DOCUMENTS[0]]
    store.delete(["d0"])


def test_text_that_postgres_does_not_take_comes_back(address):
    metadata = {"n\0": ["\0", "\\u0000"], "place": "J\0ava \\\0"}
    odd = Document(id="a\0b", text="x\0y 'quoted' \\ %s", metadata=metadata)
    store = build(address, [odd])
    assert store.documents(np.array([store.find(["a\0b"])["a\0b"]])) == [odd]
    assert store.sample(1) == [odd]
    for filters, n in (({"place": "J\0ava \\\0"}, 1), ({"place": "Java"}, 0), ({"n\0": "\0"}, 1)):
        assert store.count(Filter(conditions(store, filters))) == n
    store.delete(["a\0b"])
    assert store.count(Filter()) == 0
    assert store.nearest(encoded("x")[None], 3, Filter())[0].rows.size == 0
    assert store.sample(3) == []
    with store.adding() as draft:
        fill(draft, DOCUMENTS)
    assert store.count(Filter()) == 6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("postgresql://host/db", r"a Postgres address is postgresql://.*table=NAME, not"),
        ("postgresql://me:secret@host/db?table=t", "no password: set the password in PGPASSWORD"),
        ("postgresql://host/db?table=t&password=secret", "set the password in PGPASSWORD"),
        ("postgresql://host/db?table=a;b", "a table's name is made of letters"),
        (f"postgresql://host/db?table={'x' * 40}", "a table's name is made of letters"),
        ("postgresql:host/db?table=t", "a Postgres address is"),
        ("postgresql://[host/db?table=t", r"^postgresql:.*: "),
    ],
)
def test_addresses_that_are_refused(wrong, message):
    with pytest.raises((ConfigError, ServerError), match=message) as error:
        PointStore.open(wrong)
    assert "secret" not in str(error.value)


def test_an_address_keeps_what_is_libpqs():
    address = parse_postgres("postgres:///db?host=/tmp/a%20b&table=s.docs&sslmode=disable")
    assert address == ("postgres:///db?host=%2Ftmp%2Fa%20b&sslmode=disable", "s.docs")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "int8"}, "precision must be one of float32, float16, got 'int8'"),
        ({"dimension": 3000}, "vectors of 2000 dimensions"),
    ],
)
def test_settings_that_pgvector_has_not(address, changes, message):
    settings = StoreSettings(**{"fingerprint": "f", "dimension": 32, "vectors": "hnsw"} | changes)
    with pytest.raises(ConfigError, match=message):
        build(address, settings=settings)


def test_what_cannot_be_searched_is_one_line(address, server):
    store = build(address)
    name, table = address.partition("table=")[2], tables_of(server, address)
    execute(server, f"UPDATE {table}_state SET body = '{{\"format\": 99}}'")
    with pytest.raises(IndexMismatchError, match="has format 99, this version reads 3: build it"):
        PointStore.open(address)
    execute(server, f"DROP TABLE {table}, {table}_state")
    with pytest.raises(ServerError, match=r'^postgres.*: relation ".*" does not exist$'):
        store.nearest(encoded("x")[None], 3, Filter())
    assert build(address, replace=True).count(Filter()) == 6
    execute(server, f"DROP VIEW {name}")
    with pytest.raises(IndexFolderError, match="there is no index at"):
        PointStore.open(address).count(Filter())
    execute(server, f"CREATE TABLE {name} (id int)")
    with pytest.raises(IndexFolderError, match="there is no index at"):
        PointStore.open(address)
    with pytest.raises(IndexFolderError, match="did not make; choose another name"):
        build(address, replace=True)


def test_a_server_that_was_stopped_is_asked_again(own_postgres):
    server = own_postgres
    store = build(f"{server.get_uri()}&table=docs")
    crash(server)
    for _ in range(2):
        with pytest.raises(ServerError, match=r"^postgres.*table=docs: ") as error:
            store.words([["moth"]], 3, Filter())
        assert "\n" not in str(error.value)
    server.start()
    assert store.words([["moth"]], 3, Filter())[0].rows.size == 3
    execute(server, "CREATE DATABASE empty")
    with pytest.raises(ServerError, match="the database has no type vector; CREATE EXTENSION"):
        PointStore.open(server.get_uri().replace("/postgres?", "/empty?") + "&table=docs")


def test_a_store_in_a_schema_is_built_anew(server):
    execute(server, "CREATE SCHEMA shop")
    address = f"{server.get_uri()}&table=shop.docs"
    build(address)
    with pytest.raises(IndexFolderError, match="holds an index"):
        build(address)
    store = build(address, DOCUMENTS[:3], replace=True)
    assert store.count(Filter()) == 3
    with store.adding() as draft:
        fill(draft, DOCUMENTS[3:])
    assert PointStore.open(address).count(Filter()) == 6
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'shop'"
    with psycopg.connect(server.get_uri()) as connection:
        assert connection.execute(tables).fetchone() == (3,)


def test_a_search_that_goes_on_keeps_the_old_tables_until_the_next_build(
    address, server, monkeypatch, caplog
):
    connect = psycopg.connect

    def impatient(*values, **options):
        connection = connect(*values, **options)
        execute_first = connection.execute

        def execute(statement, *rest, **more):
            return execute_first(str(statement).replace("'60s'", "'50ms'"), *rest, **more)

        connection.execute = execute
        return connection

    build(address)
    old = tables_of(server, address)
    monkeypatch.setattr(psycopg, "connect", impatient)
    with connect(server.get_uri()) as reader:
        reader.execute(f"SELECT count(*) FROM {old}")
        store = build(address, DOCUMENTS[:3], replace=True)
    assert "cannot remove what the build replaced" in caplog.text
    assert store.count(Filter()) == 3
    build(address, replace=True)
    left = "SELECT count(*) FROM pg_tables WHERE tablename = %s"
    with connect(server.get_uri()) as connection:
        assert connection.execute(left, (old,)).fetchone() == (0,)


def test_several_threads_search_at_once(store):
    errors = []

    def search():
        try:
            for _ in range(10):
                assert store.nearest(encoded("x")[None], 3, Filter())[0].rows.size == 3
        except Exception as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def fill_foreign(server, table):
    words = "words tsvector GENERATED ALWAYS AS (to_tsvector('english', body)) STORED"
    columns = f"id int PRIMARY KEY, body text, year int, e vector({DIMENSION}), {words}"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"CREATE TABLE {table} ({columns})")
        for number, text in enumerate(TEXTS):
            row = (number, text, 1990 + number, str(encoded(text).tolist()))
            connection.execute(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", row)


def test_a_foreign_table_has_words_of_its_own(server, store):
    fill_foreign(server, "foreign_words")
    collection = PostgresCollection(server.get_uri(), "foreign_words")
    about = collection.word_field, collection.dimension, collection.metric
    assert about == ("words", DIMENSION, "cosine")
    moths, none = collection.search("words", ["moth kenya", "xyz"], 5, Filter())
    assert {key for key, *_ in moths} == {0, 1, 3, 4}
    scores = [score for _, score, _ in moths]
    assert sorted(scores, reverse=True) == scores
    assert none == []
    late = Filter(read_filters({"year": {"gte": 1993}}))
    [moths] = collection.search("words", ["moth kenya"], 5, late)
    assert {key for key, *_ in moths} == {3, 4}
    row = collection.get([2])[2]
    assert {"id": 2, "body": TEXTS[2], "year": 1992}.items() <= row.items()
    [[(key, score, row), *_]] = collection.search("e", [encoded(TEXTS[4])], 2, Filter(), "e")
    assert (key, score) == (4, pytest.approx(1, abs=1e-5))
    np.testing.assert_allclose(row["e"], encoded(TEXTS[4]), atol=1e-6)
    np.testing.assert_allclose(collection.get(["4"], "e")[4]["e"], encoded(TEXTS[4]), atol=1e-6)
    encoder = CallableEncoder(lambda texts: [*map(encoded, texts)])
    searcher = Searcher(collection, encoder, parser=None)
    assert searcher.document("4").text == TEXTS[4]
    with pytest.raises(DataError, match="no document '99' in"):
        searcher.document("99")
    # The document itself is left out, and the others are compared with it.
    near = [hit.id for hit in searcher.search("like:4", k=9).hits]
    scores = np.stack([*map(encoded, TEXTS)]) @ encoded(TEXTS[4])
    assert near == [str(row) for row in np.argsort(-scores).tolist() if row != 4]
    with pytest.raises(ConfigError, match="has no words 'body'; there are: 'words'"):
        PostgresCollection(server.get_uri(), "foreign_words", words="body")
    with pytest.raises(ConfigError, match="compares vectors by l1"):
        Searcher(PostgresCollection(server.get_uri(), "foreign_words", metric="l1"), encoder)
    with pytest.raises(QueryError, match="has no column 'zip'"):
        collection.search("e", [encoded("x")], 2, Filter(read_filters({"zip": 1})))
    by_address = pytest.raises(ConfigError, match="a Postgres is named by its address")
    with psycopg.connect(server.get_uri()) as connection, by_address:
        PostgresCollection(connection, "foreign_words")
    with pytest.raises(ServerError, match='relation "nowhere" does not exist'):
        PostgresCollection(server.get_uri(), "nowhere")
    table = tables_of(server, store.address)
    assert not PostgresCollection(server.get_uri(), table).word_field


TAMPERED = (
    "UPDATE {t}_state SET body = '{{}}'",
    "UPDATE {t}_state SET body = '[1]'",
    "UPDATE {t}_state SET body = '{{\"format\": 3}}'",
    "UPDATE {t}_state SET body = jsonb_set(body::jsonb, '{{settings,dimension}}', '7')",
    "UPDATE {t}_state SET body = jsonb_set(body::jsonb, '{{settings,similarity}}', '\"x\"')",
    "UPDATE {t}_state SET body = jsonb_set(body::jsonb, '{{fields}}', '[3]')",
    "UPDATE {t}_state SET length = -1",
    "DELETE FROM {t}_state",
    "ALTER TABLE {t} DROP COLUMN body",
    "ALTER TABLE {t} DROP COLUMN vector",
    "ALTER TABLE {t} ALTER body TYPE jsonb USING '[]'",
    "UPDATE {t} SET body = '3'",
    "UPDATE {t} SET body = jsonb_set(body::jsonb, '{{document,metadata}}', '3')",
    "UPDATE {t} SET body = jsonb_set(body::jsonb, '{{spans}}', '3')",
    "DELETE FROM {t}",
    "DROP TABLE {t}_terms",
    "DELETE FROM {t}_terms",
    "UPDATE {t}_terms SET length = -1",
)


@pytest.mark.parametrize("number", range(len(TAMPERED)))
def test_a_store_that_was_tampered_with_answers_or_says_so_in_one_line(server, number):
    table = f"tampered_{number}"
    address = f"{server.get_uri()}&table={table}"
    build(address)
    execute(server, TAMPERED[number].format(t=tables_of(server, address)))
    encoder = CallableEncoder(lambda texts: [*map(encoded, texts)])
    try:
        hits = Searcher(PointStore.open(address), encoder).search("moths NOT birds", 3).hits
    except BoolattnError as error:
        message = str(error)
    else:
        assert {hit.id for hit in hits} <= {document.id for document in DOCUMENTS}
        message = ""
    assert "\n" not in message
