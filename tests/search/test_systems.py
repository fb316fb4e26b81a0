"""Rankings for evaluation: by the searcher, with oracle labels, by BM25."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from boolattn import BoolAttnConfig
from boolattn.data.records import Dataset, Document, Query
from boolattn.encoder.torch_encoder import TorchEncoder, encode_queries
from boolattn.encoder.towers import build_towers, save_towers
from boolattn.encoders.models import minilm_folder
from boolattn.errors import ConfigError, DataError, GateError
from boolattn.evaluation.benchmark import prepare
from boolattn.query.plan import plan_queries
from boolattn.query.reading import QueryReader
from boolattn.query.tree import Operator
from boolattn.search.systems import WAYS, Bm25Ranker, SearchRanker, open_systems
from tests.conftest import trained
from tests.exact_ranking import score
from tests.parses import KnownParses, flat

TEXTS = [
    "A moth found in Borneo.",
    "A moth found in Sumatra.",
    "A volcano in Iceland.",
    "Moths, and more moths: the moths of Borneo and Sumatra.",
    "A recipe for bread with olives.",
]
DOCUMENTS = [Document(id=f"d{row}", text=text) for row, text in enumerate(TEXTS)]
NOT_TEXT = "moths of Borneo but not Sumatra"
PARSER = KnownParses({NOT_TEXT: flat((((0, 15),),), (((0, 8), (24, 31)),))})


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformer:
    return SentenceTransformer(str(minilm_folder()), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def ranker(minilm) -> SearchRanker:
    return SearchRanker.index(TorchEncoder(minilm), DOCUMENTS, parser=PARSER)


def ranked(towers, texts=("moths",), depth=5):
    ranker = SearchRanker.index(TorchEncoder(towers), DOCUMENTS, parser=None, words=False)
    return ranker.rank(texts, depth, **WAYS["one vector"])


def test_any_sentence_transformer_ranks(minilm):
    calls = []
    ranker = SearchRanker.index(
        TorchEncoder(minilm), DOCUMENTS, words=False, progress=lambda *call: calls.append(call)
    )
    assert calls == [("documents", 5, 5)]
    ranking = ranker.rank(["volcanoes", "moths of Borneo"], 5, **WAYS["one vector"])
    assert ranking.rows[0, 0] == 2
    assert set(ranking.rows[1, :3]) == {0, 1, 3}
    expected = minilm.similarity(
        minilm.encode_query(["moths of Borneo"]), minilm.encode_document(TEXTS)
    )[0]
    np.testing.assert_allclose(ranking.scores[1], expected[ranking.rows[1]], atol=1e-5)


def test_more_queries_than_are_searched_at_once_keep_their_order(ranker):
    texts = [f"{word} {number}" for number in range(40) for word in ("volcano", "bread")]
    ranking = ranker.rank(texts, 2, **WAYS["one vector"])
    assert ranking.rows[:, 0].tolist() == [2, 4] * 40
    assert ranking.rows.shape == (80, 2)


def test_cosine_ignores_the_length_of_vectors(minilm):
    # MiniLM ends with Normalize; without it the encoder has to normalise.
    unnormalised = SentenceTransformer(
        modules=list(minilm.children())[:2], similarity_fn_name="cosine"
    )
    with_, without = ranked(minilm), ranked(unnormalised)
    np.testing.assert_array_equal(with_.rows, without.rows)
    np.testing.assert_allclose(with_.scores, without.scores, atol=1e-5)


def test_another_similarity_than_cosine_or_dot_is_refused(minilm):
    model = SentenceTransformer(modules=list(minilm.children()), similarity_fn_name="euclidean")
    with pytest.raises(ConfigError, match="by cosine or dot product, and this model asks for"):
        ranked(model)


def test_vectors_that_are_no_numbers_are_refused(minilm):
    encoder = TorchEncoder(minilm)

    def encode(batches):
        for texts in batches:
            yield np.full((len(texts), encoder.dimension), np.nan, np.float32)

    with pytest.raises(DataError, match="the vector of document 'd0' is not finite"):
        SearchRanker.index(encoder, DOCUMENTS, encode=encode)


def test_a_corpus_without_documents_is_refused(minilm):
    with pytest.raises(DataError, match="no documents to rank"):
        SearchRanker.index(TorchEncoder(minilm), [])


def test_ranking_is_by_composed_scores(minilm, ranker):
    ranking = ranker.rank([NOT_TEXT], 5, **WAYS["composed"])
    encoder = TorchEncoder(minilm)
    [plan] = plan_queries([QueryReader(PARSER).read(NOT_TEXT)], encoder)
    expected = score(plan, plan.vectors @ encoder.encode_documents(TEXTS).T)
    np.testing.assert_array_equal(ranking.rows[0], np.argsort(-expected))
    np.testing.assert_allclose(ranking.scores[0], -np.sort(-expected), atol=1e-4)


def test_a_query_that_is_not_composed_ranks_by_one_vector(ranker):
    texts = ["volcanoes", "moths of Borneo"]
    composed, plain = (ranker.rank(texts, 4, **WAYS[way]) for way in ("composed", "one vector"))
    np.testing.assert_array_equal(composed.rows, plain.rows)
    np.testing.assert_allclose(composed.scores, plain.scores, atol=1e-5)


def test_strict_not_leaves_documents_out(ranker):
    rows = {way: ranker.rank([NOT_TEXT], 9, **WAYS[way]).rows[0].tolist() for way in WAYS}
    for way in ("one vector", "composed", "hybrid"):
        assert sorted(rows[way]) == [0, 1, 2, 3, 4]
    for way in ("strict NOT", "hybrid, strict NOT"):
        assert rows[way][0] == 0
        assert sorted(rows[way]) == [-1, -1, 0, 2, 4]


def test_queries_are_plain_language_unless_the_mode_says_otherwise(ranker):
    text = 'volcano AND NOT (moth" -x'
    assert ranker.rank([text], 1).rows.tolist() == [[2]]
    explicit = ranker.rank(["bread OR volcano"], 2, mode="explicit", **WAYS["composed"])
    assert set(explicit.rows[0]) == {2, 4}


@pytest.fixture
def labelled(tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="label", rank=4)
    return trained(build_towers(tiny_encoder(), config, tokenizer=tokenizer))


def test_oracle_labels_open_the_gate(labelled, tmp_path):
    queries = [
        Query(id="a", text=NOT_TEXT, gold=frozenset({"d0"}), operators=(Operator.NOT,)),
        Query(id="b", text="moths or bees", gold=frozenset({"d0"})),
    ]
    data = Dataset(name="x", documents=DOCUMENTS, splits={"test": tuple(queries)})
    benchmark = prepare(data, ["test"])
    save_towers(labelled, tmp_path / "model")
    rankings = {}
    for gate, shown in (("label", "label"), ("own", "closed")):
        model = str(tmp_path / "model")
        ways = ["one vector"]
        [system] = open_systems(model, benchmark, ways, gate=gate, device="cpu")
        assert (system.name, system.gate, system.way) == ("model", shown, "one vector")
        rankings[gate] = system.rank(benchmark.splits["test"], 5)
    scores, closed = rankings["label"].scores, rankings["own"].scores
    np.testing.assert_allclose(scores[1], closed[1], atol=1e-6)
    vectors = encode_queries(labelled, [query.text for query in queries], operators=[["not"], []])
    expected = labelled.similarity(vectors, labelled.encode_document(TEXTS)).numpy()
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1), atol=1e-5)
    assert abs(scores[0] - closed[0]).max() > 1e-5


def test_labels_that_do_not_fit_are_refused(labelled, minilm):
    for towers, text, complaint in (
        (minilm, "moths", "has no BoolAttn"),
        (labelled, "birds", "no operator labels for the query 'moths'"),
    ):
        encoder = TorchEncoder(towers)
        encoder.labels = {text: ["not"]}
        with pytest.raises(GateError, match=complaint):
            encoder.encode_queries(["moths"])


def test_bm25_stems_words_and_returns_only_documents_with_one():
    ranking = Bm25Ranker(TEXTS).rank(["a volcanoes", "olive MOTH", "zebra", "?!"], 3)
    assert ranking.rows[0, 0] == 2
    # A rare word has more weight than a common one.
    assert ranking.rows[1, 0] == 4
    assert set(ranking.rows[1, 1:]) <= {0, 1, 3}
    assert ranking.rows[2:].tolist() == [[-1, -1, -1]] * 2


def test_bm25_has_no_operators():
    texts = ['moth NOT Borneo AND "Sumatra" -bread +x text:a^2 (', "moth not borneo and sumatra"]
    both = Bm25Ranker(TEXTS).rank([*texts, "bread moth borneo sumatra not and x text a 2"], 5)
    assert both.rows[0].tolist() == both.rows[2].tolist()
    # NOT is an operator of tantivy, but a word here.
    assert 0 in both.rows[1]
    assert 3 in both.rows[1]


def test_bm25_orders_equal_documents_by_row():
    ranking = Bm25Ranker(["moth"] * 30).rank(["moth"], 30)
    assert ranking.rows[0].tolist() == list(range(30))


def test_composed_rankings_need_no_tantivy():
    code = """
