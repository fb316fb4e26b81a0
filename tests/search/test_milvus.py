"""Milvus as a file and as a server: what the embedded engines do, it does."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from boolattn.errors import IndexFolderError, QueryError
from boolattn.search import Document, Searcher
from boolattn.search.engines.base import Selection
from boolattn.search.storage.transaction import MILVUS
from boolattn.search.stores import milvus
from tests.search import word_model

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")


@pytest.fixture(scope="module", params=["file", "server"])
def uri(request, tmp_path_factory):
    """A file inside the index, or the address of a server that runs beside the tests."""
    if request.param == "file":
        yield ""
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("milvus-lite")
    data = tmp_path_factory.mktemp("milvus")
    server = subprocess.Popen(
        [program, "server", "--data-dir", data, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="module")
def searcher(uri, retriever, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index") / "index"
    return Searcher.build(
        folder, word_model.corpus(), retriever, engine="milvus", uri=uri, segment_size=10
    )


def ids(result):
    return [hit.id for hit in result.hits]


QUERIES = ("moths Borneo", "moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)")
FILTERS = (
    None,
    {"place": "Peru"},
    {"place": ["Peru", "Kenya"], "year": {"gt": 1980, "lte": 2005.0}},
    {"place": {"not": ["Peru", "Java"]}},
    {"year": {"not": 1985}, "is_old": True},
    {"is_old": 1},
    {"place": []},
)


def test_milvus_answers_as_the_exact_engine_does(searcher, shared):
    assert searcher.manifest.engine_settings["recall"]["10"] > 0.9
    for query in QUERIES:
        for filters in FILTERS:
            own = searcher.search(query, k=8, filters=filters)
            right = shared.search(query, k=8, filters=filters)
            assert [h.score for h in own.hits] == pytest.approx(
                [h.score for h in right.hits], abs=1e-4
            )
            own = searcher.search(query, k=100, filters=filters, hybrid=True)
            right = shared.search(query, k=100, filters=filters, hybrid=True)
            assert set(ids(own)) == set(ids(right))


def test_documents_come_and_go(uri, retriever, folder):
    searcher = Searcher.build(folder, word_model.corpus(), retriever, engine="milvus", uri=uri)
    odd = {"quote\"'s": 'a "b"', "n": -1.5, "x" * 300: "long"}
    searcher.add([Document(id="new", text="red birds", metadata=odd)])
    assert ids(searcher.search("red", k=1, filters={"quote\"'s": 'a "b"'})) == ["new"]
    assert ids(searcher.search("red", k=1, filters={"n": {"lt": 0}, "x" * 300: "long"})) == ["new"]
    searcher.add([Document(id="new", text="old birds")], replace_old=True)
    searcher.delete(["both", "moths-java"])
    found = ids(searcher.search("moths old Borneo", k=100))
    assert len(found) == len(set(found)) == len(searcher) == 24
    assert not {"both", "moths-java"} & set(found)
    # Milvus itself has forgotten them: nothing was left for the mask to hide.
    direct = searcher.engine.search(
        np.eye(1, word_model.DIMENSION, dtype=np.float32), 100, Selection()
    )
    assert (direct.rows >= 0).sum() == 24
    assert ids(Searcher.open(folder, retriever).search("moths old Borneo", k=100)) == found
    rebuilt = Searcher.build(
        folder, word_model.corpus()[:5], retriever, engine="milvus", uri=uri, replace=True
    )
    assert len(ids(rebuilt.search("moths", k=100))) == 5


def test_what_a_killed_writer_left_is_neither_found_nor_counted(uri, retriever, folder):
    searcher = Searcher.build(folder, word_model.corpus(), retriever, engine="milvus", uri=uri)
    before = (folder / "manifest.json").read_bytes()
    searcher.add([Document(id="lost", text="red birds")])
    # As if the writer had been killed before the manifest was replaced.
    (folder / "manifest.json").write_bytes(before)
    again = Searcher.open(folder, retriever)
    assert "lost" not in ids(again.search("red birds", k=100))
    assert len(ids(again.search("red birds", k=100))) == 25
    again.add([Document(id="kept", text="red birds")])
    assert ids(again.search("red", k=1)) == ["kept"]


def test_a_file_is_opened_again_by_the_next_process(retriever, folder):
    Searcher.build(folder, word_model.corpus(), retriever, engine="milvus")
    # As a process does when it ends.
    milvus.connect(str(folder.resolve() / MILVUS)).close()
    milvus.connect.cache_clear()
    assert ids(Searcher.open(folder, retriever).search("moths Peru", k=1)) == ["moths-peru"]


def test_more_than_milvus_gives_is_refused(searcher):
    with pytest.raises(QueryError, match="milvus gives at most 16384 results, and 100000 were"):
        searcher.search("moths", k=100_000)


def test_a_server_that_does_not_answer_in_time_is_one_line(searcher, monkeypatch):
    monkeypatch.setattr("boolattn.search.engines.milvus.TIMEOUT", -1.0)
    with pytest.raises(IndexFolderError, match=r"Milvus \(boolattn_\w+\): ") as caught:
        searcher.search("moths")
    assert "\n" not in str(caught.value)


def test_no_server_is_one_line(retriever, folder, monkeypatch):
    monkeypatch.setattr("boolattn.search.stores.milvus.TIMEOUT", 0.5)
    with pytest.raises(IndexFolderError, match="Milvus ") as caught:
        Searcher.build(
            folder, word_model.corpus(), retriever, engine="milvus", uri="http://127.0.0.1:9"
        )
    assert "\n" not in str(caught.value)
