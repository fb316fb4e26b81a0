"""The towers of a run: those of another model are refused."""

from __future__ import annotations

import pytest
import torch

from boolattn.encoder.towers import query_encoder, tower_of
from boolattn.errors import ConfigError, DataError
from boolattn.plugin.storage import attach, save
from boolattn.training.launch import load_encoder, make_towers

OTHER_MODELS = {
    "model.pooling=cls": "its pooling is mean, not cls; --set model.pooling=mean",
    "model.similarity=dot": "its similarity is cosine, not dot",
    "model.is_shared=false": "its is_shared is True, not False",
    "model.query_length=16": "its query_length is 32, not 16",
    "model.use_plugin=false": "its use_plugin is True, not False",
    "plugin.gate=label": "its plug-in has other settings",
}


def test_towers_of_another_model_are_refused(preset, tmp_path):
    folder = tmp_path / "model"
    make_towers(preset()).save_pretrained(str(folder))
    assert make_towers(preset(), folder) is not None
    for change, message in OTHER_MODELS.items():
        with pytest.raises(ConfigError, match="is of another model: " + message) as caught:
            make_towers(preset(change), folder)
        assert "\n" not in str(caught.value)


def test_towers_of_another_encoder_or_none_are_refused(preset, tiny_encoder, tokenizer, tmp_path):
    folder = tmp_path / "model"
    make_towers(preset()).save_pretrained(str(folder))
    tiny_encoder("bert", hidden_size=48).save_pretrained(tmp_path / "wide")
    tokenizer.save_pretrained(tmp_path / "wide")
    with pytest.raises(ConfigError, match=r"its encoder has hidden_size 32, and .*wide 48"):
        make_towers(preset(f"model.encoder={tmp_path / 'wide'}"), folder)
    with pytest.raises(ConfigError, match=r"no folder .*nothing to begin from"):
        make_towers(preset(), tmp_path / "nothing")
    for path in folder.rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"model cannot be loaded: Safetensor|differs from"):
        make_towers(preset(), folder)


def test_a_document_tower_begins_without_the_embeddings_that_pretraining_moved(preset, tmp_path):
    chosen = preset("model.is_shared=false")
    encoder, tokenizer = load_encoder(chosen.model.encoder)
    first = encoder.embeddings.word_embeddings.weight.detach().clone()
    encoder.embeddings.word_embeddings.weight.data += 1
    attach(encoder, chosen.plugin, tokenizer=tokenizer)
    save(encoder, tmp_path / "heads", tokenizer=tokenizer)
    towers = make_towers(chosen, tmp_path / "heads")
    query, document = query_encoder(towers).backbone, tower_of(towers, "document").model
    assert torch.equal(query.embeddings.word_embeddings.weight, first + 1)
    assert torch.equal(document.embeddings.word_embeddings.weight, first)
