"""The command on a card makes the same settings again, whoever started the run."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from boolattn.errors import ConfigError
from boolattn.reproduction.requests import RunRequest, resolve
from boolattn.training.command import difference, finish_command, pretrain_command, train_command
from boolattn.training.launch import Launch, pretrain, train
from boolattn.training.preset_files import load_preset
from boolattn.training.towers import make_towers
from experiments.registry import registry


def read_back(line, first="train"):
    """Load the preset that a command line names, with its changes."""
    words = shlex.split(line)
    changes = [value for word, value in pairwise(words) if word == "--set"]
    return load_preset(words[words.index("--preset") + 1], changes, first=first)


def test_the_command_of_every_system_gives_its_settings_again():
    changes = ("plugin.layers=[0, 3]", "train.captured=none")
    for system in registry().systems.values():
        if system.kind == "removed":
            continue
        for dataset in system.datasets or ("taxa", "quest-intro"):
            request = RunRequest(
                systems=[system.name], datasets=[dataset], seeds=[42], changes=changes
            )
            [spec] = request.specs(registry())
            wanted = resolve(spec, request)
            *heads, line = train_command(wanted, pretrained=Path("x/model")).splitlines()
            again = read_back(line)
            assert again.pretrain == load_preset(wanted.name).pretrain
            for table in ("model", "plugin", "data", "train", "compose"):
                assert getattr(again, table) == getattr(wanted, table), (system.name, table)
            [heads] = heads
            taught = read_back(heads, first="pretrain")
            assert (taught.plugin, taught.pretrain) == (wanted.plugin, wanted.pretrain)


def test_a_setting_that_may_be_left_out_is_called_none():
    assert load_preset("minilm-taxa", ["rank=none"]).plugin.rank is None
    assert load_preset("minilm-taxa", ["captured=none"]).train.captured == "none"
    line = pretrain_command(load_preset("minilm-taxa", ["rank=none"]))
    assert line == "boolattn pretrain --preset minilm-taxa --set plugin.rank=none --out heads"
    with pytest.raises(ConfigError, match="batch_size must be of type int, got 'none'"):
        load_preset("minilm-taxa", ["batch_size=none"])


def test_folders_go_by_their_last_name(tmp_path):
    encoder = tmp_path / "bert-base-uncased"
    encoder.mkdir()
    preset = load_preset("bert-base-taxa", [f"model.encoder={encoder}", "seed=42"])
    line = train_command(preset, data=tmp_path / "my data", rankings=tmp_path / "bm25.json")
    assert line == (
        "boolattn train --preset bert-base-taxa --set train.seed=42 "
        "--data 'my data' --rankings bm25.json --out run"
    )
    model = tmp_path / "first" / "model"
    model.mkdir(parents=True)
    (model / "modules.json").write_text("[]")
    [line] = train_command(preset, pretrained=model).splitlines()
    assert line.endswith("--set train.seed=42 --pretrained first/model --out run")
    assert finish_command(preset, model).endswith("--pretrained first/model --out run")


def test_own_settings_are_written_against_the_nearest_preset(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("[data]\nname = 'beir'\n[train]\nbatch_size = 7\n")
    own = load_preset(str(path))
    base, changes = difference(own)
    again = load_preset(base, changes)
    assert {**again.to_dict(), "name": "own"} == own.to_dict()
    assert "--data FOLDER" in train_command(own)


def test_the_card_names_the_heads_own_settings_and_not_what_was_typed(
    preset, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.argv", ["worker", "--secret"])
    heads = preset("pretrain.seed=5", "pretrain.triplet_weight=0.0")
    pretrain(heads, Launch(out=tmp_path / "heads"))
    chosen = preset(max_steps=1, save_every=1, evaluate_every=1, keep="last")
    launch = Launch(out=tmp_path / "run", pretrained=tmp_path / "heads" / "model")
    result = train(chosen, launch, corpus)
    card = (result.model / "README.md").read_text()
    taught, line = card.partition("```sh\n")[2].partition("\n```")[0].splitlines()
    assert read_back(taught, first="pretrain").pretrain == heads.pretrain
    assert read_back(line).train == chosen.train
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert written["command"] == f"{taught}\n{line}"
    assert "secret" not in card
    assert str(tmp_path) not in card


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.pooling=cls", "its pooling is mean, not cls; --set model.pooling=mean"),
        ("model.similarity=dot", "its similarity is cosine, not dot"),
        ("model.is_shared=false", "its is_shared is True, not False"),
        ("model.query_length=16", "its query_length is 32, not 16"),
        ("model.use_plugin=false", "it has a plug-in"),
        ("plugin.gate=label", "its plug-in has other settings"),
    ],
)
def test_towers_of_another_model_are_refused(preset, tmp_path, change, message):
    folder = tmp_path / "model"
    make_towers(preset()).save_pretrained(str(folder))
    assert make_towers(preset(), folder) is not None
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
    with pytest.raises(ConfigError, match="cannot read the model"):
        make_towers(preset(), folder)
