"""Random queries, filters, rows, bodies and files: an answer or one line, never anything else.

``BOOLATTN_FUZZ=20 pytest tests/test_fuzz.py`` tries twenty times as many examples, with
``BOOLATTN_FUZZ_STORE=postgres`` (or qdrant, milvus) in that store instead of a folder.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import pkgutil
import shutil
from importlib import import_module
from inspect import signature
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import boolattn
from boolattn import checksums
from boolattn.encoders.models import load_model
from boolattn.errors import BoolattnError
from boolattn.query.parser import Parser
from boolattn.search import Document, Searcher
from boolattn.service.app import create_app
from boolattn.service.settings import ServiceSettings
from boolattn.stores.document_files import read_documents
from boolattn.stores.filters import parse_filters
from boolattn.stores.local import manifest
from tests.search import word_model
from tests.search.conftest import postgres  # noqa: F401 - a fixture

MODELS = Path(boolattn.__file__).with_name("models")
TIMES = float(os.environ.get("BOOLATTN_FUZZ", "1"))
STORE = os.environ.get("BOOLATTN_FUZZ_STORE", "folder")
only_folders = pytest.mark.skipif(STORE != "folder", reason="the files are a database's")


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
OPERAND = st.builds(
    lambda operand, weight: operand + weight,
    st.sampled_from(["moths", "old moths", '"red AND birds"', "like:both", "like:x", '""', "飞蛾"]),
    st.sampled_from(["", "", "^2", "^0.5", "^x"]),
)
CONDITIONS = st.sampled_from(["year>=1990", "place:Java", "year:1980..1990", "is_old=true", "x>1"])
#: Most of them right, so that what follows the parser is reached.
SYNTAX = st.recursive(
    OPERAND | CONDITIONS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(" AND ".join),
        st.lists(inner, min_size=2, max_size=3).map(" OR ".join),
        st.builds("{} NOT {}".format, inner, inner),
        st.builds("({})".format, inner),
        st.builds("({} AND ({} OR {}))".format, inner, inner, inner),
    ),
    max_leaves=5,
)
TEXT = st.one_of(
    SYNTAX,
    SYNTAX.flatmap(lambda text: st.integers(0, len(text)).map(lambda n: text[:n] + text[n + 1 :])),
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
#: Most of them right by themselves, so that what follows is reached.
FIELDS = st.sampled_from(["place", "year", "is_old", "group", "on", "tags"])
LIKELY = st.one_of(
    st.sampled_from(["Borneo", "b", "", "1990", "2024-03", "2024-03-01", "true", True, False]),
    st.integers(1970, 2010),
    st.floats(1970, 2010),
)
LIMIT = st.integers(1970, 2010) | st.sampled_from(["1990", "2024-03", "2024-03-01", 1990.5])
CONDITION = st.one_of(
    LIKELY,
    st.lists(LIKELY, max_size=3),
    st.builds(dict, exists=st.booleans()),
    st.builds(dict, contains=st.sampled_from(["b", "", "e"])),
    st.dictionaries(st.sampled_from(["in", "not"]), st.lists(LIKELY, max_size=3), min_size=1),
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), LIMIT, min_size=1, max_size=2),
    st.dictionaries(KINDS, LIKELY, max_size=2),
)
FILTERS = st.one_of(
    st.dictionaries(FIELDS, CONDITION, min_size=1, max_size=2),
    st.dictionaries(FIELDS, CONDITION, min_size=1, max_size=1),
    st.dictionaries(NAMES, VALUE | st.dictionaries(KINDS, VALUE, max_size=2), max_size=2),
)
WRITTEN = st.builds(
    lambda name, sign, value: f"{name}{sign}{value}",
    FIELDS,
    st.sampled_from(["=", "!=", ">", "<", ">=", "<=", "~", ""]),
    LIKELY | LIMIT | st.just("*") | st.sampled_from(["nan", "1e999", "9" * 5000]),
)
ROW = st.fixed_dictionaries(
    {"text": st.sampled_from(["moths", "birds of Java"])},
    optional={
        "id": st.integers(0, 9) | st.text("ab", min_size=1),
        **dict.fromkeys(
            ("title", "year", "x"), VALUE | st.sampled_from(["[]", "[1, 2]", math.inf])
        ),
    },
)
RIGHT = {
    "k": st.integers(1, 5),
    "offset": st.integers(0, 30),
    "mode": st.sampled_from(["auto", "plain", "explicit"]),
    **dict.fromkeys(("hybrid", "compose", "strict_not"), st.booleans()),
    **dict.fromkeys(("positive", "negative"), st.lists(OPERAND, max_size=2)),
}
ANY = dict.fromkeys((*RIGHT, "filters", "x"), VALUE)
FILTERED = {**RIGHT, "filters": FILTERS}


JSON = {"content-type": "application/json"}


def _body(values):
    return json.dumps(values).encode()


def tried(call):
    """Call; an error is ours and of one line."""
    try:
        return call()
    except BoolattnError as error:
        text = str(error)
    assert "\n" not in text
    return None


def _address(request, tmp_path_factory, name):
    """Return where an index of a name goes."""
    folder = tmp_path_factory.mktemp(name)
    if STORE == "postgres":
        uri = request.getfixturevalue("postgres").get_uri()
        return f"{uri}{'&' if '?' in uri else '?'}table={name}"
    return {"qdrant": f"qdrant:{folder}/data/a", "milvus": f"milvus:{folder}/data.db/a"}.get(
        STORE, folder / "index"
    )


def _built(address, encoder):
    more = {"on": "2024-03-02", "tags": ["a", "Borneo", 7], "place": "Peru"}
    documents = [*word_model.corpus(), Document(id="on", text="old moths", metadata=more)]
    return Searcher.build(address, documents, encoder, parser=None, segment_size=10)


@pytest.fixture(scope="module")
def searcher(request, tmp_path_factory):
    return _built(_address(request, tmp_path_factory, "fuzz"), word_model.retriever())


@pytest.fixture(scope="module")
def client(searcher):
    with TestClient(create_app(searcher, ServiceSettings())) as found:
        yield found


@pytest.fixture(scope="module")
def writer(request, searcher, tmp_path_factory):
    """A service that changes an index of its own."""
    key = "k" * 20
    own = _built(_address(request, tmp_path_factory, "written"), searcher.encoder)
    app = create_app(own, ServiceSettings(api_key=key))
    with TestClient(app, headers={**JSON, "x-api-key": key}) as found:
        yield found


@fuzzed(150)
@given(TEXT, st.sampled_from(["auto", "plain", "explicit"]))
def test_queries(searcher, text, mode):
    found = tried(lambda: searcher.search(text, 3, mode=mode))
    assert found is None or len(found.hits) <= 3


@fuzzed(150)
@given(FILTERS)
def test_filters(searcher, filters):
    found = tried(lambda: searcher.search("moths", 3, filters=filters))
    assert found is None or len(found.hits) <= 3


@fuzzed(120)
@given(st.lists(WRITTEN, max_size=2) | st.lists(WRITTEN | st.text(max_size=12), max_size=3))
def test_filters_of_a_command_line(searcher, texts):
    tried(lambda: searcher.search("moths", 3, filters=parse_filters(texts)))


def _write_csv(path, rows):
    names = sorted({name for row in rows for name in row})
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


@fuzzed(180)
@given(
    st.lists(ROW | st.dictionaries(NAMES, VALUE, max_size=4) | VALUE, max_size=3),
    st.sampled_from(["jsonl", "json", "csv"]),
    st.booleans(),
)
def test_document_rows(tmp_path_factory, rows, kind, skips):
    path = tmp_path_factory.mktemp("rows") / f"a.{kind}"
    if kind == "csv":
        _write_csv(path, [row for row in rows if isinstance(row, dict)])
    else:
        joined = "\n".join(json.dumps(row) for row in rows)
        path.write_text(json.dumps(rows) if kind == "json" else joined)
    options = {"on_error": lambda _: None} if skips else {}
    for document in tried(lambda: list(read_documents(path, **options))) or ():
        assert document.id
    shutil.rmtree(path.parent)


def _files():
    """A whole file of every kind."""
    rows = [{"id": str(n), "text": f"moths {n}", "year": 1990 + n} for n in range(9)]
    lines = "\n".join(map(json.dumps, rows)).encode()
    table = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), table)
    found = {"jsonl": lines, "json": json.dumps(rows).encode(), "md": b"# Moths\n\nof Borneo"}
    found["csv"] = b'id,text,year\n1,moths,1990\n2,"birds, owls",1991\n'
    found |= {"jsonl.gz": gzip.compress(lines), "parquet": table.getvalue()}
    return found | {"tsv": found["csv"].replace(b",", b"\t")}


@fuzzed(160)
@given(st.data())
def test_document_files_of_any_bytes(tmp_path_factory, data):
    kind, content = data.draw(st.sampled_from(sorted(_files().items())))
    path = tmp_path_factory.mktemp("rows") / f"a.{kind}"
    path.write_bytes(content if data.draw(st.booleans()) else data.draw(st.binary(max_size=60)))
    _damage(path, data)
    tried(lambda: list(read_documents(path)))
    shutil.rmtree(path.parent)


def _check_reply(reply, *others):
    assert reply.status_code in (200, 400, 422, *others), reply.text
    assert reply.status_code == 200 or "\n" not in reply.json()["error"]["message"]


@fuzzed(150)
@given(
    st.one_of(
        st.binary(max_size=50),
        st.fixed_dictionaries({"query": SYNTAX}, optional=RIGHT).map(_body),
        st.fixed_dictionaries({"query": TEXT}, optional=FILTERED).map(_body),
        st.fixed_dictionaries({"query": TEXT | VALUE}, optional=ANY).map(_body),
        st.sampled_from([b"[" * 60_000, b'{"query": "a", "filters": ' + b'{"a":' * 9000]),
    )
)
def test_bodies(client, body):
    _check_reply(client.post("/search", content=body, headers=JSON))


@fuzzed(120)
@given(
    st.sampled_from(["/search", "/search", "/search", "/documents/both", "/facets", "/examples"]),
    st.one_of(
        st.fixed_dictionaries({"q": SYNTAX}, optional=RIGHT),
        st.fixed_dictionaries({"q": OPERAND, "filter": st.lists(WRITTEN, max_size=3)}),
        st.fixed_dictionaries({"q": TEXT}, optional=ANY),
    ),
)
def test_addresses(client, path, asked):
    asked = {
        name: [str(one).encode(errors="replace").decode() for one in own]
        for name, own in ((n, o if isinstance(o, list) else [o]) for n, o in asked.items())
    }
    _check_reply(client.get(path, params=asked))


ID = st.text("ab", min_size=1)
METADATA = st.dictionaries(FIELDS, LIKELY | st.lists(LIKELY, max_size=2), max_size=3)


@fuzzed(40)
@given(
    st.lists(
        st.one_of(
            st.fixed_dictionaries({"id": ID, "text": OPERAND, "metadata": METADATA}),
            st.fixed_dictionaries({"id": TEXT, "text": TEXT, "title": TEXT}),
            st.fixed_dictionaries({"id": ID | VALUE, "text": TEXT | VALUE, "metadata": VALUE}),
        ),
        min_size=1,
        max_size=2,
    )
)
def test_documents_that_are_sent(writer, documents):
    body = _body({"documents": documents, "update": True})
    reply = writer.post("/documents", content=body)
    _check_reply(reply)
    if reply.status_code == 200:
        assert writer.get("/search?q=moths").status_code == 200


@only_folders
@fuzzed(60)
@given(st.data())
def test_index_files(searcher, tmp_path_factory, data):
    """A byte changed, a file cut or grown: the same answer, or one line."""
    folder = tmp_path_factory.mktemp("damaged") / "index"
    shutil.copytree(searcher.store.folder, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    path = data.draw(st.sampled_from(files) | st.just(folder / manifest.MANIFEST))
    _damage(path, data)
    found = tried(lambda: Searcher.open(folder, searcher.encoder, parser=None).search("moths"))
    assert found is None or found.hits == searcher.search("moths").hits
    shutil.rmtree(folder.parent)


@only_folders
@fuzzed(60)
@given(st.data())
def test_a_manifest_that_was_written_so(searcher, tmp_path_factory, data):
    """Its hash is right, so whatever it says is used."""
    folder = tmp_path_factory.mktemp("damaged") / "index"
    shutil.copytree(searcher.store.folder, folder)
    path = folder / manifest.MANIFEST
    values = checksums.read_manifest(path)
    _edit(values, data)
    checksums.write_manifest(path, values)
    conditions = {"year": 1990}
    tried(
        lambda: Searcher.open(folder, searcher.encoder, parser=None).search(
            "moths NOT birds", filters=conditions
        )
    )
    shutil.rmtree(folder.parent)


def _edit(values, data):
    """Change or leave out a value, perhaps of an object inside."""
    name = data.draw(st.sampled_from(sorted(values)))
    inner = values[name]
    if isinstance(inner, dict) and inner and data.draw(st.booleans()):
        _edit(inner, data)
    elif data.draw(st.booleans()):
        values[name] = data.draw(VALUE)
    else:
        del values[name]


def _damage(path, data):
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, max(0, len(content) - 1)))
    kind = data.draw(st.sampled_from(["flip", "cut", "grow"]))
    if kind == "flip" and content:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[:place] if kind == "cut" else content + b"x" * (kind == "grow"))


def _copied(tmp_path_factory, name):
    """The shipped models, as links but for one folder's small files."""
    folder = tmp_path_factory.mktemp("models")
    for source in MODELS.iterdir():
        if source.name != name:
            (folder / source.name).symlink_to(source)
    (folder / name).mkdir()
    for source in (MODELS / name).iterdir():
        if source.suffix != ".xz":  # what the repository packs is not read
            (folder / name / source.name).symlink_to(source)
    return folder / name


