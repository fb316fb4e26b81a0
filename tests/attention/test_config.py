from dataclasses import replace

import pytest

from boolattn.attention.boolattn import BoolAttn
from boolattn.attention.config import BoolAttnConfig
from boolattn.errors import ConfigError
from boolattn.settings import build


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": "fixed"}, "variant must be one of corrected, paper"),
        ({"gate": "open"}, "gate must be one of"),
        ({"gate_reads": "all"}, "gate_reads must be one of mean, context"),
        ({"gate_kernel": 4}, "gate_kernel must be above 0 and odd"),
        ({"gate_dropout": 1.0}, "gate_dropout must be at least 0 and below 1"),
        (
            {"variant": "paper", "gate": "learned", "gate_reads": "context"},
            "paper variant's learned gate needs gate_reads='mean'",
        ),
        ({"d_o": 0}, "d_o must be above 0"),
        ({"kernel": 4}, "kernel must be above 0 and odd"),
        ({"cue_kernel": 2}, "cue_kernel must be above 0 and odd"),
        ({"rank": -1}, "rank must be above 0"),
        ({"sigma": 0.0}, "sigma must be above 0"),
        ({"threshold": 1.0}, "threshold must be above 0 and below 1"),
        ({"gate_temperature": -1.0}, "gate_temperature must be above 0"),
        ({"fixed_bias": -0.1}, "fixed_bias must be at least 0"),
        ({"cue_seed": -1}, "cue_seed must be at least 0"),
        ({"layers": ()}, "layers must be layer numbers from 0, in order"),
        ({"layers": (3, 1)}, "layers must be layer numbers from 0, in order"),
        ({"layers": (-1, 1)}, "layers must be layer numbers from 0, in order"),
    ],
)
def test_invalid_values_are_rejected(changes, message):
    with pytest.raises(ConfigError, match=message):
        BoolAttnConfig(**changes)


def test_lists_and_integers_are_accepted():
    config = BoolAttnConfig(layers=[0, 1], sigma=2)
    assert config == BoolAttnConfig(layers=(0, 1), sigma=2.0)
    assert hash(config)
    BoolAttn(config, hidden_size=8, n_heads=2, n_layers=2)
    with pytest.raises(ConfigError, match="rank must be an int"):
        BoolAttnConfig(rank=True)


def test_default_of_gate_reads():
    assert BoolAttnConfig(gate="learned").gate_reads == "context"
    assert BoolAttnConfig(gate="learned", gate_reads="mean").gate_reads == "mean"
    assert BoolAttnConfig(gate="learned", variant="paper").gate_reads == "mean"
    # Other gates have no gate_reads, and replace() sets the default again.
    assert BoolAttnConfig(gate="lexicon", gate_reads="mean") == BoolAttnConfig(gate="lexicon")
    assert replace(BoolAttnConfig(), gate="learned").gate_reads == "context"


def test_unknown_key_is_rejected():
    assert build(BoolAttnConfig, {"rank": 16, "layers": [0, 1]}) == BoolAttnConfig(
        rank=16, layers=(0, 1)
    )
    with pytest.raises(ConfigError, match=r"plugin.toml: BoolAttnConfig has no 'rnak'; it has"):
        build(BoolAttnConfig, {"rnak": 16}, source="plugin.toml")


def test_settings_of_older_plug_ins_are_read():
    values = {"rank": 16, "form": "factored", "operators": ["and", "or", "not"]}
    assert BoolAttnConfig.of_saved(values, "saved") == BoolAttnConfig(rank=16)
    with pytest.raises(ConfigError, match="saved: BoolAttnConfig has no 'rnak'"):
        BoolAttnConfig.of_saved({"rnak": 16}, "saved")


def test_build_names_its_source():
    with pytest.raises(ConfigError, match="here: kernel must be above 0 and odd"):
        build(BoolAttnConfig, {"kernel": 2}, source="here")
