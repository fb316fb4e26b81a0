"""Random queries, filters, rows, bodies and files: an answer or one line, never anything else.

``BOOLATTN_FUZZ=20 pytest tests/test_fuzz.py`` tries twenty times as many examples.
"""

from __future__ import annotations

import json
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from boolattn.errors import BoolattnError
from boolattn.parsing.parser import Parser
from boolattn.search import Searcher
from boolattn.search.filters import parse_filters
from boolattn.search.index.document_files import read_documents
from boolattn.service.app import create_app
from boolattn.service.settings import ServiceSettings
from tests.search import word_model

TIMES = float(os.environ.get("BOOLATTN_FUZZ", "1"))


def fuzzed(n):
    return settings(
        max_examples=round(n * TIMES),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


WORDS = ("moths", "Borneo", "AND", "OR", "NOT", "(", ")", '"', "-", "+", "&", "|", "!", "~2", "^3")
MORE = ("title:", "like:", "year>1990", "\\", "*", "..", "\x00", "é", "飞蛾", "\ud800", "2 of", ",")
TEXT = st.one_of(
    st.lists(st.sampled_from(WORDS + MORE), max_size=14).map(" ".join),
    st.lists(st.sampled_from(WORDS + MORE), max_size=14).map("".join),
    st.text(max_size=40),
)
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400), float("nan"), float("inf"), "2024-03", "9999-99-99"]),
    st.floats(),
    st.text(max_size=8),
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(["place", "year", "is_old", "group", "text", "id", "title", "x"])
KINDS = st.sampled_from(["in", "not", "contains", "exists", "gt", "gte", "lt", "lte", "y"])
FILTERS = st.dictionaries(NAMES, VALUE | st.dictionaries(KINDS, VALUE, max_size=2), max_size=2)


def tried(call):
    """Call; an error is ours and of one line."""
    try:
        return call()
    except BoolattnError as error:
        text = str(error)
    assert "\n" not in text
    return None


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "index"
    return Searcher.build(folder, word_model.corpus(), word_model.retriever(), segment_size=10)


@pytest.fixture(scope="module")
def client(searcher):
    with TestClient(create_app(searcher, None, ServiceSettings())) as found:
        yield found


@fuzzed(70)
@given(TEXT, st.sampled_from(["auto", "plain", "explicit"]))
def test_queries(searcher, text, mode):
    found = tried(lambda: searcher.search(text, 3, mode=mode))
    assert found is None or len(found.hits) <= 3


@fuzzed(150)
@given(FILTERS)
def test_filters(searcher, filters):
    found = tried(lambda: searcher.search("moths", 3, filters=filters))
    assert found is None or len(found.hits) <= 3


@fuzzed(100)
@given(st.lists(st.text(max_size=12) | st.sampled_from(["year>=", "place=", "year<2000"])))
def test_filters_of_a_command_line(searcher, texts):
    tried(lambda: searcher.search("moths", 3, filters=parse_filters(texts)))


@fuzzed(150)
@given(
    st.lists(st.dictionaries(NAMES, VALUE, max_size=4) | VALUE, max_size=3),
    st.sampled_from(["jsonl", "json", "csv"]),
    st.booleans(),
)
def test_document_rows(tmp_path_factory, rows, kind, skips):
    path = tmp_path_factory.mktemp("rows") / f"a.{kind}"
    joined = "\n".join(json.dumps(row) for row in rows)
    path.write_bytes((json.dumps(rows) if kind == "json" else joined).encode())
    on_bad = (lambda _line: None) if skips else None
    for document in tried(lambda: list(read_documents(path, on_bad=on_bad))) or ():
        assert document.id
    shutil.rmtree(path.parent)


@fuzzed(100)
@given(
    st.binary(max_size=60),
    st.sampled_from(["jsonl", "json", "csv", "jsonl.gz", "jsonl.zst", "parquet", "md"]),
)
def test_document_files_of_any_bytes(tmp_path_factory, content, kind):
    path = tmp_path_factory.mktemp("rows") / f"a.{kind}"
    path.write_bytes(content)
    tried(lambda: list(read_documents(path)))
    shutil.rmtree(path.parent)


@fuzzed(120)
@given(
    st.one_of(
        st.binary(max_size=50),
        st.fixed_dictionaries(
            {"query": TEXT | VALUE}, optional={"filters": FILTERS, "k": SCALAR, "mode": SCALAR}
        ).map(lambda body: json.dumps(body).encode()),
        st.sampled_from([b"[" * 60_000, b'{"query": "a", "filters": ' + b'{"a":' * 9000]),
    )
)
def test_bodies(client, body):
    reply = client.post("/search", content=body, headers={"content-type": "application/json"})
    assert reply.status_code in (200, 400, 422), reply.text
    assert reply.status_code == 200 or "\n" not in reply.json()["error"]["message"]


@fuzzed(60)
@given(st.data())
def test_index_files(searcher, tmp_path_factory, data):
    """A byte changed, a file cut or grown: the same answer, or one line."""
    folder = tmp_path_factory.mktemp("damaged") / "index"
    shutil.copytree(searcher.folder, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    path = data.draw(st.sampled_from(files))
    _damage(path, data)
    found = tried(lambda: Searcher.open(folder, searcher.retriever).search("moths"))
    assert found is None or found.hits == searcher.search("moths").hits
    shutil.rmtree(folder.parent)


def _damage(path, data):
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, max(0, len(content) - 1)))
    kind = data.draw(st.sampled_from(["flip", "cut", "grow"]))
    if kind == "flip" and content:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[:place] if kind == "cut" else content + b"x" * (kind == "grow"))


@fuzzed(25)
@given(st.data())
def test_parser_files(tmp_path_factory, data):
    from boolattn.parsing import parser

    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(parser._SHIPPED, folder / "parser")
    (folder / "bge-small-general").symlink_to(parser._SHIPPED.parent / "bge-small-general")
    path = data.draw(st.sampled_from(sorted((folder / "parser").iterdir())))
    _damage(path, data)
    before = parser._SHIPPED / path.name
    found = tried(lambda: Parser(folder / "parser"))
    assert found is None or path.read_bytes() == before.read_bytes()
    shutil.rmtree(folder)
