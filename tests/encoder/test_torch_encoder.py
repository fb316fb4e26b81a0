"""The torch encoder: a sentence-transformers model, saved and loaded."""

from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.encoder.towers import build_towers, save_towers
from boolattn.errors import MissingDataError
from tests.conftest import trained

NOT_TEXT, PLAIN_TEXT = "moths of Borneo but not Sumatra", "moths of Borneo"


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
