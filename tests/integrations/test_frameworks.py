"""Retrievers of frameworks, with the real packages: their documents, sync and async."""

import asyncio

import pytest

from boolattn.search import BooleanRetriever, Searcher
from boolattn.stores.arrays import ArrayCollection
from tests.search import word_model

QUERY = "moths AND Borneo NOT Sumatra"
DOCUMENTS = word_model.corpus()


@pytest.fixture(scope="module", params=["collection", "searcher"])
def source(request):
    model = word_model.retriever()
    if request.param == "searcher":
        return Searcher.from_texts(DOCUMENTS, model, parser=None)
    rows = [{"id": d.id, "title": d.title, "text": d.text, **d.metadata} for d in DOCUMENTS]
    vectors = model.encode_documents([d.text for d in DOCUMENTS])
    return BooleanRetriever(ArrayCollection(vectors, rows), model, parser=None)


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
    chain = own | (lambda documents: documents[0].page_content)
    assert chain.invoke(QUERY) == found[0].page_content


def test_llama_index(source):
    from boolattn.integrations.llama_index import LlamaIndexRetriever

    own = LlamaIndexRetriever(source, 3, filters={"year": {"lt": 2000}})
    found = own.retrieve(QUERY)
    check(found, source, [n.text for n in found], [n.metadata for n in found])
    assert found[0].score == found[0].metadata["boolattn_score"]
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
    assert asyncio.run(own.run_async(QUERY, 3, {"year": {"lt": 2000}}))["documents"] == found
