"""Retrievers of frameworks, with the real packages: their documents, sync and async."""

import asyncio
import subprocess
import sys
from importlib import import_module

import pytest

from boolattn.errors import ConfigError
from boolattn.search import Searcher
from tests.search import word_model
from tests.stores.arrays import ArrayCollection

QUERY = "moths AND Borneo NOT Sumatra"
DOCUMENTS = word_model.corpus()


@pytest.fixture(scope="module", params=["collection", "searcher"])
def source(request):
    model = word_model.retriever()
    if request.param == "searcher":
        return Searcher.from_texts(DOCUMENTS, model, parser=None)
    rows = [{"id": d.id, "title": d.title, "text": d.text, **d.metadata} for d in DOCUMENTS]
    vectors = model.encode_documents([d.text for d in DOCUMENTS])
    return Searcher(ArrayCollection(vectors, rows), model, parser=None)


def check(found, source, texts, metadata):
    right = source.search(QUERY, 3, filters={"year": {"lt": 2000}})
    assert len(found) == 3
    assert texts == [hit.text for hit in right.hits]
    assert metadata[0]["place"] == "Borneo"
    assert metadata[0]["title"] == "moths Borneo"
    assert metadata[0]["boolattn_verdict"] == right.hits[0].verdict
    assert [own["boolattn_score"] for own in metadata] == [hit.score for hit in right.hits]


def test_langchain(source):
    from boolattn.integrations.langchain import LangChainRetriever

    own = LangChainRetriever(source=source, k=3, options={"filters": {"year": {"lt": 2000}}})
    found = own.invoke(QUERY)
    check(found, source, [d.page_content for d in found], [d.metadata for d in found])
    assert asyncio.run(own.ainvoke(QUERY)) == found
    # Callbacks, tags and metadata of a call reach the handlers.
    from langchain_core.callbacks import BaseCallbackHandler

    seen = []

    class Handler(BaseCallbackHandler):
        def on_retriever_start(self, serialized, query, *, tags, metadata, **_):
            seen.append((query, tags, metadata["user"]))

        def on_retriever_end(self, documents, **_):
            seen.append(len(documents))

    config = {"callbacks": [Handler()], "tags": ["t"], "metadata": {"user": "u"}}
    own.invoke(QUERY, config=config)
    assert seen == [(QUERY, ["t"], "u"), 3]
    chain = own | (lambda documents: documents[0].page_content)
    assert chain.invoke(QUERY) == found[0].page_content


def test_llama_index(source):
    from boolattn.integrations.llama_index import LlamaIndexRetriever

    own = LlamaIndexRetriever(source, 3, filters={"year": {"lt": 2000}})
    found = own.retrieve(QUERY)
    check(found, source, [n.text for n in found], [n.metadata for n in found])
    assert found[0].score == found[0].metadata["boolattn_score"]
    from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler

    debug = LlamaDebugHandler(print_trace_on_end=False)
    LlamaIndexRetriever(source, 3, CallbackManager([debug])).retrieve(QUERY)
    assert len(debug.get_event_pairs(CBEventType.RETRIEVE)) == 1
    again = asyncio.run(own.aretrieve(QUERY))
    assert [node.node_id for node in again] == [node.node_id for node in found]


def test_haystack(source, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    from haystack import Pipeline

    from boolattn.integrations.haystack import HaystackRetriever

    own = HaystackRetriever(source, top_k=3)
    pipeline = Pipeline()
    pipeline.add_component("search", own)
    asked = {"search": {"query": QUERY, "filters": {"year": {"lt": 2000}}}}
    found = pipeline.run(asked)["search"]["documents"]
    check(found, source, [d.content for d in found], [d.meta for d in found])
    # A pipeline runs it in another thread.
    assert asyncio.run(pipeline.run_async(asked))["search"]["documents"] == found


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("langchain", "LangChainRetriever"),
        ("llama_index", "LlamaIndexRetriever"),
        ("haystack", "HaystackRetriever"),
    ],
)
def test_another_source_is_refused_at_once(module, name, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    retriever = getattr(import_module(f"boolattn.integrations.{module}"), name)
    for odd in (3, None, "index"):
        with pytest.raises(ConfigError) as caught:
            retriever(source=odd)
        assert str(caught.value) == f"source must be a Searcher, got {odd!r}"


def test_a_haystack_pipeline_is_written_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    from haystack import Pipeline

    from boolattn.integrations.haystack import HaystackRetriever

    searcher = Searcher.build(tmp_path / "index", ["moths of Borneo", "moths of Java"])
    pipeline = Pipeline()
    pipeline.add_component("search", HaystackRetriever(searcher, top_k=1, strict_not=True))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["boolattn.integrations.haystack"])
    asked = {"search": {"query": "moths NOT Java"}}
    assert again.run(asked) == pipeline.run(asked)
    assert again.get_component("search").options == {"strict_not": True}
    unnamed = Searcher.from_texts(DOCUMENTS, word_model.retriever())
    with pytest.raises(ConfigError, match="names its model"):
        HaystackRetriever(unnamed).to_dict()


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("haystack", "haystack", "haystack"),
    ],
)
def test_a_missing_package_is_one_line(module, package, extra):
    code = f"import sys; sys.modules[{package!r}] = None\nimport boolattn.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'boolattn[{extra}]'" in done.stderr.splitlines()[-1]
