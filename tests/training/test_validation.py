"""The training-time check against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from boolattn.training.batches import Tokens
from boolattn.training.towers import make_towers
from boolattn.training.validation import ValidationQuery, choose, encode, sample_rows, summarize


def test_numbers_by_hand():
    asked = [
        ValidationQuery("a", (0, 0, 1), gold=(10, 11), excluded=(12, 13)),
        ValidationQuery("b", (0, 0, 0), gold=(14,), excluded=()),
    ]
    rows = [10, 11, 12, 13, 14, 15]
    # By place: first query finds 10, 12, 11, 15; second finds 15, 14.
    measured = summarize([[0, 2, 1, 5, 3, 4], [5, 4, 0, 1, 2, 3]], asked, rows)
    assert measured == {
        "recall@100": pytest.approx(1.0),
        "r_precision": pytest.approx((1 / 2 + 0) / 2),
        "leak": pytest.approx(1 / 2),
    }


def test_recall_stops_at_its_depth():
    asked = [ValidationQuery("a", (0, 0, 0), gold=(0, 150), excluded=())]
    measured = summarize([list(range(200))], asked, list(range(200)))
    assert measured["recall@100"] == pytest.approx(0.5)
    assert measured["leak"] == 0


def test_choosing_is_seeded_and_keeps_what_is_asked_for(dataset):
    rows = {document.id: row for row, document in enumerate(dataset.documents)}
    queries = dataset.splits["train"]
    assert choose(queries, rows, 5, 0) == choose(queries, rows, 5, 0)
    assert choose(queries, rows, 5, 0) != choose(queries, rows, 5, 1)
    assert len(choose(queries, rows, 0, 0)) == len(queries)
    asked = choose(queries, rows, 5, 0)
    sampled = sample_rows(asked, 64, 3, 0)
    wanted = {row for query in asked for row in (*query.gold, *query.excluded)}
    assert wanted <= set(sampled)
    assert len(wanted) <= len(sampled) <= len(wanted) + 3
    assert sample_rows(asked, 64, 0, 0) == list(range(64))


def test_vectors_are_those_of_the_towers_own_encode(preset, tokenizer, dataset):
    towers = make_towers(preset()).eval()
    texts = [document.text for document in dataset.documents][:9]
    tokens = Tokens(tokenizer, texts, 32)
    for task, own in (("document", towers.encode_document), ("query", towers.encode_query)):
        with torch.inference_mode():
            found = encode(towers, tokens, range(9), task, 4)
        torch.testing.assert_close(found, own(texts, convert_to_tensor=True), atol=1e-5, rtol=0)


def test_a_text_is_tokenised_once_and_cut(tokenizer, monkeypatch):
    tokens = Tokens(tokenizer, ["moths of borneo", "no " * 50], 8)
    first = tokens.features([0, 1])
    assert first["input_ids"].shape == (2, 8) == first["attention_mask"].shape
    monkeypatch.setattr(tokens, "_tokenizer", None)
    assert torch.equal(tokens.features([0, 1])["input_ids"], first["input_ids"])
    chunks, places = tokens.chunks([1, 0, 1], 1)
    laid = [chunk["input_ids"].shape[1] for chunk in chunks]
    assert [laid[place] for place in places] == tokens.lengths([1, 0, 1])