import sys
for name in ("tantivy", "faiss", "click"):
    sys.modules[name] = None
from boolattn.data.records import Document
from boolattn.encoders.models import load_model
from boolattn.search.systems import WAYS, SearchRanker
documents = [Document(id=text, text=text) for text in ("moths of Java", "moths", "bread")]
ranker = SearchRanker.index(load_model("shipped"), documents, words=False)
for way in ("one vector", "composed"):
    print(*sorted(ranker.rank(["moths but not of Java"], 3, **WAYS[way]).rows[0]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["0 1 2"] * 2, done.stderr


def test_an_encoder_without_pooling_gets_mean_pooling(tiny_encoder, tokenizer, tmp_path):
    encoder, folder = tiny_encoder(), tmp_path / "bare"
    for part in (encoder, tokenizer):
        part.save_pretrained(folder)
    query = Query(id="a", text="moths", gold=frozenset({"d0"}))
    benchmark = prepare(Dataset(name="x", documents=DOCUMENTS, splits={"test": (query,)}))
    [system] = open_systems(str(folder), benchmark, ["one vector"])
    ranking = system.rank(benchmark.splits["test"], 5)
    expected = ranked(build_towers(encoder, tokenizer=tokenizer))
    np.testing.assert_allclose(ranking.scores, expected.scores, atol=1e-5)