def _opened(folder):
    if folder.name == "parser":
        return Parser(folder).parse(["moths but not birds"])
    return load_model(str(folder)).encode_queries(["moths"])


@pytest.mark.parametrize("name", ["parser", "bge-small-general"])
@fuzzed(12)
@given(st.data())
def test_model_files(tmp_path_factory, name, data):
    folder = _copied(tmp_path_factory, name)
    path = data.draw(st.sampled_from(sorted(p for p in folder.iterdir() if p.is_file())))
    source = path.resolve()
    path.unlink()
    shutil.copyfile(source, path)
    _damage(path, data)
    found = tried(lambda: _opened(folder))
    assert found is None or path.read_bytes() == source.read_bytes()
    shutil.rmtree(folder.parent)


@pytest.mark.parametrize(
    ("name", "file"), [("parser", "parser.json"), ("bge-small-general", "model.json")]
)
@fuzzed(25)
@given(st.data())
def test_model_files_that_were_written_so(tmp_path_factory, name, file, data):
    """Their checksums are right, so whatever they say is used."""
    folder = _copied(tmp_path_factory, name)
    values = checksums.read_manifest(folder / file)
    _edit(values, data)
    (folder / file).unlink()
    checksums.write_manifest(folder / file, values)
    tried(lambda: _opened(folder))
    shutil.rmtree(folder.parent)


