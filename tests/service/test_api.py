"""Replies and errors of the JSON API."""

import json
import logging
import math
import re

import pytest

from boolattn.errors import ServerError
from boolattn.service.schemas import ErrorReply, SearchRequest

QUERY = "moths of Borneo but not Sumatra"


def refused(response, status, code):
    """Check that a response is an error in the common form, with one line."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = ErrorReply.model_validate(response.json(), strict=True).error
    assert error.code == code
    assert error.message
    assert "\n" not in error.message
    assert len(error.message) <= 300
    assert "Traceback" not in response.text
    return error


def test_search_returns_the_tree_and_a_verdict_for_each_result(serve):
    reply = serve().post("/search", json={"query": QUERY, "k": 3}).json()
    assert reply["tree"] == "moths of Borneo NOT Sumatra"
    assert reply["operators"] == ["not"]
    assert [(o["text"], o["spans"], o["is_negated"]) for o in reply["operands"]] == [
        ("moths of Borneo", [[0, 15]], False),
        ("Sumatra", [[24, 31]], True),
    ]
    assert reply["nodes"] == {
        "op": "and",
        "operand": None,
        "parts": [
            {"op": "operand", "parts": [], "operand": 0},
            {
                "op": "not",
                "operand": None,
                "parts": [{"op": "operand", "parts": [], "operand": 1}],
            },
        ],
    }
    assert [hit["rank"] for hit in reply["hits"]] == [1, 2, 3]
    first = reply["hits"][0]
    assert (first["id"], first["verdict"], first["ranks"]) == ("b", "kept", [3, 99])
    assert reply["took"]["total"] > 0


def test_get_and_post_answer_the_same(serve):
    client = serve()
    by_post = client.post("/search", json={"query": QUERY, "k": 2}).json()
    by_get = client.get("/search", params={"q": QUERY, "k": 2}).json()
    by_post.pop("took"), by_get.pop("took")
    assert by_get == by_post


def test_an_address_has_the_options_of_a_body(serve, searcher, monkeypatch):
    asked = []
    monkeypatch.setattr(searcher, "search_many", lambda *a, **o: asked.append(o) or 1 / 0)
    address = "/search?q=a&hybrid=1&strict_not=true&compose=false&filter=place%3DPeru"
    serve().get(f"{address}&kinds=0&allow=cream&allow=milk")
    body = {"hybrid": True, "strict_not": True, "compose": False}
    body |= {"kinds": False, "allow": ["cream", "milk"]}
    serve().post("/search", json={"query": "a", **body, "filters": {"place": {"in": ["Peru"]}}})
    assert asked[0] == asked[1]
    assert asked[0]["strict_not"]
    assert (asked[0]["kinds"], asked[0]["allow"]) == (False, ["cream", "milk"])
    serve().get("/search?q=a")
    assert (asked[2]["kinds"], asked[2]["allow"]) == (True, [])


def test_filters_reach_the_searcher_and_1_is_not_true(serve, searcher):
    client = serve()
    reply = client.post("/search", json={"query": "moth", "filters": {"place": "Sumatra"}}).json()
    assert [hit["id"] for hit in reply["hits"]] == ["s"]
    one, true = (SearchRequest(filters={"a": value}).model_dump_json() for value in (1, True))
    assert one != true


def test_a_long_text_is_cut_in_results_and_complete_by_id(serve):
    client = serve(snippet=50)
    hit = client.get("/search", params={"q": "wing", "k": 1}).json()["hits"][0]
    assert (len(hit["text"]), hit["is_cut"]) == (50, True)
    whole = client.get("/documents/long").json()
    assert len(whole["text"]) == 10_000


def test_a_document_id_may_have_slashes_and_spaces(serve):
    client = serve()
    assert client.get("/documents/x%2Fy%20z").json()["id"] == "x/y z"
    refused(client.get("/documents/nobody"), 404, "no_document")


def test_an_infinite_score_is_null(serve, searcher):
    searcher.least = -math.inf
    reply = serve().get("/search", params={"q": "moth"})
    assert reply.status_code == 200
    assert reply.json()["hits"][-1]["score"] is None


@pytest.mark.parametrize(
    ("query", "status", "code", "column"),
    [
        ("", 400, "query_empty", None),
        (" \t ", 400, "query_empty", None),
        ("moths AND (Borneo", 400, "query_syntax", 11),
        ("moths) AND Borneo", 400, "query_syntax", 6),
        ("moths \x00\x01", 400, "query_not_text", 7),
        ("\ufffd\ufffdPNG", 400, "query_not_text", 1),
        ("m" * 1001, 400, "query_too_long", None),
        ("crash", 500, "internal", None),
    ],
)
def test_invalid_queries_are_refused(serve, query, status, code, column):
    client = serve()
    for response in (
        client.post("/search", json={"query": query}),
        client.get("/search", params={"q": query}),
    ):
        assert refused(response, status, code).column == column


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"\xff\xfe\x00junk\x80", 400, "not_json"),
        (b"", 422, "bad_field"),
        (b"[1, 2", 400, "not_json"),
        (b"[" * 60_000, 400, "bad_request"),
        (b'{"query": 5}', 422, "bad_field"),
        (b'{"query": "a", "k": 0}', 422, "bad_field"),
        (b'{"query": "a", "k": "3"}', 422, "bad_field"),
        (b'{"query": "a", "k": true}', 422, "bad_field"),
        (b'{"query": "a", "k": 1.5}', 422, "bad_field"),
        (b'{"query": "a", "k": 100000}', 422, "k_too_large"),
        (b'{"query": "a", "k": %s}' % (b"9" * 5000), 400, "bad_request"),
        (b'{"query": "a", "mode": "sql"}', 422, "bad_field"),
        (b'{"query": "a", "limit": 3}', 422, "bad_field"),
        (b'{"query": "a", "kinds": "no"}', 422, "bad_field"),
        (b'{"query": "a", "allow": "cream"}', 422, "bad_field"),
        (b'{"allow": ["cream"]}', 400, "query_empty"),
        (b'{"query": "a", "allow": ["\\ud800"]}', 400, "query_not_text"),
        (b'{"query": "a", "allow": ["%s"]}' % (b"m" * 1000), 400, "query_too_long"),
        (b'{"query": "a", "filters": {"x": {"y": {"z": 1}}}}', 422, "bad_field"),
        (b'{"query": "\\ud800"}', 400, "query_not_text"),
        (b'{"query": "a", "filters": {"x": "\\ud800"}}', 422, "bad_field"),
        (b'"query"', 422, "bad_field"),
    ],
)
def test_invalid_bodies_are_refused(serve, body, status, code):
    headers = {"content-type": "application/json"}
    error = refused(serve().post("/search", content=body, headers=headers), status, code)
    assert "99999" not in error.message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"query": 5}, "query must be a text, got 5"),
        ({"query": {"a": "b" * 500}}, "query must be a text, got {'a': '" + "b" * 53),
        ({"query": "a", "k": "3"}, "k must be a valid integer, got '3'"),
        ({"query": "a", "k": 0}, "k must be greater than or equal to 1, got 0"),
        ({"query": "a", "mode": "sql"}, "mode must be 'auto', 'plain' or 'explicit', got 'sql'"),
        ({"query": "a", "limit": 3}, "there is no field limit"),
    ],
)
def test_the_message_says_what_a_field_must_be(serve, body, message):
    assert refused(serve().post("/search", json=body), 422, "bad_field").message == message


def test_a_wrong_parameter_is_named(serve):
    error = refused(serve().get("/search?q=a&k=x"), 422, "bad_field")
    assert error.message == "k must be a valid integer, got 'x'"


def test_a_body_without_json_content_type_is_refused(serve):
    error = refused(serve().post("/search", content=b'{"query": "a"}'), 422, "bad_field")
    assert error.message == "the body must be a JSON object, sent as application/json"


def test_k_is_limited(serve, searcher):
    client = serve(max_k=50)
    error = refused(client.get("/search", params={"q": "moth", "k": 100_000}), 422, "k_too_large")
    assert error.message == "k: at most 50 results, got 100000"
    assert searcher.calls == []


def test_other_scripts_are_searched(serve):
    client = serve()
    for query in ("Бабочка Борнео", "蛾", "عثة", "🦋 蛾 but not Борнео"):
        reply = client.post("/search", json={"query": query}).json()
        assert reply["query"] == query
    spans = [operand["spans"] for operand in reply["operands"]]
    assert spans == [[[0, 3]], [[12, 18]]]


def test_an_unexpected_error_is_logged_under_the_id_returned(serve, caplog):
    with caplog.at_level(logging.INFO, logger="boolattn.service"):
        response = serve().post("/search", json={"query": "crash"})
    error = refused(response, 500, "internal")
    assert error.id in error.message
    assert "secret" not in response.text
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert error.id in record.getMessage()
    assert record.exc_info[0] is ZeroDivisionError


def test_a_store_that_does_not_answer_is_told_and_not_logged_as_a_fault(
    serve, searcher, monkeypatch, caplog
):
    def gone(*_, **__):
        raise ServerError("Postgres (items): connection refused at secret.host")

    client = serve()
    monkeypatch.setattr(searcher, "search_many", gone)
    monkeypatch.setattr(type(searcher), "__len__", gone)
    for path in ("/search?q=moth", "/health", "/about", "/facets"):
        response = client.get(path)
        refused(response, 503, "store_unavailable")
        assert int(response.headers["retry-after"]) > 0
        assert "secret" not in response.text
    assert "secret.host" in caplog.text
    assert not any(r.exc_info for r in caplog.records)
    # Metrics are there also where the store is not.
    assert "boolattn_documents NaN\n" in client.get("/metrics").text


def test_a_users_error_is_one_line_in_the_log(serve, caplog):
    with caplog.at_level(logging.INFO, logger="boolattn.service"):
        serve().get("/search", params={"q": "moths AND (secret words"})
    [record] = [r for r in caplog.records if r.name == "boolattn.service.middleware"]
    assert re.fullmatch(r"GET /search 400 \d+\.\d ms query_syntax", record.getMessage())
    assert not any(r.exc_info for r in caplog.records)
    # Queries are not logged.
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/page/../settings.py", 404, "not_found"),
        ("GET", "/page/%2e%2e%2fsettings.py", 404, "not_found"),
        ("DELETE", "/search", 405, "method_not_allowed"),
        ("GET", "/search", 400, "query_empty"),
        ("GET", "/search?q=a&strictnot=true", 422, "bad_field"),
        ("GET", "/search?q=a&hybrid=perhaps", 422, "bad_field"),
        ("GET", "/search?q=a&filter=x", 400, "bad_query"),
    ],
)
def test_other_requests_are_refused_in_the_same_form(serve, method, path, status, code):
    refused(serve().request(method, path), status, code)


def test_the_openapi_description_is_complete(serve):
    described = serve().get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/search", "/documents", "/documents/{document_id}", "/health", "/about",
        "/metrics", "/examples", "/facets",
    }  # fmt: skip
    post = described["paths"]["/search"]["post"]
    assert set(post["responses"]) == {"200", "4XX", "5XX"}
    for status in ("4XX", "5XX"):
        content = post["responses"][status]["content"]["application/json"]
        assert content["schema"]["$ref"].endswith("/ErrorReply")
    assert described["components"]["schemas"]["SearchRequest"]["examples"]
    assert "HTTPValidationError" not in json.dumps(described)
    assert serve().get("/docs").status_code == 404


def test_health_and_about(serve):
    client = serve(label="a model")
    assert client.head("/health").status_code == client.head("/").status_code == 200
    health = client.get("/health").json()
    assert (health["status"], health["documents"]) == ("ok", 6)
    about = client.get("/about").json()
    assert about["model"] == "a model"


def test_metrics_count_by_route_pattern(serve):
    client = serve()
    client.get("/documents/b")
    client.get("/documents/nobody")
    client.get("/search", params={"q": QUERY})
    client.get("/some/where")
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = response.text
    route = 'route="/documents/{document_id:path}"'
    assert f'boolattn_requests_total{{{route},status="200"}} 1.0\n' in text
    assert f'boolattn_requests_total{{{route},status="404"}} 1.0\n' in text
    assert 'boolattn_queries_total{way="composed"} 1.0\n' in text
    assert 'boolattn_refused_total{code="no_document"} 1.0\n' in text
    assert 'boolattn_request_seconds_bucket{le="+Inf",route="/search"} 1.0\n' in text
    assert "boolattn_documents 6.0\n" in text
    assert "where" not in text
    for line in text.splitlines():
        assert re.fullmatch(
            r"# (HELP|TYPE) .+|\w+(\{[^{}]*(\{[^}]*\})?[^{}]*\})? -?[\d.e+-]+", line
        )


def test_the_page_has_a_strict_content_security_policy(serve):
    client = serve()
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    for path in re.findall(r'(?:src|href)="(/page/[^"]+)"', page.text):
        part = client.get(path)
        assert part.status_code == 200
        assert part.headers["x-content-type-options"] == "nosniff"
        tag = {"if-none-match": part.headers["etag"]}
        assert client.get(path, headers=tag).status_code == 304
    for name in ("page.js", "dom.js", "parse.js", "results.js", "filters.js"):
        code = client.get(f"/page/{name}").text
        # Text of documents never becomes HTML.
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", code)
        assert "http" not in code
