"""Approximate neighbours, their recall, and the candidates of composed queries."""

import numpy as np
import pytest

from boolattn.query.plan import plan_queries
from boolattn.query.syntax import parse
from boolattn.search import Document, Searcher, SearchOptions
from boolattn.search.candidates import Retrieval
from boolattn.stores.filters import Filter
from boolattn.stores.local.snapshot import DEPTHS
from tests.parses import read_trees
from tests.search import word_model

faiss = pytest.importorskip("faiss")

N = 1500


def texts(n=N, seed=0):
    """Documents of a few words, no two alike."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 12, n)
    return [" ".join(generator.choice(word_model.WORDS, length)) for length in lengths]


@pytest.fixture(scope="module", params=["hnsw"])
def built(request, retriever, tmp_path_factory):
    """An approximate index and an exact one of the same documents."""
    documents = [
        Document(id=str(i), text=text, metadata={"half": i % 2, "tenth": i % 10})
        for i, text in enumerate(texts())
    ]
    folder = tmp_path_factory.mktemp("graphs")
    options = {"words": False, "parser": None}
    approximate = Searcher.build(
        folder / "a", documents, retriever, vectors=request.param, segment_size=700, **options
    )
    exact = Searcher.build(folder / "e", documents, retriever, **options)
    return approximate, exact


def test_the_manifest_states_the_recall_that_a_caller_sees(built, retriever):
    approximate, exact = built
    settings = Searcher.open(approximate.store.folder, retriever).store.manifest.graph
    assert exact.store.manifest.graph == {}
    assert set(settings["recall"]) == {str(depth) for depth in DEPTHS}
    # Other queries than those it was measured with, among documents of which many are alike.
    queries = retriever.encode_documents(texts(50, seed=1))
    with approximate.store.reading() as graph, exact.store.reading() as scan:
        own, right = (reader.nearest(queries, 10, Filter()) for reader in (graph, scan))
    pairs = zip(own, right, strict=True)
    share = np.mean([answer.scores >= best.scores[-1] - 1e-5 for answer, best in pairs])
    assert share > settings["recall"]["10"] - 0.1
    assert settings["recall"]["10"] > 0.8


def test_candidates_find_what_an_exhaustive_search_finds(built):
    approximate, _ = built
    queries = ["moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)", "orchids NOT red"]
    results = approximate.search_many(queries, 10)
    exhaustive = approximate.search_many(queries, 10, exhaustive=True)
    shares = [
        len({hit.id for hit in result.hits} & {hit.id for hit in best.hits}) / len(best.hits)
        for result, best in zip(results, exhaustive, strict=True)
    ]
    assert np.mean(shares) > 0.9


def test_a_query_has_no_more_probes_than_it_needs(retriever, shared):
    moths, borneo, birds = retriever.encode_operands(["moths", "Borneo", "birds"])
    both, joint = retriever.encode_operands(["moths and Borneo", "moths and birds"])

    def same(text, *expected):
        [plan] = plan_queries(read_trees([parse(text)], ["as it was typed"]), retriever)
        with shared.store.reading() as reader:
            options = SearchOptions(hybrid=False, strict_not=False)
            probes = Retrieval(plan, reader, options, Filter(), {}, k=5).probes()
        np.testing.assert_allclose([vector for vector, _ in probes], expected, atol=1e-6)
        assert {where for _, where in probes} == {Filter()}

    same("moths OR birds", moths, birds)
    plain = retriever.encode_queries(["as it was typed"])[0]
    same("moths AND Borneo", (both + plain) / 2)
    same("moths AND birds NOT Borneo", joint, joint - borneo / 2)
    same("moths NOT Borneo", moths, moths - borneo / 2)
    same("moths AND (Borneo OR birds)", both, joint)