def _refusal(error, part):
    """An error of ours that is a fault where its message has some part."""

    class Fault(error):
        def __new__(cls, message, *_):
            return ValueError("planted") if part in message else super().__new__(cls)

    return Fault


#: A fault for some input, in what each test reaches: the function, and of which arguments.
FAULTS = [
    (test_queries, "query.syntax.read_weight", lambda weight, **_: bool(weight)),
    (test_queries, "query.syntax._Parser.group", lambda own, opening, depth: depth > 0),
    (test_queries, "search.pipeline.condition_of", lambda where: "1990" in where.text),
    (test_queries, "stores.base.Reader.known_vectors", lambda own, ids: ids),
    (test_filters, "stores.filters.date_range", lambda c: True),
    (test_filters, "stores.local.snapshot.Snapshot._passes", lambda own, c: c.kind == "lt"),
    (test_filters, "stores.local.snapshot.Snapshot._passes", lambda own, c: c.values == (False,)),
    (test_filters, "stores.local.snapshot.Snapshot._passes", lambda own, c: c.kind == "contains"),
    (
        test_filters,
        "stores.local.snapshot.Snapshot._passes",
        lambda own, c: c.kind == "not" and c.values[1:],
    ),
    (test_filters, "stores.filters._values", lambda name, kind, entry: entry == []),
    (test_filters_of_a_command_line, "stores.filters._limit", lambda value, text: "-" in value),
    (
        test_filters_of_a_command_line,
        "stores.local.snapshot.Snapshot._passes",
        lambda own, c: c.kind == "exists",
    ),
    (test_document_rows, "stores.document_files._typed", lambda text: text == "[]"),
    (test_document_rows, "stores.values._plain", lambda name, value: value == math.inf),
    (test_bodies, "service.handlers.Handlers._searched", lambda own, asked: asked.offset > 9),
    (test_bodies, "stores.local.snapshot.Snapshot._passes", lambda own, c: c.kind == "gte"),
    (test_bodies, "search.pipeline.parse_entry", lambda text: "^" in text),
    (test_addresses, "service.handlers.parse_filters", lambda texts: len(texts) > 1),
    (test_addresses, "service.handlers.Handlers._searched", lambda own, asked: not asked.compose),
    (
        test_documents_that_are_sent,
        "service.handlers.Handlers._change",
        lambda handlers, c, n, r: n > 1,
    ),
]
REFUSALS = [
    (test_document_files_of_any_bytes, "jsonl", "DataError", "gz"),
    (test_document_files_of_any_bytes, "jsonl", "DataError", "not Parquet"),
    *(
        (test_index_files, "stores.local.manifest", "IndexFolderError", part)
        for part in ("is damaged, or of", "was altered")
    ),
    (test_a_manifest_that_was_written_so, "stores.local.manifest", "IndexFolderError", "damaged"),
    (test_model_files, "checksums", "DataError", "is damaged"),
    (test_model_files_that_were_written_so, "checksums", "DataError", "is damaged"),
]
GIVEN = {"name": "bge-small-general", "file": "model.json"}


