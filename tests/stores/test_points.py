"""Stores in vector databases: Qdrant's local mode, and Milvus Lite as a file and as a server."""

from __future__ import annotations

import pickle
import re
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from boolattn.data.records import Document
from boolattn.errors import (
    ConfigError,
    DataError,
    IndexFolderError,
    IndexMismatchError,
    ServerError,
)
from boolattn.stores.address import database_class, open_store, parse_server
from boolattn.stores.filters import Filter, read_filters
from boolattn.stores.foreign import ForeignStore
from boolattn.stores.points import draft as points_draft
from boolattn.stores.points import milvus, qdrant
from boolattn.stores.points.database import STATE
from boolattn.stores.points.milvus import MilvusCollection
from boolattn.stores.points.qdrant import QdrantCollection
from boolattn.stores.points.store import PointStore
from boolattn.stores.values import key_of, passage_keys
from boolattn.stores.writer import Entry
from tests.stores.databases import MilvusServer, close_folders
from tests.stores.sample import (
    DIMENSION,
    EVERYTHING,
    LONG,
    SETTINGS,
    TEXTS,
    add,
    batch_of,
    build,
    create,
    nearest,
    passing,
    text_of,
    vector_of,
)

pytest.importorskip("qdrant_client")
pytest.importorskip("milvus_lite")
from qdrant_client import QdrantClient, models

STORES = ("qdrant", "milvus")


@pytest.fixture(scope="module")
def milvus_file(tmp_path_factory):
    return tmp_path_factory.mktemp("milvus") / "notes.db"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = MilvusServer(tmp_path_factory.mktemp("server"))
    yield server
    server.crash()


@pytest.fixture(params=STORES)
def address(request, tmp_path, milvus_file):
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    yield {"qdrant": f"qdrant:{tmp_path}/data", "milvus": f"milvus:{milvus_file}"}[
        request.param
    ] + f"/{name}"
    close_folders()


@pytest.fixture
def folder(tmp_path):
    """The address of a store in a folder of Qdrant's."""
    yield f"qdrant:{tmp_path}/data/recipes"
    close_folders()


def test_more_values_than_a_database_filters_by_are_refused(address):
    store = build(address)
    batch = batch_of({"many": "moths"}, meta={"many": {"tags": [f"t{n}" for n in range(4100)]}})
    with (
        pytest.raises(DataError, match="'many' has over 4096 metadata values; leave some out"),
        store.adding() as draft,
    ):
        draft.write(*batch)
    with open_store(address).reading() as reader:
        assert reader.count(EVERYTHING) == len(TEXTS)


def database_of(address):
    return database_class(address).open(address)


def fail_on(monkeypatch, address, method, *, after=0):
    """Make a database fail, after some calls of a method; return what mends it."""
    owner, left = database_class(address), [after]
    call = getattr(owner, method)

    def failing(self, *values, **options):
        left[0] -= 1
        if left[0] < 0:
            raise ServerError("the server is gone")
        return call(self, *values, **options)

    monkeypatch.setattr(owner, method, failing)
    return lambda: monkeypatch.setattr(owner, method, call)


def builds_of(address):
    database = database_of(address)
    return [name for name in database.names() if name.startswith(f"{database.alias}__")]


