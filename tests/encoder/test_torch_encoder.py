"""The torch encoder: a sentence-transformers model, with folded weights, saved and loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.encoder.towers import build_towers, query_encoder, save_towers
from boolattn.errors import MissingDataError
from boolattn.plugin.install import plugin_of
from tests.conftest import trained

NOT_TEXT, PLAIN_TEXT = "moths of Borneo but not Sumatra", "moths of Borneo"


def test_queries_are_encoded_with_folded_weights_and_training_is_not(tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="lexicon", rank=4)
    encoder = tiny_encoder(initializer_range=0.3)
    towers = trained(build_towers(encoder, config, tokenizer=tokenizer)).eval()
    texts = [NOT_TEXT, PLAIN_TEXT]
    before = towers.encode_query(texts)
    encoder = TorchEncoder(towers)
    plugin = plugin_of(query_encoder(towers))
    assert (encoder.encode_queries([PLAIN_TEXT]) == towers.encode_query([PLAIN_TEXT])).all()
    assert plugin._folded is None  # no expert was open
    np.testing.assert_allclose(encoder.encode_queries(texts), before, atol=2e-5)
    assert plugin._folded is not None
    towers.train()
    assert plugin._folded is None
    with torch.no_grad():
        plugin.layers["0"].bias.outer_bias.add_(5.0)
    after = TorchEncoder(towers).encode_queries(texts)
    assert (after[1] == before[1]).all()
    assert np.abs(after[0] - before[0]).max() > 1e-4


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
