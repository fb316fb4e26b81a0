"""Limits of size, concurrency and time; the API key; batching."""

import asyncio
import socket
import threading
import time
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
import pytest
from fastapi.testclient import TestClient

from boolattn.errors import ConfigError
from boolattn.query.plan import StoppedError, check_budget
from boolattn.service.app import Server, create_app, listen
from boolattn.service.batching import CLIENT, Batcher
from boolattn.service.settings import ServiceSettings, key_from
from tests.service.test_api import refused

KEY = "a-key-of-enough-letters"


def test_a_large_body_is_refused_by_its_content_length(serve, searcher):
    response = serve().post("/search", json={"query": "a", "filters": {"x": "y" * 70_000}})
    refused(response, 413, "body_too_large")
    assert searcher.calls == []


def test_a_large_body_without_content_length_is_refused(serve):
    def parts():
        yield b'{"query": "moth"'
        for _ in range(100):
            yield b" " * 1000
        yield b"}"

    headers = {"content-type": "application/json"}
    response = serve(max_body=5000).post("/search", content=parts(), headers=headers)
    refused(response, 413, "body_too_large")


def test_too_many_concurrent_requests_get_503(serve, searcher):
    client = serve(concurrency=2, batch_size=1, batch_wait=0)
    searcher.delay = 0.3
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: client.get("/search?q=moth"), range(6)))
    busy = [answer for answer in answers if answer.status_code == 503]
    assert len(busy) == 4
    for answer in busy:
        refused(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"
    # Later requests are answered again, and other paths are not limited.
    searcher.delay = 0
    assert client.get("/search?q=moth").status_code == 200
    counted = client.get("/metrics").text
    assert 'boolattn_refused_total{code="busy"} 4.0\n' in counted
    assert 'boolattn_requests_total{route="/search",status="503"} 4.0\n' in counted


def test_health_is_not_limited(serve, searcher):
    client = serve(concurrency=1)
    searcher.delay = 0.5
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.get, "/search?q=moth")
        while not searcher.calls:
            time.sleep(0.005)
        assert client.get("/health").status_code == 200
        assert client.get("/").status_code == 200
        assert client.get("/search?q=moth").status_code == 503
        assert slow.result().status_code == 200


def test_a_slow_search_times_out(serve, searcher):
    client = serve(timeout=0.1)
    searcher.delay = 0.4
    refused(client.get("/search?q=moth"), 504, "timeout")
    searcher.delay = 0
    while client.get("/search?q=moth").status_code == 504:
        pass  # until the worker thread has finished the first
    assert client.get("/search?q=moth").status_code == 200


def test_a_query_that_times_out_in_the_queue_is_never_searched(serve, searcher):
    client = serve(timeout=0.2, batch_size=1)
    searcher.delay = 0.5
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: client.get(f"/search?q=moth{n}"), range(3)))
    searcher.delay = 0
    while client.get("/search?q=last").status_code == 504:
        pass
    assert len([call for call in searcher.calls if call != ["last"]]) == 1


@pytest.mark.parametrize(
    "path",
    ["/search?q=a", "/documents/b", "/about", "/metrics", "/examples", "/facets"],
)
def test_protected_paths_need_the_key(serve, searcher, path):
    client = serve(api_key=KEY)
    response = client.get(path)
    refused(response, 401, "no_key")
    assert response.headers["www-authenticate"] == "Bearer"
    for shown in (KEY[:-1], KEY + "x", KEY.upper(), "ключ", ""):
        bearer = {"authorization": f"Bearer {shown}".encode()}
        assert client.get(path, headers=bearer).status_code == 401
        assert client.get(path, headers={"x-api-key": shown.encode()}).status_code == 401
    assert searcher.calls == []
    for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}):
        assert client.get(path, headers=headers).status_code == 200


