"""Evaluation during training."""

from __future__ import annotations

import pytest
import torch

from boolattn.data.records import Query
from boolattn.training import validation
from boolattn.training.batches.tokens import Tokens
from boolattn.training.towers import make_towers
from boolattn.training.validation import Validator, encode, sample_documents, sample_queries


def test_metrics_by_hand(tokenizer, monkeypatch):
    queries = [
        Query(id="1", text="a", gold=frozenset("ab"), excluded=frozenset("cd")),
        Query(id="2", text="b", gold=frozenset("e")),
    ]
    rows = dict(zip("abcdef", range(10, 16), strict=True))
    # The first query finds a, c, b, f, d, e; the second f, e, a, b, c, d.
    scores = torch.tensor([[6.0, 4, 5, 2, 1, 3], [4, 3, 2, 1, 5, 6]])
    found = {"document": torch.eye(6), "query": scores}
    monkeypatch.setattr(validation, "encode", lambda towers, tokens, rows, task, *_: found[task])
    validator = Validator(queries, None, rows, tokenizer, 8)
    expected = {"recall@100": 1.0, "r_precision": (1 / 2 + 0) / 2, "leak": 1 / 2}
    assert validator(torch.nn.Module()) == pytest.approx(expected)
    found["query"] = scores[1:]
    assert Validator(queries[1:], None, rows, tokenizer, 8)(torch.nn.Module())["leak"] == 0


def test_sampling_is_seeded_and_keeps_judged_documents(dataset):
    rows = {document.id: row for row, document in enumerate(dataset.documents)}
    queries = dataset.splits["train"]
    assert sample_queries(queries, 5, 0) == sample_queries(queries, 5, 0)
    assert sample_queries(queries, 5, 0) != sample_queries(queries, 5, 1)
    assert len(sample_queries(queries, 0, 0)) == len(queries)
    asked = sample_queries(queries, 5, 0)
    sampled = sample_documents(asked, rows, 3, 0)
    wanted = {name for query in asked for name in (*query.gold, *query.excluded)}
    assert wanted <= set(sampled)
    assert len(wanted) <= len(sampled) <= len(wanted) + 3
    assert sample_documents(asked, rows, 0, 0) == rows


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