@pytest.mark.parametrize(("method", "after"), [("insert", 0), ("insert", 1), ("remove", 0)])
def test_an_update_that_stops_is_masked_and_can_be_repeated(
    address, monkeypatch, caplog, method, after
):
    store = build(address, settings=LONG, n_passages=3)
    text = "Beetles of Java live in wood"
    mend = fail_on(monkeypatch, address, method, after=after)
    if method == "insert":
        with pytest.raises(ServerError, match="gone"):
            add(store, {"moth": text}, n_passages=3)
        mend()
        assert text_of(store, "moth") == TEXTS["moth"]
        masked = vector_of(text[0 : len(text) // 3])
    else:
        add(store, {"moth": text}, n_passages=3)
        mend()
        assert "masked" in caplog.text
        masked = vector_of(TEXTS["moth"][9:18])
    # A passage of the version that does not count is the nearest point, but is not found.
    [ranked] = store.nearest(masked[None], 4, EVERYTHING)
    assert ranked.scores[0] < 0.999
    assert len(ranked.rows) == 4
    add(store, {"moth": text}, n_passages=3)
    assert store.info()["passages"] == 12
    assert text_of(store, "moth") == text


def test_a_deletion_that_fails_is_none_and_its_rest_is_masked(address, monkeypatch, caplog):
    store = build(address, settings=LONG, n_passages=2)
    add(store, {"new": "Rice with peas"}, n_passages=2)
    mend = fail_on(monkeypatch, address, "remove")
    with pytest.raises(ServerError, match="gone"):
        store.delete(["new"])
    mend()
    assert store.count(EVERYTHING) == 5
    mend = fail_on(monkeypatch, address, "remove", after=1)
    store.delete(["new"])
    mend()
    assert "which is masked" in caplog.text
    assert passing(store) == {*TEXTS}
    assert "new" not in nearest(store, "h peas")


def test_a_build_that_lost_documents_is_refused(address, monkeypatch):
    store = build(address)
    monkeypatch.setattr(points_draft, "key_of", lambda _: 5)
    with pytest.raises(ServerError, match=r"1 of 2 documents: .* the server lost some"):
        build(address, {"a": "rice", "b": "peas"}, replace=True)
    assert store.count(EVERYTHING) == 4


def test_an_index_is_replaced_whole_or_not_at_all(address, monkeypatch):
    store = build(address)
    for method, after in (("insert", 1), ("finish", 0), ("switch", 0)):
        mend = fail_on(monkeypatch, address, method, after=after)
        with pytest.raises(ServerError):
            build(address, {"new": "Rice"}, replace=True)
        mend()
        assert passing(store) == {*TEXTS}
    mend = fail_on(monkeypatch, address, "drop", after=1)  # the stopped build is removed
    build(address, {"new": "Rice"}, replace=True)
    mend()
    assert nearest(store, "x") == ["new"]
    assert len(builds_of(address)) == 2
    build(address, {"newer": "Rice"}, replace=True)
    assert len(builds_of(address)) == 1


def test_a_build_that_wrote_nothing_leaves_nothing(address):
    with pytest.raises(DataError, match="the corpus holds no documents"), create(address):
        pass
    assert builds_of(address) == []


def test_what_else_can_be_wrong(address):
    with pytest.raises(IndexFolderError, match="there is no index"):
        open_store(address)
    store = build(address)
    database, state = database_of(address), store._state
    database.settings = SETTINGS
    database.write_state({**state, "format": 9})
    with pytest.raises(IndexMismatchError, match="has format 9, this version reads 3: build it"):
        open_store(address)
    assert database.get([STATE], "version") == {STATE: {"version": ""}}


def test_a_collection_of_another_name_is_left_alone(address):
    database = database_of(address)
    database.settings = SETTINGS
    database.create_collection()
    with pytest.raises(IndexFolderError, match="did not make; choose another name"):
        build(address, replace=True)
    assert database.alias in database.names()


def test_a_collection_that_was_dropped_is_one_line(address):
    store = build(address)
    drop_all(address)
    for action in (
        lambda: nearest(store, "x"),
        lambda: store.words([["moth"]], 3, EVERYTHING),
        lambda: store.delete(["soup"]),
        lambda: add(store, TEXTS),
        store.info,
        lambda: open_store(address),
    ):
        with pytest.raises(IndexFolderError) as caught:
            action()
        assert "\n" not in str(caught.value)


def drop_all(address):
    """Remove a store without asking it."""
    database = database_of(address)
    target = database.target()
    if isinstance(database, MilvusCollection):
        database.call("drop_alias", database.alias)
    database.drop(target)


@pytest.mark.parametrize(
    "address",
    [
        "qdrant:x",
        "qdrant://host",
        "qdrant://host/a/b",
        "qdrant://:1/a",
        "qdrant://h:x/a",
        "http:x/y",
        "milvus://host:19530/",
        "milvus://host:x/a",
        "milvus://host/db/a",
        "milvus:a.db/a b",
    ],
)
def test_addresses_that_are_none(address):
    kind = address.partition(":")[0]
    with pytest.raises(ConfigError, match="is no address of a store"):
        parse_server(address, kind if kind in STORES else "qdrant", "KEY")


def test_addresses():
    for address, target in {
        "x://host:6334/a": "http://host:6334",
        "x+https://host/a": "https://host",
        "x://[::1]:1/a": "http://[::1]:1",
        "x:data/x/a": "data/x",
    }.items():
        assert parse_server(address, "x", "KEY") == (target, "a")
    for secret in ("x://me:key@host/a", "x://host/a?api_key=x"):
        with pytest.raises(ConfigError, match="set KEY in the environment") as caught:
            parse_server(secret, "x", "KEY")
        assert "me" not in str(caught.value).split()
    with pytest.raises(ConfigError, match=r"ends in \.db"):
        PointStore.open("milvus:notes/a")


@pytest.mark.parametrize("kind", STORES)
def test_a_server_that_does_not_answer_is_one_line(kind, monkeypatch):
    monkeypatch.setattr(milvus, "TIMEOUT", 0.5)
    address = f"{kind}://127.0.0.1:9/a"
    for action in (open_store, build):
        with pytest.raises(ServerError, match=rf"^{address}: ") as caught:
            action(address)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


def test_keys_differ():
    keys = [key_of("a"), *passage_keys("a", "v", 3), *passage_keys("a", "w", 2)]
    assert len({*keys}) == 4


def test_points_are_written_some_at_a_time(address, monkeypatch):
    monkeypatch.setattr(points_draft, "_MAX_POINTS", 3)
    store = build(address, settings=LONG, n_passages=3)
    monkeypatch.setattr(points_draft, "_MAX_BYTES", 1)
    add(store, {"new": "Rice with peas"}, n_passages=3)
    assert store.info()["passages"] == 15
    assert passing(store) == {*TEXTS, "new"}


# Qdrant alone.


#: Waits for a line before it ends without cleaning up.
KILLED_BUILD = """
import os, sys
import numpy as np
from boolattn.data.records import Document
from boolattn.stores.settings import StoreSettings
from boolattn.stores.writer import Entry
from boolattn.stores.points.store import PointStore
batch = [Entry.of(Document(id="new", text="Rice", title="new"), [(0, 4)])]
settings = StoreSettings(fingerprint="f", dimension=32, model="shipped")
with PointStore.create(sys.argv[1], settings, replace=True) as draft:
    draft.write(batch, np.ones((1, 32), np.float32))
    print("written", flush=True)
    sys.stdin.readline()
    os._exit(9)
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_held_folder_is_one_line_and_a_killed_build_leaves_the_old_store(folder):
    store = build(folder)
    close_folders()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", KILLED_BUILD, folder], **pipes) as other:
        assert other.stdout.readline() == "written\n"
        with pytest.raises(ServerError, match="already accessed by another instance"):
            open_store(folder)
        with pytest.raises(ServerError), create(folder, replace=True):
            pass
        # Refused before anything is deleted.
        with pytest.raises(ServerError, match="already accessed by another instance"):
            store.delete([*TEXTS])
        other.communicate("\n")
    assert other.returncode == 9
    assert {*nearest(open_store(folder), "x")} == {*TEXTS}
    with create(folder, resume=True) as draft:
        assert draft.has(batch_of({"new": "Rice"})[0])
    assert nearest(open_store(folder), "x") == ["new"]


def test_a_folder_that_is_not_there_stays_so(folder, tmp_path):
    with pytest.raises(IndexFolderError, match="there is no index"):
        open_store(folder)
    assert not (tmp_path / "data").exists()
    with pytest.raises(IndexFolderError, match="there is no index"):
        open_store(f"milvus:{tmp_path}/none.db/a")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("raw", ["", "{", "[]", '{"collections": {"x": 1}, "aliases": {}}'])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_folder_is_one_line(folder, tmp_path, raw):
    build(folder)
    close_folders()
    (tmp_path / "data" / "meta.json").write_text(raw)
    with pytest.raises(ServerError) as caught:
        open_store(folder)
    assert "\n" not in str(caught.value)


class Evil:
    def __reduce__(self):
        return (print, ("code runs",))


@pytest.mark.parametrize("hidden", ["", "view", "case", "elsewhere"])
def test_a_folder_cannot_run_code(folder, tmp_path, capsys, hidden):
    build(folder)
    close_folders()
    [path] = (tmp_path / "data").rglob("storage.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("update points set point = ?", (pickle.dumps(Evil()),))
        if hidden:
            database.execute("alter table points rename to others")
            kind = "create table POINTS as" if hidden == "case" else "create view points as"
            database.execute(f"{kind} select rowid as rowid, id, point from others")
    database.close()
    if hidden == "elsewhere":
        path.parent.rename(tmp_path / "elsewhere")
        meta = tmp_path / "data" / "meta.json"
        meta.write_text(meta.read_text().replace(path.parent.name, str(tmp_path / "elsewhere")))
    with pytest.raises(ServerError, match="which is no point"):
        open_store(folder)
    assert "code runs" not in capsys.readouterr().out


def test_a_server_gets_indexes(folder, monkeypatch):
    """Local mode behind a connection that takes itself for a server."""
    calls = []
    call, connect = (
        QdrantCollection.call,
        QdrantCollection.connect,
    )

    def recorded(self, name, *values, **options):
        calls.append((name, *values))
        if name == "create_payload_index":
            return None
        if name == "query_batch_points":
            for request in values[1]:
                request.params = None
        if name == "get_collection" and calls.count(calls[-1]) == 1:
            return SimpleNamespace(status="yellow")
        return call(self, name, *values, **options)

    def as_server(self, *values, **options):
        connect(self, *values, **options)
        self.is_exact = False

    monkeypatch.setattr(QdrantCollection, "connect", as_server)
    monkeypatch.setattr(QdrantCollection, "call", recorded)
    monkeypatch.setattr(qdrant.time, "sleep", lambda _: None)
    with create(folder, replace(LONG, vectors="hnsw")) as draft:
        draft.write(*batch_of(TEXTS, 3))
    fields = [listed[2] for listed in calls if listed[0] == "create_payload_index"]
    assert fields[:6] == ["document", "part", "version", "tags", "asserted", "denied"]
    assert len(fields) == 10  # numbers and dates have two each


def test_a_foreign_collection_of_qdrant():
    client = QdrantClient(":memory:")
    vector = models.VectorParams(size=2, distance=models.Distance.COSINE)
    client.create_collection("items", vectors_config={"dense": vector})
    rows = [{"text": "a", "year": 1990}, {"text": "b", "year": 2005}, {"text": "c"}]
    vectors = [[1.0, 0.0], [0.6, 0.8], None]
    points = [
        models.PointStruct(id=n, vector={"dense": values} if values else {}, payload=row)
        for n, (values, row) in enumerate(zip(vectors, rows, strict=True))
    ]
    client.upsert("items", points)
    collection = QdrantCollection(client, "items")
    assert (collection.metric, collection.dimension, collection.word_field) == ("cosine", 2, "")

    def near(filters):
        query, where = np.array([1, 0], np.float32), Filter(read_filters(filters))
        [rows] = collection.search("dense", [query], 5, where, "dense")
        return rows

    assert [key for key, *_ in near({})] == [0, 1]
    np.testing.assert_allclose([score for _, score, _ in near({})], [1, 0.6], atol=1e-6)
    for found in (
        [row["dense"] for *_, row in near({})],
        [row["dense"] for row in collection.get([0, 1], "dense").values()],
    ):
        np.testing.assert_allclose(found, [[1, 0], [0.6, 0.8]], atol=1e-6)
    for filters, expected in (
        ({"year": {"gt": 1990}}, [1]),
        ({"year": {"not": 2005}}, [0]),
        ({"year": {"exists": False}}, []),
        ({"year": []}, []),
        ({"text": ["a", 1, 2.5, True]}, [0]),
    ):
        assert [key for key, *_ in near(filters)] == expected
    assert collection.get([2, 9], "dense") == {2: {}}
    assert collection.get([2, 9]) == {2: {"text": "c"}}
    assert not collection.has_text_ids
    far = models.VectorParams(size=2, distance=models.Distance.MANHATTAN)
    client.create_collection("far", vectors_config=far)
    with pytest.raises(ConfigError, match="manhattan"):
        ForeignStore(QdrantCollection(client, "far"))
    with pytest.raises(ConfigError, match="has no vector 'x'"):
        QdrantCollection(client, "far", vector="x")
    with pytest.raises(ServerError, match="not found"):
        QdrantCollection(client, "none")
    client.close()
    with pytest.raises(ServerError, match="closed"):
        collection.get([2])
    with pytest.raises(ServerError, match="refused"):
        QdrantCollection("http://127.0.0.1:9", "items")


# Milvus alone.


@pytest.fixture
def lite(milvus_file, request):
    """The address of a store in the file that the tests share."""
    return f"milvus:{milvus_file}/{request.node.name}"


def test_a_long_document_comes_back_whole(lite, monkeypatch):
    monkeypatch.setattr(milvus, "_CHARACTERS", 160)  # in place of 16,000
    monkeypatch.setattr(milvus, "_MAX_ITEMS", 40)  # in place of 4,096
    text = "Ein Käfer \U0001f98b\0 of Java. " * 100
    long = Document(id="long", text=text, title="title " * 120, metadata={"country": "y" * 200})
    store = build(lite)
    before = store.database.query(EVERYTHING, "count(*)")

    def write(document):
        batch = [Entry.of(document, [(0, len(document.text))])]
        with store.adding() as draft:
            draft.write(batch, vector_of("x")[None])

    write(long)
    assert store.documents(np.array([key_of("long"), key_of("soup")]))[0] == long
    write(replace(long, text=text + "end"))
    assert text_of(store, "long").endswith("end")
    wordy = Document(id="wordy", text=" ".join(f"word{n}" for n in range(50)))
    write(wordy)
    assert text_of(store, "wordy") == wordy.text
    assert store.frequencies(["word10"]) == [1]
    store.delete(["long", "wordy"])
    assert store.database.query(EVERYTHING, "count(*)") == before


def test_a_row_holds_as_many_characters_as_milvus_takes(lite):
    """Each of four bytes, the most that UTF-8 has."""
    long = "\U0001f98b" * 2 * milvus._CHARACTERS
    store = build(lite, {"soup": long})
    assert text_of(store, "soup") == long


def test_many_fields_are_remembered(lite):
    meta = {"soup": {f"field {n} with a long name": n for n in range(1000)}}
    with create(lite) as draft:
        draft.write(*batch_of({"soup": "Soup"}, 1, meta))
    assert open_store(lite).fields()["field 999 with a long name"].numbers == (999, 999)


def test_a_server_that_comes_back_is_used_again(server, monkeypatch):
    address = f"milvus://{server.address}/again"
    store = build(address, settings=LONG, n_passages=2)
    assert passing(store, Filter(lacking=(("garlic",),))) == {"cake", "moth"}
    server.crash()
    monkeypatch.setattr(milvus, "TIMEOUT", 1.0)
    with pytest.raises(ServerError) as caught:
        nearest(store, "x")
    assert "\n" not in str(caught.value)
    server.start()
    for _ in range(60):
        try:
            names = nearest(store, "x")
            break
        except ServerError:
            time.sleep(0.25)
    assert {*names} == {*TEXTS}
    store.delete(["soup"])
    assert store.count(EVERYTHING) == 3


def test_a_file_that_is_open_elsewhere_is_one_line(lite):
    build(lite)
    code = (
        "from boolattn.stores.points.store import PointStore\n"
        "from boolattn.errors import ServerError\n"
        f"try: PointStore.open({lite!r})\n"
        "except ServerError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "a file allows one process; is it open in another?" in run.stdout
    assert run.stdout.count("\n") == 1


def test_a_cut_graph_is_made_anew(tmp_path):
    from milvus_lite.server_manager import server_manager_instance

    address = f"milvus:{tmp_path}/cut.db/notes"
    build(address, settings=replace(SETTINGS, vectors="hnsw"))
    server_manager_instance.release_server(str(tmp_path / "cut.db"))
    milvus.open_client.cache_clear()
    graphs = [*tmp_path.glob("cut.db/collections/*/partitions/*/indexes/*.idx")]
    for graph in graphs:
        graph.write_bytes(graph.read_bytes()[:20])
    assert graphs
    assert nearest(open_store(address), TEXTS["moth"])[0] == "moth"


@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_vectors_are_float32(address, precision):
    with pytest.raises(ConfigError, match=f"precision must be one of float32, got '{precision}'"):
        build(address, settings=replace(SETTINGS, precision=precision))


def foreign(path, metric="COSINE"):
    from pymilvus import DataType, Function, FunctionType, MilvusClient

    client = milvus.open_client(str(path))
    schema = MilvusClient.create_schema(auto_id=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
    schema.add_field("text", DataType.VARCHAR, max_length=1024, enable_analyzer=True)
    schema.add_field("year", DataType.INT64, nullable=True)
    schema.add_field("e", DataType.FLOAT_VECTOR, dim=DIMENSION)
    schema.add_field("bm25", DataType.SPARSE_FLOAT_VECTOR)
    fields = {"input_field_names": ["text"], "output_field_names": ["bm25"]}
    schema.add_function(Function(name="f", function_type=FunctionType.BM25, **fields))
    index = client.prepare_index_params()
    index.add_index("e", index_type="FLAT", metric_type=metric)
    index.add_index("bm25", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    client.create_collection(metric, schema=schema, index_params=index)
    rows = enumerate(TEXTS.items())
    entries = [{"id": n, "text": t, "year": y, "e": vector_of(t)} for y, (n, t) in rows]
    client.insert(metric, entries)
    return MilvusCollection(client, metric)


def test_a_foreign_collection_of_milvus(milvus_file):
    collection, query = foreign(milvus_file), vector_of(TEXTS["soup"])[None]
    about = collection.metric, collection.dimension, collection.word_field
    assert about == ("cosine", DIMENSION, "bm25")
    [[(key, score, row), *_]] = collection.search("e", query, 3, EVERYTHING, "e")
    assert (key, score) == ("soup", pytest.approx(1, abs=1e-5))
    np.testing.assert_allclose(row["e"], query[0], atol=1e-6)
    late = Filter(read_filters({"year": {"gte": 2}}))
    assert {key for key, *_ in collection.search("e", query, 5, late)[0]} == {"moth", "salad"}
    answers = collection.search("bm25", ["garlic tomato", "moths"], 5, EVERYTHING)
    assert [{key for key, *_ in rows} for rows in answers] == [{"soup", "salad"}, {"moth"}]
    assert all(score > 0 for rows in answers for _, score, _ in rows)
    [[(key, *_)]] = collection.search("bm25", ["garlic"], 5, late)
    assert key == "salad"
    assert {"id": "soup", "text": TEXTS["soup"], "year": 0}.items() <= (
        collection.get(["soup", "x"])["soup"].items()
    )
    assert collection.get(["soup", "x"], "e").keys() == {"soup"}
    assert MilvusCollection(str(milvus_file), "COSINE").dimension == DIMENSION
    assert foreign(milvus_file, "IP").metric == "dot"
    with pytest.raises(ConfigError, match="has no words 'x'; there are: 'bm25'"):
        MilvusCollection(str(milvus_file), "IP", words="x")
    with pytest.raises(ServerError) as caught:
        MilvusCollection(str(milvus_file), "none")
    assert "\n" not in str(caught.value)
    with pytest.raises(IndexFolderError, match="did not make"):
        build(f"milvus:{milvus_file}/IP", replace=True)


@pytest.mark.parametrize(
    ("package", "address", "extra"),
    [
        ("pgvector", "postgresql://localhost/shop?table=docs", "pgvector"),
        ("psycopg", "postgresql://localhost/shop?table=docs", "pgvector"),
        ("pymilvus", "milvus:notes.db/notes", "milvus"),
        ("qdrant_client", "qdrant:notes/notes", "qdrant"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(package, address, extra):
    code = (
        f"import sys; sys.modules[{package!r}] = None; "
        f"from boolattn.stores.address import open_store; open_store({address!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    line = f"MissingDataError: \\w+ needs {package}.*; pip install 'boolattn\\[{extra}\\]'"
    assert re.search(line, done.stderr.splitlines()[-1])