def test_the_key_is_needed_under_a_root_path(searcher):
    app = create_app(searcher, ServiceSettings(api_key=KEY))
    with TestClient(app, root_path="/inside", raise_server_exceptions=False) as client:
        refused(client.get("/inside/search?q=a"), 401, "no_key")
        allowed = client.get("/inside/search?q=a", headers={"x-api-key": KEY})
        assert allowed.status_code == 200
        assert client.get("/inside/health").status_code == 200


def test_page_and_health_need_no_key(serve):
    client = serve(api_key=KEY)
    for path in ("/", "/page/page.js", "/health", "/openapi.json"):
        assert client.get(path).status_code == 200


def test_invalid_settings_are_refused(monkeypatch):
    for name, value in (("max_k", 0), ("concurrency", 0), ("timeout", 0), ("batch_wait", 20)):
        with pytest.raises(ConfigError, match=name):
            ServiceSettings(**{name: value})
    with pytest.raises(ConfigError, match="16 characters"):
        ServiceSettings(api_key="short")
    assert KEY not in repr(ServiceSettings(api_key=KEY))
    monkeypatch.setenv("THE_KEY", f" {KEY}\n")
    assert key_from("THE_KEY") == KEY
    with pytest.raises(ConfigError, match="NO_SUCH_KEY is empty"):
        key_from("NO_SUCH_KEY")


def test_queries_that_arrive_together_are_searched_together(serve, searcher):
    client = serve(batch_size=16, concurrency=200, per_client=200)
    searcher.delay = 0.02
    with ThreadPoolExecutor(60) as pool:
        answers = list(pool.map(lambda n: client.get(f"/search?q=moth+{n}"), range(60)))
    # Nothing is lost, and every caller gets the answer to its own query.
    assert [answer.json()["query"] for answer in answers] == [f"moth {n}" for n in range(60)]
    assert sorted(q for call in searcher.calls for q in call) == sorted(
        f"moth {n}" for n in range(60)
    )
    assert len(searcher.calls) < 30
    assert max(map(len, searcher.calls)) > 4
    assert max(map(len, searcher.calls)) <= 16
    assert len(searcher.threads) == 1
    assert threading.main_thread().name not in searcher.threads


def test_one_bad_query_does_not_affect_its_batch(serve, searcher):
    client = serve(batch_size=16, batch_wait=0.2)
    asked = ["moth", "moths AND (", "crash", "beetle"]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda q: client.get("/search", params={"q": q}), asked))
    assert [answer.status_code for answer in answers] == [200, 400, 500, 200]
    assert max(map(len, searcher.calls)) == 4


def test_queries_with_other_options_are_not_mixed(serve, searcher):
    client = serve(batch_wait=0.2)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda k: client.get(f"/search?q=moth&k={k}"), (1, 2, 3, 1)))
    assert [len(answer.json()["hits"]) for answer in answers] == [1, 2, 3, 1]


def test_closing_answers_the_queue():
    async def run():
        batcher = Batcher(
            lambda _options, queries, _is_over: (time.sleep(0.05), [q.upper() for q in queries])[1],
            size=2,
            wait=0.001,
        )
        batcher.start()
        waiting = [asyncio.create_task(batcher.submit(None, f"q{n}")) for n in range(7)]
        await asyncio.sleep(0.01)
        await batcher.close()
        async with asyncio.timeout(5):
            assert await asyncio.gather(*waiting) == [f"Q{n}" for n in range(7)]
        with pytest.raises(RuntimeError, match="does not run"):
            await batcher.submit(None, "late")

    asyncio.run(run())


def test_a_missing_answer_is_an_error():
    async def run():
        batcher = Batcher(lambda _options, queries, _is_over: queries[1:], size=4, wait=0.01)
        batcher.start()
        with pytest.raises(ValueError, match="shorter"):
            await batcher.submit(None, "q")
        await batcher.close()

    asyncio.run(run())


ODD = [StopIteration(), FutureCancelled(), asyncio.CancelledError(), SystemExit(3), MemoryError()]


