"""Approximate engines compared with exact search."""

import numpy as np
import pytest

from benchmarks.candidate_recall import candidate_recall
from boolattn.errors import IndexFolderError
from boolattn.logic.syntax import parse
from boolattn.search import Document, Searcher
from boolattn.search.candidates import probes
from boolattn.search.engines.base import Selection, best
from boolattn.search.engines.tuning import TARGETS
from tests.search import word_model

faiss = pytest.importorskip("faiss")

N = 1500


def texts(n=N, seed=0):
    """Documents of a few words, no two alike."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 12, n)
    return [" ".join(generator.choice(word_model.WORDS, length)) for length in lengths]


@pytest.fixture(scope="module", params=["ivf", "hnsw"])
def built(request, retriever, tmp_path_factory):
    """An approximate index and an exact one of the same documents."""
    documents = [
        Document(id=str(i), text=text, metadata={"half": i % 2, "tenth": i % 10})
        for i, text in enumerate(texts())
    ]
    folder = tmp_path_factory.mktemp("engines")
    approximate = Searcher.build(
        folder / "a", documents, retriever, engine=request.param, segment_size=700, lexical=False
    )
    exact = Searcher.build(folder / "e", documents, retriever, lexical=False)
    return approximate, exact


def test_the_manifest_states_the_recall_that_a_caller_sees(built, retriever):
    approximate, exact = built
    settings = Searcher.open(approximate.folder, retriever).manifest.engine_settings
    assert exact.manifest.engine_settings == {}
    assert set(settings["recall"]) == {str(depth) for depth in TARGETS}
    # Other queries than those it was measured with, among documents of which many are alike.
    queries = retriever.encode_documents(texts(50, seed=1))
    own = approximate.engine.search(queries, 10, Selection())
    right = exact.engine.search(queries, 10, Selection())
    share = np.mean(own.scores >= right.scores[:, -1:] - 1e-5)
    assert share > settings["recall"]["10"] - 0.1
    assert settings["recall"]["10"] > 0.8


def test_composed_and_filtered_searches_find_what_exact_ones_find(built):
    approximate, exact = built
    queries = ["moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)", "orchids NOT red"]
    for filters in (None, {"half": 1}, {"tenth": {"gte": 9}}, {"tenth": 11}):
        for query in queries:
            own = approximate.search(query, k=10, filters=filters)
            right = exact.search(query, k=10, filters=filters, exhaustive=True)
            assert len(own.hits) == len(right.hits) == (0 if filters == {"tenth": 11} else 10)
            # Statistics of fewer documents move scores a little.
            assert [h.score for h in own.hits] == pytest.approx(
                [h.score for h in right.hits], abs=0.05
            )
            if filters == {"half": 1}:
                assert all(hit.metadata["half"] == 1 for hit in own.hits)


def test_approximate_indexes_are_added_to_and_deleted_from(retriever, folder):
    documents = [Document(id=str(i), text=text) for i, text in enumerate(texts(300))]
    searcher = Searcher.build(folder, documents, retriever, engine="hnsw", lexical=False)
    searcher.add([Document(id="new", text="飞蛾 " * 20)])
    assert searcher.search("飞蛾", k=1).hits[0].id == "new"
    searcher.delete(["new"])
    again = Searcher.open(folder, retriever)
    assert "new" not in [hit.id for hit in again.search("飞蛾", k=300).hits]
    assert len(again.search("飞蛾", k=300).hits) == 300
    path = folder / again.manifest.engine_settings["file"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IndexFolderError, match=r"engine-2.faiss has \d+ bytes instead of"):
        Searcher.open(folder, retriever)


def test_a_corpus_of_one_document(retriever, tmp_path):
    for engine in ("flat", "ivf", "hnsw"):
        one = [Document(id="a", text="moths")]
        searcher = Searcher.build(tmp_path / engine, one, retriever, engine=engine)
        assert [hit.id for hit in searcher.search("moths NOT birds", k=5).hits] == ["a"]


def test_the_best_come_in_order_and_equal_ones_by_row():
    scores = np.array([[1.0, 3.0, 3.0, 2.0, -np.inf]], np.float32)
    assert best(scores, 3).rows.tolist() == [[1, 2, 3]]
    assert best(scores, 9).rows.tolist() == [[1, 2, 3, 0, -1]]
    assert best(np.zeros((2, 0), np.float32), 3).rows.shape == (2, 0)


def test_candidates_find_what_an_exhaustive_search_finds(built):
    approximate, _ = built
    queries = ["moths AND Borneo NOT Sumatra", "birds AND (Peru OR Kenya)", "orchids NOT red"]
    assert candidate_recall(approximate, queries, 10) > 0.9
    assert candidate_recall(approximate, ["moths NOT moths"], 10) == 1.0


def test_a_query_has_no_more_probes_than_it_needs(retriever):
    moths, borneo, birds = retriever.encode_operands(["moths", "Borneo", "birds"])
    both, joint = retriever.encode_operands(["moths and Borneo", "moths and birds"])

    def same(text, *expected):
        [plan] = retriever.plan_trees([parse(text)], ["as it was typed"])
        np.testing.assert_allclose(probes(plan), np.array(expected), atol=1e-6)
        return plan

    same("moths OR birds", moths, birds)
    plain = retriever.encode_queries(["as it was typed"])[0]
    same("moths AND Borneo", (both + plain) / 2)
    same("moths AND birds NOT Borneo", joint, joint - borneo / 2)
    same("moths NOT Borneo", moths, moths - borneo / 2)
    same("moths AND (Borneo OR birds)", both, joint)


def test_the_single_vector_points_away_from_negated_operands(retriever):
    [plan] = retriever.plan_trees([parse("moths AND Borneo NOT Sumatra")])
    moths, borneo, sumatra = retriever.encode_operands(["moths", "Borneo", "Sumatra"])
    vector = plan.single_vector
    np.testing.assert_allclose(vector, (moths + borneo) / 2 - sumatra / 2, atol=1e-6)
    assert vector @ sumatra < 0 < vector @ moths
