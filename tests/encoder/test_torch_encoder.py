"""The torch encoder: a sentence-transformers model, saved and loaded."""

from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.encoder.towers import build_towers, save_towers
from boolattn.errors import MissingDataError
from boolattn.service.schemas import explain_words
from tests.conftest import trained

NOT_TEXT, PLAIN_TEXT = "moths of Borneo but not Sumatra", "moths of Borneo"


def test_the_service_explains_the_words_of_a_query(tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="lexicon", rank=4)
    towers = trained(build_towers(tiny_encoder(), config, tokenizer=tokenizer)).eval()
    encoder = TorchEncoder(towers)
    gate, words = explain_words(encoder, NOT_TEXT)
    explanation = encoder.explain(NOT_TEXT)
    assert gate == explanation.gate
    assert gate["not"]
    assert all(word["text"] == NOT_TEXT[word["start"] : word["end"]] for word in words)
    assert "".join(word["text"] for word in words) == NOT_TEXT.replace(" ", "")
    [[cue]] = [[word["cue"]["not"] for word in words if word["text"] == "not"]]
    assert cue == pytest.approx(max(row["cue"]["not"] for row in explanation.rows()), abs=1e-4)
    assert any(word["bias"]["not"] for word in words)
    plain = TorchEncoder(build_towers(tiny_encoder(), tokenizer=tokenizer))
    assert explain_words(plain, NOT_TEXT) == ({}, [])


@pytest.mark.parametrize("config", [None, BoolAttnConfig(gate="lexicon", rank=4)])
def test_a_saved_model_has_the_same_vectors(config, tiny_encoder, tokenizer, tmp_path):
    towers = trained(build_towers(tiny_encoder(), config, tokenizer=tokenizer, query_length=32))
    first = TorchEncoder(towers)
    save_towers(towers, tmp_path / "model")
    second = TorchEncoder.load(tmp_path / "model")
    assert (second.fingerprint, second.digests) == (first.fingerprint, first.digests)
    assert (second.encode_queries([NOT_TEXT]) == first.encode_queries([NOT_TEXT])).all()
    plain = SentenceTransformer(str(tmp_path / "model"))
    assert (plain.encode_query([PLAIN_TEXT]) == towers.encode_query([PLAIN_TEXT])).all()
    with pytest.raises(MissingDataError, match="holds no model"):
        TorchEncoder.load(tmp_path)
