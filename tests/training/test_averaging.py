"""Averaged weights lie between those of the base and of the trained model."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from boolattn.cli import app
from boolattn.encoder.towers import load_towers, query_encoder, save_towers
from boolattn.errors import ConfigError
from boolattn.training.launch import average, freeze, load_encoder, make_towers


@pytest.fixture
def trained(preset, tmp_path):
    """The name of an encoder, and a folder of towers with 2 added to every weight of it."""

    def make(*changes):
        towers = make_towers(preset("model.use_plugin=false", *changes))
        with torch.no_grad():
            for weights in query_encoder(towers).parameters():
                weights += 2.0
        save_towers(towers, tmp_path / "trained")
        return preset().model.encoder, tmp_path / "trained"

    return make


@pytest.mark.parametrize(("share", "added"), [(0.0, 0.0), (0.75, 1.5), (1.0, 2.0)])
def test_weights_are_averaged(trained, share, added):
    base, folder = trained()
    averaged = query_encoder(average(base, folder, share)).state_dict()
    for name, value in load_encoder(base)[0].state_dict().items():
        torch.testing.assert_close(
            averaged[name], value + added if value.is_floating_point() else value
        )


def test_the_command_writes_towers(trained, tmp_path):
    base, folder = trained()
    out = tmp_path / "average"
    names = [base, str(folder), "--out", str(out)]
    result = CliRunner().invoke(app, ["average", *names, "--share", "0.25"])
    assert result.exit_code == 0, result.output
    weights = query_encoder(load_towers(out)).get_input_embeddings().weight
    start = load_encoder(base)[0].get_input_embeddings().weight
    torch.testing.assert_close(weights, start + 0.5)


def test_other_encoders_and_two_towers_are_refused(trained, tiny_encoder, tokenizer, tmp_path):
    base, folder = trained()
    tiny_encoder("bert", hidden_size=48).save_pretrained(tmp_path / "wide")
    tokenizer.save_pretrained(tmp_path / "wide")
    with pytest.raises(ConfigError, match="was not trained from"):
        average(str(tmp_path / "wide"), folder, 0.5)
    base, folder = trained("model.is_shared=false")
    with pytest.raises(ConfigError, match="different weights"):
        average(base, folder, 0.5)


def test_frozen_embeddings_take_no_gradient(preset):
    chosen = preset("model.use_plugin=false", freeze_embeddings=True)
    towers = make_towers(chosen)
    weight = query_encoder(towers).get_input_embeddings().weight
    assert weight.requires_grad
    freeze(towers, chosen.train)
    assert not weight.requires_grad
    assert sum(one.requires_grad for one in towers.parameters()) > 5
