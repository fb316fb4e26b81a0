"""Every example of the OpenAPI description is valid, and the requests among them are answered."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import boolattn
from boolattn.search import Document, Searcher
from boolattn.service import schemas
from boolattn.service.app import create_app
from boolattn.service.settings import ServiceSettings
from tests.search import word_model

EXAMPLES = Path(boolattn.__file__).parent / "service" / "examples.json"
KEY = "0123456789abcdef"
#: Examples, and how each is asked for.
ASKED = {
    "search": ("POST", "/search", {"query": schemas.QUERY, "k": 1}),
    "document": ("GET", "/documents/17", None),
    "change": (
        "POST",
        "/documents",
        {"documents": [{"id": "18", "text": "A hawk moth found in Java."}]},
    ),
    "health": ("GET", "/health", None),
    "about": ("GET", "/about", None),
    "examples": ("GET", "/examples", None),
    "facets": ("GET", "/facets", None),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    documents = [
        Document(id="17", title="Hill moth", text="hawk moths Borneo",
                 metadata={"family": "Sphingidae", "year": 1991}),
        Document(id="3", text="moths Sumatra", metadata={"family": "Noctuidae", "year": 1903}),
        *(Document(id=f"x{i}", text=f"{group} {place}") for i, (group, place) in
          enumerate(zip(word_model.GROUPS, word_model.PLACES, strict=False))),
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("openapi") / "index"
    searcher = Searcher.build(folder, documents, word_model.retriever())
    app = create_app(searcher, ServiceSettings(api_key=KEY))
    with TestClient(app, headers={"X-API-Key": KEY}) as client:
        yield client


def test_every_route_has_examples_and_they_are_valid(client):
    description = client.get("/openapi.json").json()
    examples = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    shown = []
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            [content] = route["responses"]["200"]["content"].values()
            assert content["example"], (method, path)
            shown.append(content["example"])
            if body := route.get("requestBody"):
                [name] = [body["content"]["application/json"]["schema"]["$ref"].split("/")[-1]]
                for own in description["components"]["schemas"][name]["examples"]:
                    getattr(schemas, name).model_validate(own)
    assert len(shown) == len(examples) + 2  # two routes share an example, twice


def test_errors_are_described_in_words(client):
    description = client.get("/openapi.json").json()
    for methods in description["paths"].values():
        for route in methods.values():
            described = {kind: route["responses"][kind]["description"] for kind in ("4XX", "5XX")}
            assert "is refused" in described["4XX"]
            assert "Retry-After" in described["5XX"]
    error = description["components"]["schemas"]["ErrorBody"]
    assert all(field["description"] for field in error["properties"].values())


@pytest.mark.parametrize("number", range(5))
def test_examples_of_searches_are_answered(client, number):
    request = schemas.SearchRequest.model_config["json_schema_extra"]["examples"][number]
    reply = client.post("/search", json=request)
    assert reply.status_code == 200, reply.text
    assert reply.json()["hits"]


def test_what_was_left_out_is_told_and_taken_back(client):
    def search(**options):
        reply = client.post("/search", json={"query": "everything NOT insects", **options}).json()
        left_out = {one["id"]: one for one in reply["left_out"]}
        assert left_out.keys().isdisjoint(hit["id"] for hit in reply["hits"])
        return left_out

    left_out = search()
    why = "moth is insects"
    assert left_out["17"] == {"id": "17", "title": "Hill moth", "why": why, "word": "moth"}
    assert left_out["3"]["word"] == "moths"
    allowed = search(allow=["Moth", "hawk moths"])
    assert "17" not in allowed
    assert "3" in allowed
    assert search(kinds=False) == {}


def test_a_number_that_became_a_condition_is_noted(client):
    reply = client.get("/search", params={"q": "moths before 1950"}).json()
    assert (reply["tree"], reply["total"]) == ("moths AND year<1950", 1)
    assert reply["notes"] == ["'before 1950' was read as year<1950; between quotes it is text"]
    quoted = client.get("/search", params={"q": '"moths before 1950"'}).json()
    assert (quoted["notes"], quoted["total"]) == ([], len(quoted["hits"]))


def fields_of(value):
    """The names of an object, or of the first in a list."""
    first = value[0] if isinstance(value, list) else value
    return first and first.keys()


def test_examples_have_the_fields_of_real_replies(client):
    examples = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    for name, (method, path, body) in ASKED.items():
        reply = client.request(method, path, json=body)
        assert reply.status_code == 200, reply.text
        assert set(reply.json()) == set(examples[name]), name
        for part in ("hits", "operands", "nodes"):
            assert fields_of(reply.json().get(part)) == fields_of(examples[name].get(part)), name
    assert client.get("/search", params={"q": "moths", "filter": "year>=1990"}).json()["total"] == 1
    assert client.get("/metrics").text.splitlines()[0] == examples["metrics"].splitlines()[0]
    assert client.delete("/documents/18").status_code == 200
