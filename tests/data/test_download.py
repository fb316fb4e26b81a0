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
    """Serves one body; the test says how much of it and under which version."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.etag, self.cut = BODY, '"v1"', None
        self.ranges, self.statuses = [], []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        shelf = self.server
        asked = self.headers.get("Range")
        shelf.ranges.append(asked)
        if self.path == "/gone":
            self.send_error(404)
            return
        start = 0
        if asked and self.headers.get("If-Range") == shelf.etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(shelf.body):
                self.send_error(416)
                return
        shelf.statuses.append(206 if start else 200)
        self.send_response(shelf.statuses[-1])
        self.send_header("Content-Length", str(len(shelf.body) - start))
        if shelf.etag:
            self.send_header("ETag", shelf.etag)
        self.end_headers()
        self.wfile.write(shelf.body[start : shelf.cut])

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
    seen = []
    fetch(shelf.url, target, sha256=SHA256, progress=lambda *at: seen.append(at))
    assert target.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert fetch(shelf.url, target, sha256=SHA256) == target
    assert len(shelf.ranges) == 1
    assert names(target.parent) == ["file"]


def test_bar_goes_to_stderr(shelf, tmp_path, capsys):
    fetch(shelf.url, tmp_path / "file")
    assert capsys.readouterr().out == ""


def test_interrupted_download_says_so_and_goes_on(shelf, tmp_path):
    target = tmp_path / "file"
    shelf.cut = 300_000
    with pytest.raises(DataError, match=r"/file stopped after 300,000 bytes; run it again") as it:
        fetch(shelf.url, target)
    assert "\n" not in str(it.value)
    assert not target.exists()
    shelf.cut = None
    fetch(shelf.url, target, sha256=SHA256)
    assert shelf.ranges == [None, "bytes=300000-"]
    assert shelf.statuses == [200, 206]
    assert target.read_bytes() == BODY
    assert names(tmp_path) == ["file"]


def test_interrupted_by_the_user_goes_on_too(shelf, tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(shelf.url, tmp_path / "file", progress=stop)
    assert not (tmp_path / "file").exists()
    assert fetch(shelf.url, tmp_path / "file").read_bytes() == BODY
    assert shelf.ranges[1].startswith("bytes=")


def test_a_file_that_changed_meanwhile_is_fetched_anew(shelf, tmp_path):
    shelf.cut = 300_000
    with pytest.raises(DataError):
        fetch(shelf.url, tmp_path / "file")
    shelf.cut, shelf.etag, shelf.body = None, '"v2"', BODY[::-1]
    seen = []
    fetch(shelf.url, tmp_path / "file", progress=lambda *at: seen.append(at))
    assert (tmp_path / "file").read_bytes() == BODY[::-1]
    assert seen[-1] == (len(BODY), len(BODY))


def test_without_a_version_nothing_is_continued(shelf, tmp_path):
    shelf.cut, shelf.etag = 300_000, ""
    with pytest.raises(DataError):
        fetch(shelf.url, tmp_path / "file")
    shelf.cut = None
    assert fetch(shelf.url, tmp_path / "file").read_bytes() == BODY
    assert shelf.ranges == [None, None]


def test_part_that_is_too_long_is_dropped(shelf, tmp_path):
    shelf.cut = 300_000
    with pytest.raises(DataError):
        fetch(shelf.url, tmp_path / "file")
    (tmp_path / "file.part").write_bytes(BODY * 2)
    shelf.cut = None
    assert fetch(shelf.url, tmp_path / "file").read_bytes() == BODY


def test_wrong_checksum_leaves_nothing(shelf, tmp_path):
    with pytest.raises(DataError, match=r"did not give the file .*wanted 000000000000"):
        fetch(shelf.url, tmp_path / "file", sha256="0" * 64)
    assert names(tmp_path) == []
    (tmp_path / "file").write_bytes(b"other")
    with pytest.raises(DataError, match="is not the file it should be: remove it"):
        fetch(shelf.url, tmp_path / "file", sha256=SHA256)


def test_no_such_file_and_no_server(shelf, tmp_path):
    gone = shelf.url.replace("/file", "/gone")
    with pytest.raises(MissingDataError, match=r"/gone answers 404 Not Found; .*put it at .*file"):
        fetch(gone, tmp_path / "file")
    with pytest.raises(MissingDataError, match=r"cannot reach http://127\.0\.0\.1:9/x \(.*put it"):
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
    hub, other = "https://huggingface.co/x", "https://example.org/x"
    for name in ("BOOLATTN_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "0")
    assert not is_offline(hub)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert is_offline(hub)
    assert not is_offline(other)
    monkeypatch.setenv("BOOLATTN_OFFLINE", "1")
    assert is_offline(other)


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("BOOLATTN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "boolattn"
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
