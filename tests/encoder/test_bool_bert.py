import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel

from boolattn import BoolAttnConfig, attach
from boolattn.encoder.bool_bert import BoolBertConfig, BoolBertModel
from boolattn.errors import ConfigError, GateError, UnsupportedEncoderError
from boolattn.plugin.install import plugin_of
from tests.conftest import FAMILIES, TEXTS, trained

OPEN = [["and"], ["not", "or"], ["not"]]
LIGHT = BoolAttnConfig(rank=4)


def vectors(model, batch, **options):
    with torch.no_grad():
        return model(**batch, **options).last_hidden_state


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_saved_and_loaded_by_auto_classes(tiny_encoder, batch, tmp_path, family):
    bare = vectors(tiny_encoder(family), batch)
    model = trained(BoolBertModel.wrap(tiny_encoder(family), LIGHT)).eval()
    expected = vectors(model, batch, operators=OPEN)
    assert not torch.equal(expected, bare)  # operators reach the encoder
    model.save_pretrained(tmp_path)
    other = AutoModel.from_pretrained(tmp_path)
    assert isinstance(other, BoolBertModel)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), BoolBertConfig)
    assert torch.equal(vectors(other, batch, operators=OPEN), expected)
    # Without labels this gate is closed.
    for same in (model, other):
        assert torch.equal(vectors(same, batch), bare)
        assert torch.equal(vectors(same, batch, task="document"), bare)


@pytest.mark.parametrize("gate", ["lexicon", "learned"])
def test_the_gate_is_saved_with_the_model(tiny_encoder, tokenizer, tmp_path, gate):
    model = BoolBertModel.wrap(
        tiny_encoder(), BoolAttnConfig(gate=gate, rank=4), tokenizer=tokenizer
    ).eval()
    plugin = trained(plugin_of(model))
    if gate == "learned":
        plugin.gate.outer.bias.data.fill_(9)  # open
    batch = dict(tokenizer(list(TEXTS), return_tensors="pt", padding=True))
    expected = vectors(model, batch)
    assert not torch.equal(expected, vectors(model, batch, task="document"))
    model.save_pretrained(tmp_path)
    other = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(vectors(other, batch), expected)
    mine, its = plugin.state_dict(), plugin_of(other).state_dict()
    assert mine.keys() == its.keys()
    assert all(torch.equal(mine[name], its[name]) for name in mine)
    assert any("gate" in name for name in load_file(tmp_path / "model.safetensors"))


def test_wrap_keeps_the_initial_weights_of_the_plugin(tiny_encoder):
    torch.manual_seed(7)
    encoder = tiny_encoder()
    attach(encoder, LIGHT)
    initial = {k: v.clone() for k, v in plugin_of(encoder).state_dict().items()}
    model = BoolBertModel.wrap(encoder)
    assert all(torch.equal(v, initial[k]) for k, v in plugin_of(model).state_dict().items())


def test_labels_for_documents_are_rejected(tiny_encoder, batch):
    model = BoolBertModel.wrap(tiny_encoder(), LIGHT)
    with pytest.raises(GateError, match="operators are for the task 'query'"):
        model(**batch, operators=OPEN, task="document")


def test_other_settings_than_the_plugins_are_rejected(tiny_encoder):
    encoder = tiny_encoder()
    attach(encoder, LIGHT)
    with pytest.raises(ConfigError, match="other settings"):
        BoolBertModel.wrap(encoder, BoolAttnConfig(rank=2))
    assert BoolBertModel.wrap(encoder, LIGHT).config.boolattn_config == LIGHT


def test_missing_settings_are_named(tiny_encoder, tokenizer):
    with pytest.raises(ConfigError, match="has no encoder"):
        BoolBertModel(BoolBertConfig())
    config = BoolBertModel.wrap(tiny_encoder(), tokenizer=tokenizer).config
    config.lexicon_shape = None
    with pytest.raises(ConfigError, match="lacks lexicon_shape"):
        BoolBertModel(config)


def test_config_has_the_encoders_sizes_and_no_path(tiny_encoder, tmp_path):
    tiny_encoder("distilbert").save_pretrained(tmp_path / "base")
    encoder = AutoModel.from_pretrained(tmp_path / "base")
    BoolBertModel.wrap(encoder, LIGHT).save_pretrained(tmp_path / "model")
    config = AutoConfig.from_pretrained(tmp_path / "model")
    assert (config.hidden_size, config.num_attention_heads, config.vocab_size) == (32, 4, 220)
    assert not hasattr(config, "attention_dropout")  # only sizes
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert written["encoder"]["_name_or_path"] == "base"
    assert str(tmp_path) not in json.dumps(written)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_implementation_is_used(tiny_encoder, batch, tmp_path, attention):
    BoolBertModel.wrap(tiny_encoder(), LIGHT).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path, attn_implementation=attention)
    assert model.backbone.config._attn_implementation == f"boolattn_{attention}"
    assert vectors(model, batch, operators=OPEN).isfinite().all()


def test_dtype_applies_to_encoder_and_plugin(tiny_encoder, tmp_path):
    BoolBertModel.wrap(tiny_encoder(), LIGHT).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_dtype_in_the_encoders_settings_is_ignored(tiny_encoder, tmp_path):
    model = BoolBertModel.wrap(tiny_encoder(), LIGHT)
    # The precision of the encoder's original file.
    model.config.encoder = model.config.encoder | {"dtype": "float16"}
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}


def test_an_unsupported_family_is_rejected(tiny_encoder):
    config = BoolBertModel.wrap(tiny_encoder(), LIGHT).config
    config.encoder = {"model_type": "albert", "hidden_size": 16, "num_attention_heads": 2}
    config.encoder |= {"intermediate_size": 16, "embedding_size": 8, "vocab_size": 30}
    with pytest.raises(UnsupportedEncoderError, match="cannot attach to 'albert'"):
        BoolBertModel(config)


def test_checkpointed_gradients_are_the_same(tiny_encoder, batch):
    config = BoolAttnConfig(rank=4, use_noise=False)
    gradients = []
    for is_checkpointed in (False, True):
        torch.manual_seed(3)
        model = BoolBertModel.wrap(
            tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), config
        ).train()
        trained(model)
        if is_checkpointed:
            model.gradient_checkpointing_enable()
            assert model.is_gradient_checkpointing
        model(**batch, operators=OPEN).last_hidden_state.square().sum().backward()
        gradients.append(
            [model.get_input_embeddings().weight.grad, plugin_of(model).operators.grad]
        )
    for plain, checkpointed in zip(*gradients, strict=True):
        assert plain.abs().sum() > 0
        torch.testing.assert_close(plain, checkpointed)


def test_input_embeddings_can_be_replaced(tiny_encoder):
    model = BoolBertModel.wrap(tiny_encoder(), LIGHT)
    new = torch.nn.Embedding(220, 32)
    model.set_input_embeddings(new)
    assert model.backbone.embeddings.word_embeddings is new
