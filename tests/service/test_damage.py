"""Files that change under a service, arguments of any type, and what killed processes leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient

from boolattn.encoders.models import load_model
from boolattn.errors import BoolattnError, ConfigError, IndexFolderError, QueryError
from boolattn.files import _clean_scratch, scratch_folder
from boolattn.query.parser import load_parser
from boolattn.search import Searcher
from boolattn.service.app import create_app
from boolattn.service.settings import ServiceSettings
from boolattn.stores.local import manifest
from tests.search import word_model
from tests.service.test_api import refused

COMMAND = [sys.executable, "-c", "from boolattn.cli import main; main()"]


@pytest.fixture(scope="module")
def retriever():
    return word_model.retriever()


@pytest.fixture
def index(retriever, tmp_path):
    Searcher.build(tmp_path / "index", word_model.corpus(), retriever, segment_size=10)
    return tmp_path / "index"


@pytest.fixture
def client(index, retriever):
    settings = ServiceSettings(refresh=0)
    with TestClient(create_app(Searcher.open(index, retriever), settings)) as client:
        yield client


def overwrite(path):
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("change", ["cut", "overwritten"])
def test_a_small_index_answers_although_its_files_change(index, client, change):
    asked = {"query": "moths AND Borneo NOT Sumatra", "k": 5, "hybrid": True}
    before = client.post("/search", json=asked).json()["hits"]
    for path in index.rglob("*"):
        if path.is_file() and path.name not in ("manifest.json", "lock"):
            if change == "cut":
                os.truncate(path, 10)
            else:
                overwrite(path)
    assert client.post("/search", json=asked).json()["hits"] == before
    assert client.get("/documents/both").json()["text"] == "moths Borneo Sumatra"


def test_a_large_index_that_is_cut_is_not_read_further(index, retriever, monkeypatch, caplog):
    monkeypatch.setattr(manifest, "MAX_COPIED", 0)
    searcher = Searcher.open(index, retriever)
    with TestClient(create_app(searcher, ServiceSettings(refresh=0))) as client:
        assert client.get("/search?q=moths").status_code == 200
        path = next(index.rglob("*.safetensors"))
        content = path.read_bytes()
        os.truncate(path, 10)
        for _ in range(2):
            answer = refused(client.get("/search?q=moths"), 503, "index_damaged")
            assert "see the log" in answer.message
        refused(client.get("/documents/both"), 503, "index_damaged")
        assert client.get("/health").status_code == 200
        path.write_bytes(content)
        assert client.get("/search?q=moths").status_code == 200
    assert "safetensors was altered" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_large_index_that_is_overwritten_is_blamed(index, retriever, monkeypatch, caplog):
    monkeypatch.setattr(manifest, "MAX_COPIED", 0)
    searcher = Searcher.open(index, retriever)
    for path in index.rglob("*.safetensors"):
        overwrite(path)
    with pytest.raises(IndexFolderError, match=r"safetensors was altered: its hash differs"):
        searcher.search("moths")
    with TestClient(create_app(searcher, ServiceSettings(refresh=0))) as client:
        refused(client.get("/search?q=moths"), 503, "index_damaged")
        refused(client.get("/documents/both"), 503, "index_damaged")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/health", "/about", "/metrics"])
def test_head_is_get_without_a_body(client, path):
    head, get = client.head(path), client.get(path)
    assert head.status_code == get.status_code
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.content == b""


def test_head_of_a_search(client):
    assert client.head("/search?q=moths").status_code == 200
    assert client.head("/search").status_code == client.get("/search").status_code >= 400
    assert client.head("/documents/both").headers["content-length"] != "0"
    assert client.head("/documents/nobody").status_code == 404


def test_a_large_index_whose_vectors_change_gives_no_other_answer(index, retriever, monkeypatch):
    """Whoever changes them: other vectors are as readable, and their answer would be wrong."""
    monkeypatch.setattr(manifest, "MAX_COPIED", 0)
    searcher = Searcher.open(index, retriever)
    before = searcher.search("moths").hits
    path = next(index.rglob("segments/*"))
    content, document = path.read_bytes(), searcher.document("both")
    with path.open("r+b") as file:  # the same size
        file.seek(-64, os.SEEK_END)
        file.write(np.ones(16, np.float32).tobytes())
    for call in (
        lambda: searcher.search("moths"),
        lambda: searcher.document("both"),
        lambda: searcher.facets,
        lambda: searcher.examples,
    ):
        with pytest.raises(IndexFolderError, match=r"safetensors was altered: its hash differs"):
            call()
    # Restored as another file: the old one is still in the map.
    path.rename(path.with_name("old"))
    path.write_bytes(content)
    assert searcher.search("moths").hits == before
    os.utime(path)  # a new time is no damage
    assert searcher.document("both") == document
    path.unlink()  # nor is a deleted file, which stays in the map
    assert searcher.search("moths").hits == before


def test_vectors_that_change_during_a_search_give_no_answer(index, retriever, monkeypatch):
    monkeypatch.setattr(manifest, "MAX_COPIED", 0)
    searcher = Searcher.open(index, retriever)
    encode = retriever.encode_queries

    def encode_slowly(*given, **options):
        overwrite(next(index.rglob("segments/*")))
        return encode(*given, **options)

    monkeypatch.setattr(retriever, "encode_queries", encode_slowly)
    with pytest.raises(IndexFolderError, match=r"safetensors was altered"):
        searcher.search("moths")


def children(process):
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(name) for name in path.read_text().split()]


#: The command, over an index that counts as large; with a file "blind" nothing is compared, as
#: where a file is cut between the comparison and the search.
MAPPED = """
from boolattn.stores.local import manifest, store
manifest.MAX_COPIED, compared = 0, manifest.read_stamps
store.read_stamps = lambda folder, own: (
    {} if (folder / "blind").exists() else compared(folder, own))
