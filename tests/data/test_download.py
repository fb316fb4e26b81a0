"""Downloads against a server on this machine, one that can break off in the middle."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from boolattn.data.download import fetch, is_offline
from boolattn.errors import DataError, MissingDataError
from boolattn.files import cache_folder

BODY = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(BODY).hexdigest()


class Shelf(ThreadingHTTPServer):
    """Serves one body; the test says how much of it."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cut, self.n_requests = None, 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        shelf = self.server
        shelf.n_requests += 1
        if self.path == "/gone":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[: shelf.cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def shelf(monkeypatch):
    monkeypatch.delenv("BOOLATTN_OFFLINE", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Shelf() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_address[1]}/file"
        yield server
        server.shutdown()
        thread.join()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_fetched_once_then_cached(shelf, tmp_path):
    target = tmp_path / "deep" / "file"
    fetch(shelf.url, target, sha256=SHA256)
    assert target.read_bytes() == BODY
    assert fetch(shelf.url, target, sha256=SHA256) == target
    assert shelf.n_requests == 1
    assert names(target.parent) == ["file"]


def test_an_interrupted_download_says_so_and_leaves_nothing(shelf, tmp_path):
    target = tmp_path / "file"
    shelf.cut = 300_000
    with pytest.raises(MissingDataError, match=r"748576 more expected.*try again, or") as caught:
        fetch(shelf.url, target)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []
    shelf.cut = None
    assert fetch(shelf.url, target, sha256=SHA256).read_bytes() == BODY


def test_wrong_checksum_leaves_nothing(shelf, tmp_path):
    with pytest.raises(DataError, match=r"did not give the file .*wanted 000000000000"):
        fetch(shelf.url, tmp_path / "file", sha256="0" * 64)
    assert names(tmp_path) == []
    (tmp_path / "file").write_bytes(b"other")
    with pytest.raises(DataError, match="is not the file it should be: remove it"):
        fetch(shelf.url, tmp_path / "file", sha256=SHA256)


def test_no_such_file_and_no_server(shelf, tmp_path):
    gone = shelf.url.replace("/file", "/gone")
    with pytest.raises(MissingDataError, match=r"/gone \(HTTP Error 404: Not Found\); .*put it at"):
        fetch(gone, tmp_path / "file")
    with pytest.raises(MissingDataError, match=r"cannot fetch http://127\.0\.0\.1:9/x \(.*put it"):
        fetch("http://127.0.0.1:9/x", tmp_path / "file")
    assert names(tmp_path) == []


def test_unwritable_cache(shelf, tmp_path):
    (tmp_path / "cache").touch()
    with pytest.raises(DataError, match=r"cannot write .*cache: "):
        fetch(shelf.url, tmp_path / "cache" / "file")


def test_offline_says_what_to_fetch_and_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("BOOLATTN_OFFLINE", "1")
    with pytest.raises(MissingDataError) as caught:
        fetch("https://example.org/file", tmp_path / "file")
    assert str(caught.value) == (
        f"offline, and no {tmp_path}/file; fetch https://example.org/file and put it there"
    )


def test_what_forbids_the_network(monkeypatch):
    monkeypatch.setenv("BOOLATTN_OFFLINE", "0")
    assert not is_offline()
    monkeypatch.setenv("BOOLATTN_OFFLINE", "1")
    assert is_offline()


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("BOOLATTN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "boolattn"
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
