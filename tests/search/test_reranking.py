"""A reranker sorts the first results, and never brings back what NOT left out."""

from __future__ import annotations

import pytest
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from boolattn import Searcher
from boolattn.errors import ConfigError

TEXTS = [
    "A hawk moth found in Borneo.",
    "A moth of Borneo, and a long account of its caterpillar.",
    "A moth found in Borneo and Sumatra.",
    "A beetle of Java.",
    "An ant of Java, and a long account of its nest.",
]


def longest(pairs):
    return [len(text) for _, text in pairs]


@pytest.fixture(scope="module")
def searcher():
    return Searcher.from_texts(TEXTS)


@pytest.fixture
def reranked(searcher):
    def build(reranker):
        return Searcher(searcher.store, searcher.encoder, searcher.parser, reranker=reranker)

    return build


def test_the_order_is_the_rerankers(searcher, reranked):
    query = "moths of Borneo but not Sumatra"
    assert searcher.search(query)[0].text == TEXTS[0]
    result = reranked(longest).search(query)
    assert [hit.text for hit in result][:2] == [TEXTS[1], TEXTS[4]]
    assert [hit.score for hit in result] == [len(hit.text) for hit in result]


def test_what_not_left_out_stays_out(reranked):
    texts = [hit.text for hit in reranked(longest).search("moths of Borneo but not Sumatra")]
    assert len(texts) == 4
    assert TEXTS[2] not in texts


def test_each_positive_operand_is_read_and_no_negated_one(reranked):
    read = []

    def reranker(pairs):
        read.extend(pairs)
        return [float(operand == "ants" and "ant" in text.split()[1]) for operand, text in pairs]

    result = reranked(reranker).search("(moths OR ants) NOT beetles")
    assert {operand for operand, _ in read} == {"moths", "ants"}
    assert result[0].text == TEXTS[4]  # by its better alternative
    assert result[0].score == 1


def test_pages_are_of_one_order(reranked):
    searcher = reranked(longest)
    first, second = (searcher.search("insects", k=2, offset=offset) for offset in (0, 2))
    assert [hit.id for hit in (*first, *second)] == [h.id for h in searcher.search("insects", k=4)]
    assert second.offset == 2


def test_a_reranker_can_be_left_out_of_a_search(searcher, reranked):
    plain = searcher.search("moths of Borneo")
    assert reranked(longest).search("moths of Borneo", rerank=0).hits == plain.hits


@pytest.mark.parametrize("query", ["NOT moths", "like:0"])
def test_a_query_without_words_keeps_its_order(searcher, reranked, query):
    ids = [hit.id for hit in searcher.search(query)]
    assert [hit.id for hit in reranked(longest).search(query)] == ids


def test_a_cross_encoder_reranks(tmp_path, reranked):
    from sentence_transformers import CrossEncoder

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "moth", "ant", "borneo", "java", "a"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    model = CrossEncoder(str(tmp_path), device="cpu")
    result = reranked(model).search("moth")
    expected = model.predict([("moth", hit.text) for hit in result])
    assert [hit.score for hit in result] == pytest.approx(expected.tolist())
    assert sorted(expected.tolist(), reverse=True) == expected.tolist()


def test_bad_rerankers_are_refused(searcher, reranked):
    with pytest.raises(ConfigError, match="reranker must be a function"):
        reranked("model")
    with pytest.raises(ConfigError, match="finite scores for 5 pairs, got the shape"):
        reranked(lambda pairs: [1.0]).search("moth")
    with pytest.raises(ConfigError, match="got other values"):
        reranked(lambda pairs: [float("nan")] * len(pairs)).search("moth")
    with pytest.raises(ConfigError, match="rerank must be at least 0"):
        searcher.search("moth", rerank=-1)


def test_only_the_first_hits_are_sorted_so_that_pages_hold_each_once():
    plain = Searcher.from_texts(
        [f"A moth of island {n}{' and its bay' * (n % 7)}." for n in range(40)]
    )
    searcher = Searcher(plain.store, plain.encoder, plain.parser, reranker=longest)
    ordered = [hit.id for hit in searcher.search("moths", 40, rerank=15).hits]
    pages = [searcher.search("moths", 5, offset=at, rerank=15).hits for at in range(0, 40, 5)]
    assert [hit.id for page in pages for hit in page] == ordered
    assert ordered[15:] == [hit.id for hit in plain.search("moths", 40).hits][15:]
    assert ordered[:15] != [hit.id for hit in plain.search("moths", 40).hits][:15]
