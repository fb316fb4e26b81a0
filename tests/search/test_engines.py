"""What every engine of an index does: one contract, for files and for databases."""

import pickle
import sqlite3
import struct
import time

import numpy as np
import pytest

from boolattn.errors import (
    ConfigError,
    IndexFolderError,
    IndexMismatchError,
    QueryError,
    ServerError,
)
from boolattn.search import Document, IndexSettings, Searcher
from boolattn.search.engines.base import Selection
from boolattn.search.engines.registry import ENGINES
from tests.search import word_model
from tests.search.databases import CLOSED, MilvusServer, PostgresServer, Setup

#: Default: one of each kind.
SLOW = ("milvus", "postgres-exact")
SETUPS = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
    for name in (*ENGINES, "milvus-server")
]
N = 160
QUERIES = ("moths Borneo", "moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)")
FILTERS = (
    {"place": "Peru"},
    {"place": ["Peru", "Kenya"], "year": {"gt": 1980, "lte": 2005.0}},
    {"place": {"not": ["Peru", "Java"]}},
    {"year": {"not": 1985}, "is_old": True},
    {"is_old": 1},
    {"place": []},
    {"place": {"not": []}},
    {"place": {"contains": "er"}, "year": {"exists": True}},
    {"year": {"exists": False}},
)


