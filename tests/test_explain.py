import json

import numpy as np
import pytest
import torch

from boolattn import explain
from tests.conftest import FAMILIES, attach_trained


@pytest.mark.parametrize("family", FAMILIES)
def test_explanation_with_an_open_gate(tiny_encoder, tokenizer, family):
    encoder = tiny_encoder(family)
    attach_trained(encoder, tokenizer=tokenizer)
    result = explain(encoder, tokenizer, "cats but not dogs")
    n_tokens = len(result.tokens)
    assert result.gate == {"and": False, "or": False, "not": True}
    assert result.cue.shape == (3, n_tokens)
    assert result.scope.shape == result.bias.shape == (2, 3, n_tokens)
    assert result.attention_change.shape == (2, n_tokens)
    # Only NOT is open, and its bias is negative.
    assert not result.bias[:, :2].any()
    assert (result.bias[:, 2] <= 0).all()
    assert result.bias.min() < -0.1
    # Attention changes, and its sum stays 1.
    assert np.abs(result.attention_change).max() > 1e-4
    np.testing.assert_allclose(result.attention_change.sum(-1), 0, atol=1e-5)
    json.dumps(result.to_dict())


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_explanation_with_closed_gates(tiny_encoder, tokenizer, family):
    encoder = tiny_encoder(family)
    attach_trained(encoder, tokenizer=tokenizer)
    result = explain(encoder, tokenizer, "plain cats")
    assert not any(result.gate.values())
    assert not result.bias.any()
    assert not result.attention_change.any()


def test_attention_change_is_the_difference_made_by_the_bias(tiny_encoder, tokenizer):
    encoder = tiny_encoder("bert", "eager")
    inputs = dict(tokenizer("cats or dogs", return_tensors="pt"))
    with torch.no_grad():
        before = encoder(**inputs, output_attentions=True).attentions[0]
        attach_trained(encoder, tokenizer=tokenizer)
        after = encoder(**inputs, output_attentions=True).attentions[0]
    change = (after - before)[0].mean((0, 1)).numpy()
    result = explain(encoder, tokenizer, "cats or dogs")
    np.testing.assert_allclose(result.attention_change[0], change, atol=1e-6)


def test_given_operators_open_their_gates(tiny_encoder, tokenizer):
    encoder = tiny_encoder()
    attach_trained(encoder, tokenizer=tokenizer)
    encoder.train()
    result = explain(encoder, tokenizer, "plain cats", operators=["and"])
    assert result.gate["and"]
    assert (result.bias[:, 0] >= 0).all()
    assert result.bias.max() > 0.1
    assert encoder.training  # its mode is restored


def test_figure(tiny_encoder, tokenizer, tmp_path):
    encoder = tiny_encoder()
    attach_trained(encoder, tokenizer=tokenizer)
    figure = explain(encoder, tokenizer, "cats but not dogs").figure()
    figure.savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert [axes.get_title(loc="left")[:5] for axes in figure.axes[:4]] == [
        "cue: ", "scope", "bias ", "chang",
    ]  # fmt: skip


def test_explanation_of_an_empty_text(tiny_encoder, tokenizer):
    encoder = tiny_encoder()
    attach_trained(encoder, tokenizer=tokenizer)
    assert explain(encoder, tokenizer, "").tokens == ("[CLS]", "[SEP]")
