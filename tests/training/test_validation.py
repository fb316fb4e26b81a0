"""Evaluation during training."""

from __future__ import annotations

import pytest
import torch

from boolattn.data.records import Query
from boolattn.encoder.torch_encoder import encode_queries
from boolattn.evaluation.benchmark import Judgements
from boolattn.training import retrieval as validation
from boolattn.training.batches.tokens import Tokens
from boolattn.training.launch import make_towers
from boolattn.training.retrieval import validate
from tests.conftest import trained


def test_metrics_by_hand(monkeypatch):
    queries = [
        Query(id="1", text="a", gold=frozenset("ab"), excluded=frozenset("cd")),
        Query(id="2", text="b", gold=frozenset("e")),
    ]
    rows = {name: row for row, name in enumerate("abcdef")}
    # The first query finds a, c, b, f, d, e; the second f, e, a, b, c, d.
    scores = torch.tensor([[6.0, 4, 5, 2, 1, 3], [4, 3, 2, 1, 5, 6]])
    monkeypatch.setattr(validation.torch_encoder, "encode_documents", lambda *_: torch.eye(6))
    encode = lambda _, texts, **__: scores[-len(texts) :]  # noqa: E731
    monkeypatch.setattr(validation.torch_encoder, "encode_queries", encode)
    expected = {"recall@100": 1.0, "r_precision": (1 / 2 + 0) / 2, "leak": 1 / 2}
    judged, towers, texts = Judgements.of(queries, rows), torch.nn.Module(), list("abcdef")
    assert validate(towers, judged, texts) == pytest.approx(expected)
    assert validate(towers, Judgements.of(queries[1:], rows), texts)["leak"] == 0


def test_a_validator_samples_queries_and_documents_and_takes_labels(preset, corpus, dataset):
    chosen = preset(n_validation_queries=5, n_validation_documents=20)
    options = corpus.validator(chosen).keywords
    assert len(judged := options["judgements"]) == 5
    assert len(options["texts"]) == judged.n_documents < len(dataset.documents)
    chosen = preset("plugin.gate=label")
    towers = trained(make_towers(chosen).eval())
    options = corpus.validator(chosen).keywords
    assert options["takes_labels"]
    judged = options["judgements"]
    closed = encode_queries(towers, judged.texts, operators=[()] * len(judged))
    labelled = encode_queries(towers, judged.texts, operators=judged.operators)
    assert not torch.allclose(labelled, closed)
    plain = towers.encode_query(list(judged.texts), convert_to_tensor=True)
    torch.testing.assert_close(closed, plain, atol=1e-5, rtol=0)


def test_a_text_is_tokenised_once_and_cut(tokenizer, monkeypatch):
    tokens = Tokens(tokenizer, ["moths of borneo", "no " * 50], 8)
    first = tokens.features([0, 1])
    assert first["input_ids"].shape == (2, 8) == first["attention_mask"].shape
    monkeypatch.setattr(tokens, "_tokenizer", None)
    assert torch.equal(tokens.features([0, 1])["input_ids"], first["input_ids"])
    chunks, places = tokens.chunks([1, 0, 1], 1)
    laid = [chunk["input_ids"].shape[1] for chunk in chunks]
    assert [laid[place] for place in places] == [len(tokens._ids[row]) for row in (1, 0, 1)]