def texts(n, seed):
    """Documents of a few words."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 12, n)
    return [" ".join(generator.choice(word_model.WORDS, length)) for length in lengths]


def documents():
    """A small corpus whose right answers are plain, among others of a few words."""
    more = [Document(id=str(i), text=text) for i, text in enumerate(texts(N - 25, seed=0))]
    return [*word_model.corpus(), *more]


def ids(result):
    return [hit.id for hit in result.hits]


def scores(result):
    return [hit.score for hit in result.hits]


def one_line(caught):
    return "\n" not in str(caught.value) and len(str(caught.value)) < 500


def patiently(action):
    """Try again for a while: a client waits before it connects again."""
    for _ in range(60):
        try:
            return action()
        except ServerError:
            time.sleep(0.25)
    return action()


@pytest.fixture(scope="module", params=SETUPS)
def setup(request, tmp_path_factory):
    name = request.param
    if name == "milvus-server":
        server = MilvusServer(tmp_path_factory.mktemp("milvus"))
        yield Setup(name, server.uri, server)
        server.crash()
    elif name.startswith("postgres"):
        server = PostgresServer(request.getfixturevalue("postgres"))
        yield Setup(name, server.uri, server)
    else:
        yield Setup(name)


@pytest.fixture(scope="module")
def build(setup, retriever):
    """Build an index with the engine."""

    def own(folder, documents, **settings):
        settings = {"engine": setup.engine, "uri": setup.uri, "segment_size": 70} | settings
        return Searcher.build(folder, documents, retriever, **settings)

    return own


@pytest.fixture(scope="module")
def exact(retriever, tmp_path_factory):
    return Searcher.build(tmp_path_factory.mktemp("exact") / "index", documents(), retriever)


@pytest.fixture(scope="module")
def built(build, tmp_path_factory):
    return build(tmp_path_factory.mktemp("engine") / "index", documents())


def test_nearest_is_what_exhaustive_search_finds(setup, built, exact, retriever):
    queries = retriever.encode_documents(texts(40, seed=1))
    for n in (1, 10, N, 2 * N):
        own = built.engine.nearest(queries, n, Selection())
        right = exact.engine.nearest(queries, n, Selection())
        for found in own:
            assert len(found.rows) == len(set(found.rows.tolist())) == min(n, N)
            assert (np.diff(found.scores) <= 0).all()
        share = np.mean(
            [np.mean(a.scores >= b.scores[-1] - 1e-5) for a, b in zip(own, right, strict=True)]
        )
        assert share == 1 if setup.is_exact else share > 0.95
    recall = built.manifest.engine_settings.get("recall")
    assert recall is None if setup.name in ("flat", "postgres-exact") else recall["10"] > 0.9


def test_similarities_of_given_documents(built, exact, retriever):
    queries = retriever.encode_documents(texts(3, seed=2))
    rows = np.array([7, N - 1, 0, 150])
    right = queries @ exact.engine.vectors(rows).T
    np.testing.assert_allclose(built.engine.similarities(queries, rows), right, atol=1e-6)
    # Those that a search reports are the same.
    [found] = built.engine.nearest(queries[:1], 5, Selection())
    own = built.engine.similarities(queries[:1], found.rows)[0]
    np.testing.assert_allclose(found.scores, own, atol=1e-5)


def test_filters_and_composed_queries_answer_as_the_exact_engine_does(built, exact, retriever):
    query = retriever.encode_operands(["moths"])
    for filters in (None, *FILTERS):
        selection = exact._index.selection(filters)
        [own] = built.engine.nearest(query, N, built._index.selection(filters))
        [right] = exact.engine.nearest(query, N, selection)
        assert set(own.rows.tolist()) == set(right.rows.tolist()), filters
        assert len(own.rows) == (N if filters is None else selection.n_documents)
    for text in QUERIES:
        for filters in (None, *FILTERS[:3]):
            own = built.search(text, k=8, filters=filters)
            right = exact.search(text, k=8, filters=filters)
            assert scores(own) == pytest.approx(scores(right), abs=1e-4)
            assert own.total == right.total
    own = built.search("moths AND year>=1990 NOT like:both", k=5)
    assert ids(own) == ids(exact.search("moths AND year>=1990 NOT like:both", k=5))


def test_documents_come_and_go(setup, build, retriever, folder):
    searcher = build(folder, word_model.corpus())
    odd = {"quote\"'s.%s": 'a "b"', "n": -1.5, "x" * 300: "long", "nul\0": 1, "año": 7, "Ö": "é"}
    searcher.add([Document(id="new", text="red birds", metadata=odd)])
    assert ids(searcher.search("red", k=1, filters={"quote\"'s.%s": 'a "b"'})) == ["new"]
    assert ids(searcher.search("red", k=1, filters={"n": {"lt": 0}, "x" * 300: "long"})) == ["new"]
    assert ids(searcher.search("red", k=1, filters={"nul\0": {"gte": 1}})) == ["new"]
    assert ids(searcher.search("red", k=1, filters={"año": {"gt": 6}, "Ö": "é"})) == ["new"]
    searcher.add([Document(id="new", text="old birds")], replace_old=True)
    searcher.delete(["both", "moths-java"])
    found = ids(searcher.search("moths old Borneo", k=100))
    assert len(found) == len(set(found)) == len(searcher) == 24
    assert not {"both", "moths-java"} & set(found)
    if setup.is_database:
        # The database itself has forgotten them: nothing was left for the mask to hide.
        vector = np.eye(1, word_model.DIMENSION, dtype=np.float32)
        assert (searcher.engine.search(vector, 100, Selection()).rows >= 0).sum() == 24
    assert ids(Searcher.open(folder, retriever).search("moths old Borneo", k=100)) == found
    build(folder, word_model.corpus()[:2], replace=True)
    rebuilt = build(folder, word_model.corpus()[:1], replace=True)
    if setup.is_database:
        # Readers may have the collection before the last open; older ones are gone.
        prefix = rebuilt.manifest.engine_settings["collection"].rpartition("_")[0]
        names = [name for name in rebuilt.engine._own.names() if name.startswith(prefix)]
        assert len(names) == 2
    assert ids(rebuilt.search("moths NOT birds", k=100)) == ["moths-borneo"]
    assert ids(rebuilt.search("moths", k=100, hybrid=False)) == ["moths-borneo"]


def test_what_a_killed_writer_left_is_neither_found_nor_counted(build, retriever, folder):
    searcher = build(folder, word_model.corpus())
    before = (folder / "manifest.json").read_bytes()
    searcher.add([Document(id="lost", text="red birds")])
    # As if the writer had been killed before the manifest was replaced.
    (folder / "manifest.json").write_bytes(before)
    again = Searcher.open(folder, retriever)
    assert "lost" not in ids(again.search("red birds", k=100))
    assert len(ids(again.search("red birds", k=100))) == 25
    again.add([Document(id="kept", text="red birds")])
    assert ids(again.search("red", k=1)) == ["kept"]
    assert "lost" not in ids(again.search("red birds", k=100))


def test_vectors_of_another_length_are_one_line(built):
    for ask in (
        lambda: built.engine.nearest(np.zeros((1, 3), np.float32), 5, Selection()),
        lambda: built.engine.similarities(np.zeros((1, 3), np.float32), np.array([0])),
    ):
        with pytest.raises(IndexMismatchError, match=r"of length 32, and .* has 3") as e:
            ask()
        assert one_line(e)


def test_a_killed_server_is_one_line_and_the_index_is_opened_again(setup, built, retriever):
    before = [ids(built.search(text, k=20)) for text in QUERIES]
    if setup.server is not None:
        setup.server.crash()
        with pytest.raises(ServerError) as caught:
            built.search(QUERIES[0])
        assert one_line(caught)
        setup.server.start()
    setup.forget()
    again = patiently(lambda: Searcher.open(built.folder, retriever))
    assert [ids(again.search(text, k=20)) for text in QUERIES] == before
    again.add([Document(id="late", text="moths", metadata={"late": True})])
    assert ids(again.search("moths", k=5, filters={"late": True})) == ["late"]
    again.delete(["late"])


def test_vectors_that_are_gone_are_one_line(setup, build, retriever, folder):
    searcher = build(folder, word_model.corpus())
    if setup.is_database:
        own = searcher.engine._own
        own.delete([3])
        own.finish(is_new=False)
        with pytest.raises(IndexFolderError, match="holds 24 of the index's 25 vectors; index"):
            Searcher.open(folder, retriever)
        own.drop(searcher.manifest.engine_settings["collection"])
        with pytest.raises(ServerError) as caught:
            searcher.search("moths")
        assert one_line(caught)
    else:
        names = searcher.manifest.files
        (folder / next(n for n in names if n.endswith(("faiss", "vectors.npy")))).unlink()
    with pytest.raises(IndexFolderError) as caught:
        Searcher.open(folder, retriever)
    assert one_line(caught)


def test_a_server_that_is_not_there_is_one_line(setup, build, folder, monkeypatch):
    monkeypatch.setattr("boolattn.search.stores.milvus.TIMEOUT", 0.5)
    encoded = []
    if setup.name in CLOSED:
        with pytest.raises(ServerError) as caught:
            build(folder, iter(encoded.append, None), uri=CLOSED[setup.name])
        assert one_line(caught)
        assert not folder.exists()
    refused = {"flat": "x.db", "milvus": "ftp://x", "qdrant": "http://me:key@x", "postgres": "x"}
    refused |= {"postgres-exact": "postgresql://x/y?password=z"}
    if setup.name in refused:
        with pytest.raises(ConfigError, match=r"takes no uri|like http|password|--uri postgresql"):
            build(folder, [], uri=refused[setup.name])


def test_more_than_milvus_gives_is_refused(folder, retriever):
    searcher = Searcher.build(folder, word_model.corpus()[:2], retriever, engine="milvus")
    with pytest.raises(QueryError, match="milvus gives at most 16384 results, and 100000 were"):
        searcher.search("moths", k=100_000)


class Evil:
    """As somebody might put it into a folder."""

    def __reduce__(self):
        return (struct.calcsize, ("i",))


@pytest.mark.parametrize(
    "raw", ["", "{", "[]", "3", '{"collections": []}', '{"collections": {"a": 3}}']
)
def test_a_damaged_folder_of_qdrant_is_one_line(folder, retriever, raw):
    Searcher.build(folder, word_model.corpus(), retriever, engine="qdrant")
    Setup("qdrant").forget()
    (folder / "qdrant" / "meta.json").write_text(raw)
    with pytest.raises(ServerError) as caught:
        Searcher.open(folder, retriever)
    assert one_line(caught)


def test_a_damaged_vector_of_qdrant_is_one_line(folder, retriever):
    Searcher.build(folder, word_model.corpus(), retriever, engine="qdrant")
    Setup("qdrant").forget()
    [path] = (folder / "qdrant").rglob("storage.sqlite")
    with sqlite3.connect(path) as storage:
        [(raw,)] = storage.execute("SELECT point FROM points WHERE rowid = 1")
        point = pickle.loads(raw)
        point.vector[0] = float("inf")
        changed = sqlite3.Binary(pickle.dumps(point))
        storage.execute("UPDATE points SET point = ? WHERE rowid = 1", (changed,))
    searcher = Searcher.open(folder, retriever)
    with pytest.raises(IndexFolderError, match="is damaged; index again"):
        searcher.search("moths")


@pytest.mark.parametrize("uri", ["http://[::1", "postgresql://[::"])
def test_half_an_address_is_one_line(uri):
    with pytest.raises(ConfigError, match="is no address: Invalid IPv6 URL"):
        IndexSettings(engine="qdrant", uri=uri)


def test_a_folder_of_qdrant_cannot_run_code(folder, retriever):
    searcher = Searcher.build(folder, word_model.corpus(), retriever, engine="qdrant")
    Setup("qdrant").forget()
    [path] = (folder / "qdrant").rglob("storage.sqlite")
    with sqlite3.connect(path) as storage:
        raw = sqlite3.Binary(pickle.dumps(Evil()))
        storage.execute("UPDATE points SET point = ? WHERE rowid = 3", (raw,))
    with pytest.raises(ServerError, match=r"holds _struct.calcsize, which is no point") as caught:
        Searcher.open(searcher.folder, retriever)
    assert one_line(caught)