def _find(test, request, monkeypatch):
    """Run one of the tests above, which must fail; the smallest example is not looked for."""
    names = signature(test).parameters
    own = {name: GIVEN.get(name) or request.getfixturevalue(name) for name in names}
    name = "_hypothesis_internal_use_settings"
    quick = settings(getattr(test, name), phases=[Phase.generate])
    monkeypatch.setattr(test, name, quick)
    with pytest.raises((ValueError, AssertionError, ExceptionGroup)):
        test(**own)


@pytest.mark.slow
@pytest.mark.parametrize(("test", "name", "when"), FAULTS)
def test_a_planted_fault_is_found(request, monkeypatch, test, name, when):
    place, _, name = f"boolattn.{name}".rpartition(".")
    owner = pkgutil.resolve_name(place)
    real = getattr(owner, name)

    def wrong(*given, **options):
        if when(*given, **options):
            raise ValueError("planted")
        return real(*given, **options)

    monkeypatch.setattr(owner, name, wrong)
    # Filters that earlier tests asked for are answered from memory.
    request.getfixturevalue("searcher").store._snapshot.mask.cache_clear()
    _find(test, request, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("test", "module", "error", "part"), REFUSALS)
def test_every_refusal_is_reached(request, monkeypatch, test, module, error, part):
    owner = import_module(f"boolattn.{module}")
    monkeypatch.setattr(owner, error, _refusal(getattr(owner, error), part))
    _find(test, request, monkeypatch)