from boolattn.cli import main
main()
"""


@pytest.fixture
def service(tmp_path):
    """The command over an index of the shipped model."""
    folder = tmp_path / "index"
    documents = word_model.corpus()[:3]
    Searcher.build(folder, documents, load_model("shipped"), model="shipped")
    process = subprocess.Popen(
        [sys.executable, "-c", MAPPED, "serve", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_a_cut_file_is_answered_with_503_or_starts_the_service_again(service, tmp_path):
    """A fault in a memory map is SIGBUS, and ends the process that reads."""
    address = service.stdout.readline().strip()
    [first] = children(service)
    before = httpx2.get(f"{address}search?q=moths").json()["hits"]
    path = next(tmp_path.rglob("segments/*"))
    content = path.read_bytes()
    for damage in (lambda: os.truncate(path, 0), lambda: overwrite(path)):
        damage()
        reply = httpx2.get(f"{address}search?q=moths")
        assert refused(reply, 503, "index_damaged").message.startswith("the index is damaged")
        path.write_bytes(content)
        assert httpx2.get(f"{address}search?q=moths").json()["hits"] == before
    assert children(service) == [first]
    (tmp_path / "index" / "blind").touch()
    os.truncate(path, 0)
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.get(f"{address}search?q=moths", timeout=20)
    line = next(line for line in service.stderr if "boolattn:" in line)
    assert line == "boolattn: the service ended with SIGBUS; it starts again in 2 s\n"
    path.write_bytes(content)
    # Waits until the service has started again, at the same address.
    assert httpx2.get(f"{address}search?q=moths", timeout=20).json()["hits"] == before
    [second] = children(service)
    assert second != first
    service.kill()
    assert "Traceback" not in service.stderr.read()  # ends when the child has closed it


@pytest.mark.slow
def test_a_service_whose_file_stays_cut_comes_back_when_it_is_restored(service, tmp_path):
    address = service.stdout.readline().strip()
    before = httpx2.get(f"{address}search?q=moths").json()["hits"]
    (tmp_path / "index" / "blind").touch()
    path = next(tmp_path.rglob("segments/*"))
    content = path.read_bytes()
    os.truncate(path, 10)
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.get(f"{address}search?q=moths", timeout=20)
    lines = [next(service.stderr)]
    while "starts again in 4 s" not in lines[-1]:
        lines.append(next(service.stderr))
    assert "safetensors was altered" in "".join(lines)
    path.write_bytes(content)
    assert httpx2.get(f"{address}search?q=moths", timeout=60).json()["hits"] == before
    service.kill()
    assert "Traceback" not in "".join(lines) + service.stderr.read()


WRONG = (None, b"moths", ["moths"], {"a": 1}, float("nan"), 1.5, object(), True, 7, "", "x\0y")


@pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__)
def test_arguments_of_any_type_are_refused_or_answered(index, retriever, value):
    """Whatever is given: an answer, or one line."""
    searcher = Searcher.open(index, retriever)
    names = ("mode", "filters", "hybrid", "compose", "strict_not", "exhaustive", "verdicts")
    calls = [
        lambda: searcher.search(value),
        lambda: searcher.search_many(value),
        lambda: searcher.search_many([value]),
        lambda: searcher.search("moths", value),
        lambda: searcher.document(value),
        lambda: Searcher.open(value, retriever),
        lambda: load_model(value),
        lambda: load_model("shipped", device=value) if not isinstance(value, str | None) else None,
        lambda: load_parser(value),
        lambda: Searcher.open(index, retriever, parser=value) if value is not None else None,
    ]
    calls += [
        lambda name=name: searcher.search("moths", **{name: value})
        for name in (*names, "offset", "positive", "negative")
    ]
    messages = []
    for call in calls:
        try:
            call()
        except BoolattnError as error:
            messages.append(str(error))
    assert messages
    assert not any("\n" in message for message in messages)


def test_arguments_that_are_right_are_taken(index, retriever):
    searcher = Searcher.open(str(index), retriever)
    assert len(searcher.search("moths", np.int64(3)).hits) == 3
    assert len(searcher.search_many(("moths", "birds"))) == 2
    for wrong in (None, "3", 3.0, True, float("nan")):
        with pytest.raises(QueryError, match="k must be an int"):
            searcher.search("moths", wrong)
    with pytest.raises(QueryError, match="queries are a list of texts, not str"):
        searcher.search_many("moths")
    with pytest.raises(ConfigError, match=r"hybrid must be a bool.*, got 'yes'"):
        searcher.search("moths", hybrid="yes")
    with pytest.raises(ConfigError, match=r"name must be a str.*, got b'shipped'"):
        load_model(b"shipped")


def test_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import os, signal\nfrom boolattn.files import scratch_folder\n"
        "with scratch_folder() as folder:\n"
        "    (folder / 'x').write_text('x')\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, check=False
        )
    with scratch_folder() as alive:
        old = time.time() - 3600
        foreign = tmp_path / "boolattn-scratch-file"
        foreign.write_text("a file")
        (tmp_path / "boolattn-other").mkdir()
        left = [path for path in tmp_path.iterdir() if path != alive]
        assert len(left) == 4
        _clean_scratch.cache_clear()
        _clean_scratch()
        assert len(list(tmp_path.iterdir())) == 5  # all are new
        for path in tmp_path.iterdir():
            os.utime(path, (old, old))
        _clean_scratch.cache_clear()
        _clean_scratch()
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {foreign.name, "boolattn-other", alive.name}
        assert alive.is_dir()
    assert not alive.exists()
