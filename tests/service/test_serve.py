"""``boolattn serve`` as a process over a real index."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import httpx2
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from boolattn.cli import app
from boolattn.encoder.towers import build_towers, save_towers
from boolattn.errors import BoolattnError
from boolattn.search import Document, Searcher, load_model
from boolattn.service.app import create_app
from boolattn.service.settings import ServiceSettings
from boolattn.stores.local import manifest, segments
from tests.conftest import TEXTS
from tests.service.conftest import DOCUMENTS
from tests.service.test_api import refused
from tests.service.test_limits import KEY
from tests.service.test_openapi import EXAMPLES

COMMAND = [sys.executable, "-c", "from boolattn.cli import main; main()"]


@pytest.fixture
def index(tmp_path, tiny_encoder, tokenizer):
    """An index of the six documents by a tiny random model, both in folders."""
    model = tmp_path / "model"
    save_towers(build_towers(tiny_encoder("bert"), tokenizer=tokenizer), model)
    return build(tmp_path / "index", str(model))


def build(folder, model):
    documents = [
        Document(id=name, title=title, text=text, metadata=metadata)
        for name, (title, text, metadata) in DOCUMENTS.items()
    ]
    Searcher.build(folder, documents, load_model(model), model=model)
    return folder


def test_a_real_index_answers(index):
    searcher = Searcher.open(index)
    with TestClient(create_app(searcher, ServiceSettings())) as client:
        asked = {"query": "moth AND Borneo NOT Sumatra"}
        reply = client.post("/search", json=asked).json()
        shown = json.loads(EXAMPLES.read_text(encoding="utf-8"))
        assert reply.keys() == shown["search"].keys()
        assert reply["hits"][0].keys() == shown["search"]["hits"][0].keys()
        assert reply["is_composed"]
        plain = client.post("/search", json=asked | {"compose": False, "strict_not": False})
        assert len(plain.json()["hits"]) == 6
        # Strict NOT is the default.
        assert reply["strict_not"]
        assert sorted(hit["id"] for hit in reply["hits"]) == ["b", "long", "ru", "x/y z"]
        assert all(len(hit["ranks"]) == 3 for hit in reply["hits"])
        for n_found, options in ((0, {}), (1, {"strict_not": False})):
            hits = client.post("/search", json={"query": TEXTS[0], **options}).json()["hits"]
            assert ["bs" in hit["id"] for hit in hits].count(True) == n_found
        document = client.get("/documents/x%2Fy%20z").json()
        assert document["title"] == "<script>alert(1)</script>"
        refused(client.get("/documents/nobody"), 404, "no_document")
        refused(client.get("/search", params={"q": "moth AND size>1"}), 400, "bad_query")
        wrong = {"query": "moth", "filters": {"planet": "Mars"}}
        assert "planet" in refused(client.post("/search", json=wrong), 400, "bad_query").message
        result = client.get("/search", params={"q": "moth", "filter": "place=Sumatra"}).json()
        assert [hit["id"] for hit in result["hits"]] == ["s"]
        many = " OR ".join(f"moth{n}" for n in range(100))
        assert len(client.get("/search", params={"q": many}).json()["operands"]) == 100


def test_the_service_survives_an_encoder_that_fails(index):
    searcher = Searcher.open(index)

    def fail(*_):
        raise StopIteration("of a broken tokenizer")

    with TestClient(create_app(searcher, ServiceSettings(timeout=5))) as client:
        hook = searcher.encoder.towers.register_forward_pre_hook(fail)
        for path in ("/search?q=moth", "/search?q=moth+NOT+Borneo"):
            refused(client.get(path), 500, "internal")
        hook.remove()
        assert len(client.get("/search?q=moth").json()["hits"]) == 6


def test_a_changed_index_is_loaded_and_a_broken_one_is_not(index, caplog):
    settings = ServiceSettings(refresh=0)
    with TestClient(create_app(Searcher.open(index), settings)) as client:
        assert len(client.get("/search?q=moth&k=50").json()["hits"]) == 6
        Searcher.open(index).add([Document(id="new", text="a new moth")])
        assert len(client.get("/search?q=moth&k=50").json()["hits"]) == 7
        assert client.get("/documents/new").json()["text"] == "a new moth"
        assert client.get("/health").json()["documents"] == 7
        (index / "manifest.json").write_text("{")
        assert len(client.get("/search?q=moth&k=50").json()["hits"]) == 7
    assert "a changed index cannot be read" in caplog.text


def test_documents_are_added_replaced_and_deleted(index):
    headers = {"x-api-key": KEY}
    settings = ServiceSettings(api_key=KEY, max_upload=3000)
    with TestClient(create_app(Searcher.open(index), settings), headers=headers) as client:
        new = {"id": "x/1", "text": "a new moth", "metadata": {"tags": ["a"], "on": "2024-03-01"}}
        reply = client.post("/documents", json={"documents": [new]})
        assert reply.json() == {"changed": 1, "documents": 7}, reply.text
        asked = {"query": "moth", "filters": {"tags": "a", "on": {"lte": "2024"}}}
        assert [hit["id"] for hit in client.post("/search", json=asked).json()["hits"]] == ["x/1"]
        # All or none.
        two = {"documents": [{"id": "y", "text": "old"}, new]}
        message = refused(client.post("/documents", json=two), 422, "bad_document").message
        assert "the index has the id 'x/1' already" in message
        refused(client.get("/documents/y"), 404, "no_document")
        assert client.post("/documents", json=two | {"update": True}).json()["documents"] == 8
        assert client.delete("/documents/x%2F1").json() == {"changed": 1, "documents": 7}
        refused(client.delete("/documents/x%2F1"), 404, "no_document")
        for wrong in ({}, {"documents": []}, {"documents": [{"id": "", "text": "x"}]}, {"x": 1}):
            refused(client.post("/documents", json=wrong), 422, "bad_field")
        large = {"documents": [{"id": "z", "text": "x" * 3000}]}
        refused(client.post("/documents", json=large), 413, "body_too_large")
        refused(client.post("/documents", json=two, headers={"x-api-key": "no"}), 401, "wrong_key")
        with (index / "lock").open("wb") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            refused(client.delete("/documents/y"), 503, "index_busy")
    assert len(Searcher.open(index)) == 7
    with TestClient(create_app(Searcher.open(index))) as client:
        refused(client.post("/documents", json=two), 403, "no_writing")
        refused(client.delete("/documents/y"), 403, "no_writing")


def test_searches_go_on_while_documents_are_added(index, monkeypatch):
    searcher = Searcher.open(index)
    encode, encoding, go_on = searcher.encoder.encode_documents, Event(), Event()

    def slow(texts, **options):
        vectors = encode(texts, **options)
        encoding.set()
        return vectors

    # Stopped between the encoding and the commit, in the writer's thread.
    write = segments.write_segment
    monkeypatch.setattr(searcher.encoder, "encode_documents", slow)
    monkeypatch.setattr(segments, "write_segment", lambda *a: go_on.wait(10) and write(*a))
    app = create_app(searcher, ServiceSettings(api_key=KEY, timeout=2))
    with TestClient(app, headers={"x-api-key": KEY}) as client, ThreadPoolExecutor(1) as pool:
        body = {"documents": [{"id": f"n{n}", "text": "a moth"} for n in range(20)]}
        change = pool.submit(client.post, "/documents", json=body)
        assert encoding.wait(10)
        for _ in range(3):
            assert len(client.get("/search?q=moth&k=50").json()["hits"]) == 6
        go_on.set()
        assert change.result().json() == {"changed": 20, "documents": 26}
        assert len(client.get("/search?q=moth&k=50").json()["hits"]) == 26


def test_a_full_disk_is_told_and_changes_nothing(index, monkeypatch):
    settings = ServiceSettings(api_key=KEY)
    headers = {"x-api-key": KEY}
    body = {"documents": [{"id": "n", "text": "a moth"}]}

    def fail(_path):
        raise OSError(errno.ENOSPC, "No space left on device")

    with TestClient(create_app(Searcher.open(index), settings), headers=headers) as client:
        with monkeypatch.context() as patched:
            patched.setattr(manifest, "sync", fail)
            refused(client.post("/documents", json=body), 507, "disk_full")
            assert client.get("/health").json()["status"] == "disk_full"
            refused(client.delete("/documents/b"), 507, "disk_full")
        assert len(client.get("/search?q=moth&k=50").json()["hits"]) == 6
        assert client.post("/documents", json=body).json() == {"changed": 1, "documents": 7}
        assert client.get("/health").json()["status"] == "ok"


def test_what_cannot_be_removed_is_no_failure(index, monkeypatch, caplog):
    """The change is done when the manifest is written."""
    searcher = Searcher.open(index)
    (index / "segments" / "killed.part").touch()
    monkeypatch.setattr(
        Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError(1, "no"))
    )
    searcher.delete(["s"])
    monkeypatch.undo()
    assert "cannot remove" in caplog.text
    assert len(Searcher.open(index)) == 5


def test_active_requests_are_answered_after_sigterm(tmp_path):
    index = build(tmp_path / "index", "shipped")  # a process without torch starts sooner
    # A batch that waits two seconds leaves time to stop the service in the middle of it.
    options = ["--port", "0", "--batch-wait", "2000", "--api-key-env", "THE_KEY"]
    process = subprocess.Popen(
        [*COMMAND, "serve", str(index), *options],
        env={**os.environ, "THE_KEY": KEY, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.stderr.read()
        answers = _stopped_midway(address, process)
        status = process.wait(20)
    finally:
        process.kill()
        log = process.communicate()[1]
    assert status == 0
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [answer.json()["query"] for answer in answers] == [f"moth {n}" for n in range(4)]
    assert log.count("GET /search 200") == 4
    assert "Traceback" not in log


def _stopped_midway(address, process):
    """Send four queries, and stop the service while they wait."""
    with (
        httpx2.Client(base_url=address, headers={"x-api-key": KEY}, timeout=30) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        waiting = [pool.submit(client.get, f"/search?q=moth+{n}") for n in range(4)]
        while "boolattn_queries_waiting 4.0\n" not in client.get("/metrics").text:
            assert not any(answer.done() for answer in waiting)
        process.send_signal(signal.SIGTERM)
        return [answer.result() for answer in waiting]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is empty"),
        (["--max-k", "0"], "max_k must be at least 1"),
        (["--timeout", "inf"], "timeout must be above 0 and below 86400; got inf"),
        (["--port", "TAKEN"], "cannot listen on 127.0.0.1"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
    ],
)
def test_invalid_options_are_refused_in_one_line(index, options, message):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        options = [o.replace("INDEX", str(index)).replace("TAKEN", port) for o in options]
        done = CliRunner().invoke(app, ["serve", str(index), *options])
    assert isinstance(done.exception, BoolattnError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
