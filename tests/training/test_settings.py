"""Presets: all load, have the paper's values, and can be changed; old names are read."""

from __future__ import annotations

import pytest

from boolattn.errors import ConfigError
from boolattn.training.settings import TrainSettings, load_preset, preset_names

NAMES = {
    "demo",
    "minilm-taxa",
    "bge-small-general",
    "bge-small-plugin",
    "minilm-quest-intro",
    "bert-base-taxa",
    "bert-base-quest-intro",
    "bert-base-quest",
    "bert-large-quest",
    "boolquestions",
    "boolquestions-large",
}


def test_every_preset_loads():
    assert set(preset_names()) == NAMES
    for name in NAMES:
        assert load_preset(name).name == name


@pytest.mark.parametrize(
    "name", ["bert-base-quest", "bert-large-quest", "boolquestions", "boolquestions-large"]
)
def test_the_papers_values(name):
    preset = load_preset(name)
    train, heads, plugin = preset.train, preset.pretrain, preset.plugin
    assert (preset.model.query_length, preset.model.document_length) == (64, 256)
    assert (train.batch_size, train.n_negatives, train.n_epochs) == (32, 5, 40)
    assert (train.learning_rate, train.weight_decay, train.positives) == (5e-5, 0.01, "drawn")
    assert (train.keep, train.evaluate_every, train.n_logical) == ("best", 0, 0)
    assert (heads.triplet_weight, heads.n_epochs, heads.learning_rate) == (0.2, 1, 1e-5)
    assert (heads.scope_weight, heads.train_embeddings) == (0, True)
    assert (plugin.d_o, plugin.threshold, plugin.window, plugin.sigma) == (10, 0.5, 5, 2)
    assert (plugin.variant, plugin.gate, plugin.gate_temperature) == ("paper", "label", 0.1)


def test_the_recipe_of_the_shipped_model():
    preset = load_preset("minilm-taxa")
    heads, train = preset.pretrain, preset.train
    assert (heads.max_steps, heads.batch_size, heads.learning_rate) == (600, 128, 5e-3)
    assert heads.cue_positive_weight == 5
    assert (train.max_steps, train.batch_size, train.warmup_steps) == (1100, 32, 60)
    assert (train.learning_rate, train.plugin_learning_rate) == (5e-5, 5e-4)
    assert (preset.plugin.gate, preset.plugin.variant) == ("lexicon", "corrected")


def test_set_changes_one_setting():
    preset = load_preset("minilm-taxa", ["seed=42", "gate=learned", "data.size=small"])
    assert (preset.train.seed, preset.pretrain.seed) == (42, 0)
    assert (preset.plugin.gate, preset.data.size) == ("learned", "small")
    heads = load_preset("minilm-taxa", ["max_steps=3"], first="pretrain")
    assert (heads.pretrain.max_steps, heads.train.max_steps) == (3, 1100)
    assert load_preset("demo", ["model.is_shared=False"]).model.is_shared is False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lerning_rate=1", "no setting has that name"),
        ("train.nothing=1", "TrainSettings has no 'nothing'"),
        ("tower.seed=1", "no table 'tower'"),
        ("seed", "takes key=value"),
        ("batch_size=0", "batch_size must be at least 1"),
        ("batch_size=many", "batch_size must be an int, got 'many'"),
        ("batch_size=true", "batch_size must be an int, got True"),
        ("keep=worst", "keep must be one of best, last"),
        ("n_logical=9", "must not exceed n_negatives"),
        ("seed=4294967296", "seed must be at least 0 and at most 4294967295"),
        ("learning_rate=nan", "learning_rate must be a float, got nan"),
        ("sigma=-1", "sigma must be above 0"),
    ],
)
def test_a_wrong_change_is_named(change, message):
    with pytest.raises(ConfigError, match=message):
        load_preset("minilm-taxa", [change])


def test_a_wrong_preset_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no preset 'mini'; there are bert-base"):
        load_preset("mini")
    path = tmp_path / "own.toml"
    with pytest.raises(ConfigError, match="cannot read"):
        load_preset(str(path))
    path.write_text("[training]\n")
    with pytest.raises(ConfigError, match="no table 'training'"):
        load_preset(str(path))
    path.write_text("[train]\nseed = 7\n")
    assert load_preset(str(path)).train.seed == 7
    path.write_text("[train")
    with pytest.raises(ConfigError, match="not TOML"):
        load_preset(str(path))


def test_no_negatives_at_all():
    with pytest.raises(ConfigError, match="there are no negatives"):
        TrainSettings(n_negatives=0, batch_size=1)


def test_a_setting_that_may_be_left_out_is_called_none():
    assert load_preset("minilm-taxa", ["rank=none"]).plugin.rank is None
    assert load_preset("minilm-taxa", ["captured=none"]).train.captured == "none"
    with pytest.raises(ConfigError, match="batch_size must be an int, got 'none'"):
        load_preset("minilm-taxa", ["batch_size=none"])
