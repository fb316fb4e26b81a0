"""``boolattn serve`` as a process, and what strangers send to it."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from boolattn.encoders.models import load_model
from boolattn.search import Searcher
from tests.search import word_model
from tests.service.test_api import refused

KEY = {"x-api-key": "a-key-of-enough-letters"}
COMMAND = [sys.executable, "-m", "boolattn", "serve"]
N_FILES = 256


def limit_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (N_FILES, N_FILES))


class Service:
    """A process, its address and its log."""

    def __init__(self, folder, *options):
        self.folder, self.lines = folder, []
        self.process = subprocess.Popen(
            [*COMMAND, str(folder), "--port", "0", "--api-key-env", "THE_KEY", *options],
            env={**os.environ, "THE_KEY": KEY["x-api-key"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit_files,
        )
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self.reader.start()
        self.address = self.process.stdout.readline().strip()
        self.host = urlsplit(self.address).netloc

    def connect(self):
        name, _, port = self.host.partition(":")
        return socket.create_connection((name, int(port)), timeout=20)

    def ask(self, method="GET", path="search?q=moths", **options):
        headers = KEY | options.pop("headers", {})
        address = self.address + path
        return httpx2.request(method, address, headers=headers, timeout=30, **options)

    def raw(self, request):
        """Send bytes; return all that is answered."""
        with self.connect() as connection:
            connection.sendall(request)
            return answered(connection)

    def stop(self):
        self.process.kill()
        self.process.wait(10)
        self.reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()


def answered(connection):
    """Read until the other end closes."""
    chunks = []
    while chunk := connection.recv(65536):
        chunks.append(chunk)
    return b"".join(chunks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service") / "index"
    Searcher.build(folder, word_model.corpus()[:3], load_model("shipped"), model="shipped")
    return folder


@pytest.fixture(scope="module")
def service(folder):
    options = ("--timeout", "2", "--max-upload", str(1 << 20), "--concurrency", "8")
    started = Service(folder, *options)
    yield started
    started.stop()
    assert "Traceback" not in "".join(started.lines)


def head(path, host, length, *more):
    lines = (f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {length}", *more)
    return "\r\n".join((*lines, f"X-API-Key: {KEY['x-api-key']}", "", "")).encode()


def test_bodies_that_never_arrive_take_no_place(service):
    with ExitStack() as stack:
        stalled = [stack.enter_context(service.connect()) for _ in range(64)]
        for number, connection in enumerate(stalled):
            path = "/documents" if number % 8 == 0 else "/search"
            connection.sendall(head(path, service.host, 100) + b"{")
        statuses = [service.ask().status_code for _ in range(5)]
        assert statuses == [200] * 5
        for connection in stalled[:9]:
            answer = answered(connection)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"slow_body" in answer


def test_idle_connections_are_pushed_out_and_closed(service):
    n_lines = len(service.lines)
    with ExitStack() as stack:
        idle = [stack.enter_context(service.connect()) for _ in range(N_FILES + 40)]
        assert service.ask(path="health").json()["status"] == "ok"
        assert service.ask().status_code == 200
        # Half of a head, a byte at a time, is no request either.
        with service.connect() as slow:
            slow.sendall(b"GET /health HT")
            closed = [select.select([c], [], [], 20)[0] and c.recv(1) for c in (*idle, slow)]
    assert closed == [b""] * len(closed)
    told = [line for line in service.lines[n_lines:] if "connections are open" in line]
    assert len(told) == 1


def test_a_foreign_name_is_refused(service):
    for host in (
        "evil.test",
        f"evil.test:{service.host.rpartition(':')[2]}",
        "127.0.0.1.evil.test",
    ):
        for path in ("/search?q=moths", "/", "/search/", "/health"):
            answer = service.raw(
                f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            )
            assert answer.startswith(b"HTTP/1.1 421 ")
            assert b"evil" not in answer
    for host in ("localhost:1234", "LOCALHOST", "[::1]:80", service.host):
        answer = service.ask(headers={"host": host})
        assert answer.status_code == 200
    assert "location" not in service.ask(path="search/?q=moths").headers


def test_work_is_limited_over_the_whole_request(service):
    def search(**request):
        return service.ask("POST", "search", json=request)

    message = refused(search(positive=["a"] * 1000), 400, "bad_query").message
    assert message == "a query has at most 256 operands, not 1000"
    message = refused(search(query="moths", negative=["a"] * 256), 400, "bad_query").message
    assert message == "a query has at most 256 operands, not 257"
    words = [f"a{n}" for n in range(200)]
    message = refused(search(positive=words), 400, "bad_query").message
    assert "200 operands, and with so many results at most 156 are" in message
    message = refused(search(query=" OR ".join(words[:120]), k=100), 400, "bad_query").message
    assert "at most 109" in message
    assert search(positive=words[:20]).status_code == 200


def test_a_large_body_is_answered(service):
    large = json.dumps({"documents": [{"id": "1", "text": "x" * (17 << 20)}]}).encode()
    refused(service.ask("POST", "documents", content=large), 413, "body_too_large")
    chunks = (large[start : start + 65536] for start in range(0, len(large), 65536))
    refused(service.ask("POST", "documents", content=chunks), 413, "body_too_large")
    # The rest of the body is no request.
    two = head("/search", service.host, 70_000) + b" " * 70_000
    answer = service.raw(two + f"GET /health HTTP/1.0\r\nHost: {service.host}\r\n\r\n".encode())
    assert [answer.count(status) for status in (b"1.1 413 ", b"1.1 200 ", b"HTTP/")] == [1, 1, 2]


def test_a_broken_chunk_is_one_line(service):
    request = head("/search", service.host, 0, "Transfer-Encoding: chunked")
    request = request.replace(b"Content-Length: 0\r\n", b"")
    for body in (b"5\r\nabc", b"zz\r\n", b'2\r\n{"XX'):
        answer = service.raw(request + body + b"\r\n\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 40")
    assert service.ask().status_code == 200


def test_numbers_that_json_does_not_have_are_refused(service):
    for value in ("NaN", "[1, -Infinity]", '{"a": [NaN]}'):
        text = f'{{"documents": [{{"id": "nan", "text": "a", "metadata": {{"n": {value}}}}}]}}'
        headers = {"content-type": "application/json"}
        answer = service.ask("POST", "documents", content=text, headers=headers)
        assert "must be a finite number" in refused(answer, 422, "bad_field").message
    refused(service.ask(path="documents/nan"), 404, "no_document")


def test_an_interrupt_while_it_starts_is_quiet(folder):
    """From the loading of modules to the first request; both start at once."""

    def interrupt(seconds):
        process = subprocess.Popen(
            [*COMMAND, str(folder), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            assert process.poll() is None
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        log = process.communicate(timeout=20)[1]
        return process.returncode, "Traceback" in log

    with ThreadPoolExecutor(2) as pool:
        for status, is_loud in pool.map(interrupt, (0.3, 1.0)):
            assert status in (0, 1, 130)
            assert not is_loud


def test_a_port_that_does_not_exist(folder):
    command = [*COMMAND, str(folder), "--port", "99999"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "Invalid value for '--port'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_upload_is_answered_or_undone_when_the_service_stops(folder):
    service = Service(folder, "--timeout", "2")
    text = "A hawk moth that flies over wet forests at night. " * 48
    documents = [{"id": f"new-{n}", "text": f"{n} {text}"} for n in range(100)]
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(service.ask, "POST", "documents", json={"documents": documents})
            while "boolattn_requests_active 1.0" not in service.ask(path="metrics").text:
                assert not answer.done()
            service.process.send_signal(signal.SIGTERM)
            start = time.monotonic()
            reply = answer.result()
            assert service.process.wait(20) == 0
            assert time.monotonic() - start < 20
    finally:
        service.stop()
    refused(reply, 503, "stopping")
    assert reply.headers["connection"] == "close"
    assert len(Searcher.open(folder)) == 3
    assert "Traceback" not in "".join(service.lines)


def children(process):
    names = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(name) for name in names.split()]


def wait_for_workers(service):
    end = time.monotonic() + 60
    while len(workers := children(service.process)) < 2:
        assert time.monotonic() < end
    return workers


def test_workers_share_the_address_the_changes_and_the_counts(tmp_path, monkeypatch):
    model = load_model("shipped")
    folder = tmp_path / "index"
    Searcher.build(folder, word_model.corpus()[:5], model, model="shipped")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    service = Service(folder, "--workers", "2")
    try:
        workers = wait_for_workers(service)
        # Every connection is a new one: both workers answer, and both see each change.
        for number in range(6):
            document = {"id": f"new-{number}", "text": f"A hawk moth of valley {number}."}
            reply = service.ask("POST", "documents", json={"documents": [document]})
            assert reply.json()["documents"] == 6 + number
            for _ in range(4):
                assert service.ask(path=f"documents/new-{number}").status_code == 200
                assert len(service.ask(path="search?q=moth&k=50").json()["hits"]) == 6 + number
        counts = service.ask(path="metrics").text
        assert 'boolattn_requests_total{route="/search",status="200"} 24.0' in counts
        assert f"boolattn_documents {6 + 5}.0" in counts
        # One that is killed starts again, and the other one answers meanwhile.
        os.kill(workers[0], signal.SIGKILL)
        time.sleep(0.5)
        for _ in range(5):
            assert service.ask(path="search?q=moth").status_code == 200
        assert workers[0] not in wait_for_workers(service)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(20) == 0
    finally:
        service.stop()
    log = "".join(service.lines)
    assert "Traceback" not in log
    assert log.count("the service ended with SIGKILL") == 1
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert not any(tmp_path.glob("boolattn-metrics-*"))


def test_workers_that_cannot_start_say_so_once(tmp_path):
    command = [*COMMAND, str(tmp_path / "nothing"), "--port", "0", "--workers", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nothing" in done.stderr
