from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from boolattn import BoolAttnConfig
from boolattn.encoder import build_towers, encode_queries
from boolattn.encoder.retriever import Retriever
from boolattn.encoders.models import minilm_folder
from boolattn.errors import DataError, GateError
from boolattn.query.tree import And, Atom, Not
from boolattn.search.lexical import Bm25Ranker
from boolattn.search.model_rankers import RetrieverRanker, TowersRanker

DOCUMENTS = [
    "A moth found in Borneo.",
    "A moth found in Sumatra.",
    "A volcano in Iceland.",
    "Moths, and more moths: the moths of Borneo and Sumatra.",
    "A recipe for bread with olives.",
]


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformer:
    return SentenceTransformer(str(minilm_folder()), device="cpu", local_files_only=True)


def test_any_sentence_transformer_ranks(minilm):
    calls = []
    ranker = TowersRanker(minilm, DOCUMENTS, progress=lambda *call: calls.append(call))
    found = ranker.rank(["volcanoes", "moths of Borneo"], 5)
    assert found.rows[0, 0] == 2
    assert set(found.rows[1, :3]) == {0, 1, 3}
    expected = minilm.similarity(
        minilm.encode_query(["moths of Borneo"]), minilm.encode_document(DOCUMENTS)
    )[0]
    np.testing.assert_allclose(found.scores[1], expected[found.rows[1]], atol=1e-5)
    assert calls == [("documents", 5, 5)]


def test_cosine_ignores_the_length_of_vectors(minilm):
    # MiniLM ends with Normalize; without it the ranker has to normalise.
    unnormalised = SentenceTransformer(
        modules=list(minilm.children())[:2], similarity_fn_name="cosine"
    )
    with_, without = (TowersRanker(m, DOCUMENTS).rank(["moths"], 5) for m in (minilm, unnormalised))
    np.testing.assert_array_equal(with_.rows, without.rows)
    np.testing.assert_allclose(with_.scores, without.scores, atol=1e-5)


def test_a_model_with_another_similarity_ranks_by_it(minilm):
    model = SentenceTransformer(modules=list(minilm.children()), similarity_fn_name="euclidean")
    found = TowersRanker(model, DOCUMENTS).rank(["volcanoes"], 5)
    expected = model.similarity(
        model.encode_query(["volcanoes"]), model.encode_document(DOCUMENTS)
    )[0].numpy()
    np.testing.assert_array_equal(found.rows[0], np.argsort(-expected, kind="stable"))
    np.testing.assert_allclose(found.scores[0], -np.sort(-expected), atol=1e-5)


def test_nan_scores_are_refused(minilm, monkeypatch):
    ranker = TowersRanker(minilm, DOCUMENTS)
    monkeypatch.setattr(ranker, "_documents", ranker._documents * torch.nan)
    with pytest.raises(DataError, match="NaN"):
        ranker.rank(["moths"], 2)


def test_oracle_labels_open_the_gate(tiny_encoder, tokenizer):
    config = BoolAttnConfig(operators=("and", "not"), gate="label", rank=4)
    model = build_towers(tiny_encoder(), config, tokenizer=tokenizer)
    ranker = TowersRanker(model, DOCUMENTS)
    texts = ["moths of borneo but not sumatra", "moths or beetles"]
    labels = [["not"], ["or"]]
    labelled = ranker.rank(texts, 5, operators=labels)
    closed = ranker.rank(texts, 5)
    # The model has no expert for OR, so nothing opens there.
    np.testing.assert_allclose(labelled.scores[1], closed.scores[1], atol=1e-6)
    vectors = encode_queries(model, texts, operators=[["not"], []])
    expected = model.similarity(vectors, model.encode_document(DOCUMENTS)).numpy()
    np.testing.assert_allclose(labelled.scores, -np.sort(-expected, axis=1), atol=1e-5)
    assert abs(labelled.scores[0] - closed.scores[0]).max() > 1e-5


def test_labels_for_a_model_without_a_gate_are_refused(minilm):
    with pytest.raises(GateError, match="has no BoolAttn"):
        TowersRanker(minilm, DOCUMENTS).rank(["moths"], 1, operators=[["not"]])


def test_a_corpus_without_documents_is_refused(minilm):
    with pytest.raises(DataError, match="no documents to rank"):
        TowersRanker(minilm, [])


class Explicit(Retriever):
    """Parses every query as one that excludes Sumatra."""

    def plan(self, texts):
        tree = And((Atom("moths of Borneo"), Not(Atom("moths of Sumatra"))))
        return self.plan_trees([tree] * len(texts))


def test_ranking_is_by_the_retrievers_composed_scores(minilm):
    retriever = Explicit(minilm)
    found = RetrieverRanker(retriever, DOCUMENTS).rank(["-"], 5)
    [plan] = retriever.plan(["-"])
    similarities = plan.vectors @ retriever.encode_documents(DOCUMENTS).T
    expected = retriever.score(plan, similarities)
    np.testing.assert_array_equal(found.rows[0], np.argsort(-expected))
    np.testing.assert_allclose(found.scores[0], -np.sort(-expected), atol=1e-4)


def test_a_query_that_is_not_composed_ranks_by_one_vector(minilm):
    texts = ["volcanoes", "moths of Borneo"]
    composed = RetrieverRanker(Retriever(minilm), DOCUMENTS).rank(texts, 4)
    plain = TowersRanker(minilm, DOCUMENTS).rank(texts, 4)
    np.testing.assert_array_equal(composed.rows, plain.rows)
    np.testing.assert_allclose(composed.scores, plain.scores, atol=1e-5)


def test_bm25_stems_words_and_returns_only_documents_with_one():
    found = Bm25Ranker(DOCUMENTS).rank(["a volcanoes", "olive MOTH", "zebra", "?!"], 3)
    assert found.rows[0, 0] == 2
    # A rare word has more weight than a common one.
    assert found.rows[1, 0] == 4
    assert set(found.rows[1, 1:]) <= {0, 1, 3}
    assert found.rows[2:].tolist() == [[-1, -1, -1]] * 2


def test_bm25_has_no_operators():
    ranker = Bm25Ranker(DOCUMENTS)
    texts = ['moth NOT Borneo AND "Sumatra" -bread +x text:a^2 (', "moth not borneo and sumatra"]
    both = ranker.rank([*texts, "bread moth borneo sumatra not and x text a 2"], 5)
    assert both.rows[0].tolist() == both.rows[2].tolist()
    # NOT is an operator of tantivy, but a word here.
    assert 0 in both.rows[1]
    assert 3 in both.rows[1]


def test_bm25_orders_equal_documents_by_row():
    found = Bm25Ranker(["moth"] * 30).rank(["moth"], 30)
    assert found.rows[0].tolist() == list(range(30))
