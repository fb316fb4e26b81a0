"""Scopes and attention by layer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from boolattn.attention.config import BoolAttnConfig
from boolattn.data.sentences import generate
from boolattn.plugin.storage import save
from experiments.scopes import held_out_sentences, main, measure_scopes, report
from tests.conftest import attach_trained


@pytest.fixture(scope="module")
def sentences():
    return [one for one in generate(60, seed=5) if "not" in one.operators][:12]


def test_held_out_sentences_have_a_not():
    sentences = held_out_sentences()
    assert len(sentences) == 200
    assert all("not" in sentence.operators for sentence in sentences)


def test_a_not_with_all_words_in_scope_takes_attention_from_them(
    tiny_encoder, tokenizer, sentences
):
    encoder = tiny_encoder(vocab_size=len(tokenizer))
    alone = [sentence for sentence in sentences if set(sentence.operators) == {"not"}]
    plugin = attach_trained(encoder, BoolAttnConfig(rank=4))
    for moved, change in ((-50.0, -1), (50.0, 0)):
        for layer in plugin.layers.values():
            layer.scope.threshold.data.fill_(moved)
        scopes = measure_scopes(encoder, tokenizer, alone)
        assert [np.sign(round(value, 6)) for value in scopes["attention"]] == [change] * 2
        assert all((v > 0) == (change < 0) for v in scopes["scope_f1_not"])
        assert scopes["threshold"] == pytest.approx([float(change == 0)] * 2)


def test_models_are_measured_by_name(tiny_encoder, tokenizer, tmp_path, capsys):
    encoder = tiny_encoder(vocab_size=len(tokenizer))
    attach_trained(encoder, BoolAttnConfig(rank=4))
    save(encoder, tmp_path / "model", tokenizer=tokenizer)
    assert main([f"own={tmp_path / 'model'}", "--out", str(tmp_path / "out")]) == 0
    assert "| own | ." in capsys.readouterr().out
    scopes = json.loads((tmp_path / "out" / "scopes.json").read_text())
    assert report(scopes, tmp_path / "again").startswith("| model |")
