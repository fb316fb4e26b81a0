import json
import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModel

import boolattn
from boolattn import BoolAttnConfig
from boolattn.errors import ConfigError, DataError, PluginMismatchError
from boolattn.plugin.install import plugin_of
from boolattn.plugin.storage import FILE
from tests.conftest import FAMILIES, attach_trained

OPEN = [["and"], ["not", "or"], ["not"]]


def vectors(encoder, batch, **options):
    with torch.no_grad():
        return encoder(**batch, **options).last_hidden_state


@pytest.mark.parametrize("gate", ["label", "lexicon", "learned"])
def test_a_saved_plugin_is_loaded_bit_for_bit(tiny_encoder, tokenizer, batch, tmp_path, gate):
    encoder = tiny_encoder()
    attach_trained(encoder, BoolAttnConfig(gate=gate, rank=4), tokenizer=tokenizer)
    path = boolattn.save_plugin(encoder, tmp_path / "plugin")
    assert [p.name for p in (tmp_path / "plugin").iterdir()] == [path.name]
    other = tiny_encoder()
    boolattn.load_plugin(other, tmp_path / "plugin")
    assert plugin_of(other).config == plugin_of(encoder).config
    for options in ({}, {"operators": OPEN}):
        assert torch.equal(vectors(other, batch, **options), vectors(encoder, batch, **options))
    mine, its = plugin_of(encoder).state_dict(), plugin_of(other).state_dict()
    assert mine.keys() == its.keys()
    assert all(torch.equal(mine[name], its[name]) for name in mine)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_encoder_and_plugin_saved_together_are_loaded(tiny_encoder, batch, tmp_path, family):
    encoder = tiny_encoder(family)
    bare = vectors(encoder, batch)
    attach_trained(encoder)
    for _ in range(2):  # a second save replaces the first
        boolattn.save(encoder, tmp_path / "model")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    other = boolattn.load(tmp_path / "model").eval()
    assert torch.equal(
        vectors(other, batch, operators=OPEN), vectors(encoder, batch, operators=OPEN)
    )
    # Other tools load the encoder without the plug-in.
    names = load_file(tmp_path / "model" / "model.safetensors").keys()
    assert not any("boolattn" in name for name in names)
    plain = AutoModel.from_pretrained(tmp_path / "model").eval()
    assert torch.equal(vectors(plain, batch), bare)


def test_a_plugin_for_another_encoder_is_rejected(tiny_encoder, tmp_path):
    encoder = tiny_encoder()
    attach_trained(encoder)
    boolattn.save_plugin(encoder, tmp_path)
    with pytest.raises(
        PluginMismatchError, match="saved for an encoder with hidden_size 32; this one has 16"
    ):
        boolattn.load_plugin(tiny_encoder(hidden_size=16), tmp_path)
    with pytest.raises(PluginMismatchError, match="model_type bert; this one has roberta"):
        boolattn.load_plugin(tiny_encoder("roberta"), tmp_path)


def test_damaged_files_are_rejected_in_one_line(tiny_encoder, tmp_path):
    encoder = tiny_encoder()
    attach_trained(encoder)
    path = boolattn.save_plugin(encoder, tmp_path)
    whole = path.read_bytes()
    for damage, message in (
        (whole[: len(whole) // 2], "damaged or no BoolAttn file"),
        (b"", "damaged or no BoolAttn file"),
        (b"\x80\x04junk", "damaged or no BoolAttn file"),
    ):
        path.write_bytes(damage)
        with pytest.raises(PluginMismatchError, match=message) as caught:
            boolattn.load_plugin(tiny_encoder(), tmp_path)
        assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(PluginMismatchError, match="does not exist"):
        boolattn.load_plugin(tiny_encoder(), tmp_path)
    with pytest.raises(PluginMismatchError, match="holds no boolattn"):
        boolattn.load(tmp_path)


def rewritten_header(path, **changes):
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["boolattn"]) | {"format": 1} | changes
    save_file(load_file(path), path, metadata={"boolattn": json.dumps(header)})


def test_settings_of_another_version_are_rejected(tiny_encoder, tmp_path):
    encoder = tiny_encoder()
    attach_trained(encoder)
    path = boolattn.save_plugin(encoder, tmp_path)
    rewritten_header(path, format=9)
    with pytest.raises(PluginMismatchError, match="has format 9; this version reads 1"):
        boolattn.load_plugin(tiny_encoder(), tmp_path)
    rewritten_header(path, config={"rnak": 3})
    with pytest.raises(ConfigError, match="has no 'rnak'"):
        boolattn.load_plugin(tiny_encoder(), tmp_path)
    rewritten_header(path, config={"rank": 3})
    other = tiny_encoder()
    with pytest.raises(PluginMismatchError, match="does not fit its own settings") as caught:
        boolattn.load_plugin(other, tmp_path)
    assert "\n" not in str(caught.value)
    assert not hasattr(other, "boolattn")  # a failed load leaves the encoder as it was


def test_saving_never_deletes_other_files(tiny_encoder, tokenizer, tmp_path):
    encoder = tiny_encoder()
    attach_trained(encoder)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds other files and no boolattn"):
        boolattn.save(encoder, folder)
    (folder / "thesis.txt").rename(tmp_path / "thesis.txt")
    boolattn.save(encoder, folder, tokenizer=tokenizer)
    (tmp_path / "thesis.txt").rename(folder / "thesis.txt")
    boolattn.save(encoder, folder)
    assert (folder / "thesis.txt").read_text(encoding="utf-8") == "years"
    assert (folder / "tokenizer.json").is_file()
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        boolattn.save(encoder, folder / "thesis.txt")


def test_a_failed_save_keeps_the_previous_one(tiny_encoder, batch, tmp_path, monkeypatch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    boolattn.save(encoder, tmp_path / "model")
    expected = vectors(encoder, batch, operators=OPEN)

    def full_disk(*_args, **_kwargs):
        raise OSError(28, os.strerror(28))

    plugin_of(encoder).operators.data.add_(1)
    monkeypatch.setattr("boolattn.plugin.storage.save_file", full_disk)
    with pytest.raises(DataError, match="No space left"):
        boolattn.save(encoder, tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    other = boolattn.load(tmp_path / "model").eval()
    assert torch.equal(vectors(other, batch, operators=OPEN), expected)
    assert (tmp_path / "model" / FILE).is_file()
