"""Averaged weights lie between those of the base and of the trained models."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from boolattn.cli import app
from boolattn.encoder.tower_storage import load_towers, save_towers
from boolattn.encoder.towers import query_encoder
from boolattn.errors import ConfigError
from boolattn.training.towers import average, freeze, load_encoder, make_towers


@pytest.fixture
def trained(preset, tmp_path):
    """Two folders of towers, with 1 and 3 added to every weight of the encoder."""

    def make(*changes):
        folders = []
        for number in (1.0, 3.0):
            towers = make_towers(preset("model.use_plugin=false", *changes))
            with torch.no_grad():
                for weights in query_encoder(towers).parameters():
                    weights += number
            save_towers(towers, tmp_path / f"{number}")
            folders.append(tmp_path / f"{number}")
        return preset().model.encoder, folders

    return make


@pytest.mark.parametrize(("shares", "added"), [((0.0, 0.0), 0.0), ((0.5, 0.5), 2.0), ((1, 0), 1)])
def test_weights_are_averaged(trained, shares, added):
    base, folders = trained()
    found = query_encoder(average(base, list(zip(folders, shares, strict=True)))).state_dict()
    for name, value in load_encoder(base)[0].state_dict().items():
        torch.testing.assert_close(
            found[name], value + added if value.is_floating_point() else value
        )


def test_the_command_writes_towers(trained, tmp_path):
    base, folders = trained()
    out = tmp_path / "average"
    names = [base, *map(str, folders), "--out", str(out)]
    result = CliRunner().invoke(app, ["average", *names, "--share", "0.25"])
    assert result.exit_code == 0, result.output
    weights = query_encoder(load_towers(out)).get_input_embeddings().weight
    start = load_encoder(base)[0].get_input_embeddings().weight
    torch.testing.assert_close(weights, start + 1.0)


def test_other_encoders_and_two_towers_are_refused(trained, tiny_encoder, tokenizer, tmp_path):
    base, folders = trained()
    with pytest.raises(ConfigError, match="at least one model"):
        average(base, [])
    tiny_encoder("bert", hidden_size=48).save_pretrained(tmp_path / "wide")
    tokenizer.save_pretrained(tmp_path / "wide")
    with pytest.raises(ConfigError, match="was not trained from"):
        average(str(tmp_path / "wide"), [(folders[0], 0.5)])
    base, folders = trained("model.is_shared=false")
    with pytest.raises(ConfigError, match="different weights"):
        average(base, [(folders[0], 0.5)])


def test_frozen_embeddings_take_no_gradient(preset):
    chosen = preset("model.use_plugin=false", freeze_embeddings=True)
    towers = make_towers(chosen)
    weight = query_encoder(towers).get_input_embeddings().weight
    assert weight.requires_grad
    freeze(towers, chosen.train)
    assert not weight.requires_grad
    assert sum(one.requires_grad for one in towers.parameters()) > 5