@pytest.mark.parametrize("raised", ODD, ids=lambda error: type(error).__name__)
def test_later_queries_are_answered_after_any_failure(serve, searcher, raised):
    # An event loop cannot take some of these from a thread.
    client = serve(timeout=5, batch_wait=0.05)
    search = searcher.search_many

    def fail(*_queries, **_options):
        raise raised

    searcher.search_many = fail
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda n: client.get(f"/search?q=moth+{n}"), range(3)))
    assert [answer.status_code for answer in answers] == [500] * 3
    searcher.search_many = search
    assert client.get("/search?q=moth").status_code == 200
    assert client.get("/health").status_code == 200


def test_clients_take_turns():
    """One with many queries does not keep another waiting, and short queries come first."""
    batches = []

    def search(_options, queries, _is_over):
        batches.append(list(queries))
        return queries

    async def ask(batcher, client, options, queries):
        CLIENT.set(client)
        await asyncio.gather(*(batcher.submit(options, query) for query in queries))

    async def run():
        batcher = Batcher(search, size=4, wait=0.05)
        batcher.start()
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            tasks.create_task(ask(batcher, "a", 1, [f"a{n}" for n in range(6)]))
            tasks.create_task(ask(batcher, "b", 1, ["b0"]))
            tasks.create_task(ask(batcher, "c", 2, ["c" * 1000]))
        await batcher.close()

    asyncio.run(run())
    assert batches == [["a0", "b0", "a1"], ["c" * 1000], ["a2", "a3", "a4", "a5"]]


def test_a_search_stops_when_nobody_waits(serve, searcher):
    """At the time limit, and in a real server when the caller leaves."""
    started, stopped = threading.Event(), threading.Event()

    def search(_queries, _k, **_options):
        started.set()
        try:
            while True:
                check_budget()
                time.sleep(0.001)
        except StoppedError:
            stopped.set()
            raise

    answer, searcher.search_many = searcher.search_many, search
    refused(serve(timeout=1).get("/search?q=moth"), 504, "timeout")
    assert stopped.wait(20)
    started.clear()
    stopped.clear()
    with running(searcher, ServiceSettings()) as address:
        with socket.create_connection(address) as connection:
            connection.sendall(b"GET /search?q=moth HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert started.wait(20)
        assert stopped.wait(20)
        searcher.search_many = answer
        assert httpx2.get(f"http://{address[0]}:{address[1]}/search?q=moth").status_code == 200


@contextmanager
def running(searcher, settings):
    """Run the server in a thread."""
    ready = threading.Event()
    server = Server(create_app(searcher, settings), settings, ready=ready.set)
    [listener] = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(10)
        yield listener.getsockname()
    finally:
        server.handle_exit(2, None)
        thread.join(20)


@pytest.mark.parametrize("trusted", [(), ("127.0.0.1",)])
def test_a_trusted_proxy_names_its_clients(searcher, trusted):
    searcher.delay = 0.5
    settings = ServiceSettings(per_client=1, trusted_proxies=trusted)
    with running(searcher, settings) as (host, port), ThreadPoolExecutor(3) as pool:

        def ask(client):
            headers = {"x-forwarded-for": client}
            address = f"http://{host}:{port}/search?q=moth+{client}"
            return httpx2.get(address, headers=headers, timeout=20).status_code

        statuses = list(pool.map(ask, ("10.0.0.1", "10.0.0.2", "2001:db8::7")))
    assert sorted(statuses) == ([200, 200, 200] if trusted else [200, 503, 503])


def test_a_network_of_ipv6_is_one_client(searcher):
    searcher.delay = 0.5
    settings = ServiceSettings(per_client=1, trusted_proxies=("127.0.0.1",))
    with running(searcher, settings) as (host, port), ThreadPoolExecutor(2) as pool:

        def ask(client):
            headers = {"x-forwarded-for": client}
            return httpx2.get(f"http://{host}:{port}/search?q=moth", headers=headers).status_code

        assert sorted(pool.map(ask, ("2001:db8::7", "2001:db8::8"))) == [200, 503]
