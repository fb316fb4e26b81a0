"""Every preset runs from one command line, with a tiny encoder and real file formats."""

from __future__ import annotations

import json
import shutil

import pytest
from sentence_transformers import SentenceTransformer

from boolattn.data.beir import write_beir
from boolattn.training.settings import load_preset, preset_names
from tests.reproduction.tiny import QUEST_INTRO, make_queries, write_quest, write_taxa

#: Makes a run short; everything else is the preset's.
SMALL = {
    "pretrain": ("pretrain.max_steps=1", "n_sentences=12", "batch_size=4", "n_held_out=4"),
    "train": (
        "train.max_steps=2",
        "batch_size=2",
        "warmup_steps=0",
        "evaluate_every=1",
        "n_validation_documents=8",
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder for each data set that a preset names."""
    home = tmp_path_factory.mktemp("data")
    write_taxa(home / "taxa")
    write_quest(home / "quest")
    shutil.copytree(QUEST_INTRO, home / "quest-intro")
    documents, queries = make_queries()
    write_beir(home / "beir", documents, {"train": queries[::2], "dev": queries[1::2]})
    return home


@pytest.fixture
def run(command, capsys):
    """Run a command line; return what it prints."""

    def start(*words):
        assert command(*words) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return start


def _presets():
    """Return every preset; of those that differ in numbers only, most are slow tests."""
    fast = ("bert-base-quest", "bge-small-general")
    return [
        name if name in fast else pytest.param(name, marks=pytest.mark.slow)
        for name in preset_names()
    ]


@pytest.mark.parametrize("name", _presets())
def test_a_preset_runs_from_pretraining_to_a_model(
    name, data, encoder_folder, tmp_path, run, caplog
):
    same = [f"model.encoder={encoder_folder}", "train.needs_gpu=false"]
    same += ["query_length=32", "document_length=32"]
    if load_preset(name).data.validation == "generated_choice":
        same += ["data.validation=val"]  # too few categories for a third split

    def sets(verb):
        return [word for change in (*same, *SMALL[verb]) for word in ("--set", change)]

    heads, out = tmp_path / "heads", tmp_path / "out"
    folder = data / load_preset(name).data.name
    words = ["--preset", name, *sets("train"), "--data", folder]
    if load_preset(name).model.use_plugin:
        words += ["--pretrained", heads / "model"]
    found = run("pretrain", "--preset", name, *sets("pretrain"), "--out", heads)
    assert 0 <= found["unseen_cue_f1"] <= 1
    result = run("train", *words, "--out", out)
    assert result["steps"] == 2
    assert result["loss"] > 0
    assert "pretraining is skipped" not in caplog.text
    if name == "bert-base-quest":
        words.remove("--pretrained")
        words.remove(heads / "model")
        run("train", *words, "--out", tmp_path / "untrained")
        hint = "boolattn pretrain --preset bert-base-quest --out heads, then train with --pretr"
        assert hint in caplog.text
    towers = SentenceTransformer(str(out / "model"), local_files_only=True)
    assert towers.encode_query(["moths of borneo but not peru"]).shape == (1, 32)
    card = (out / "model" / "README.md").read_text()
    assert f"boolattn train --preset {name} " in card
    assert f"preset {name}" in card


@pytest.mark.parametrize("name", preset_names())
def test_a_missing_gpu_is_one_line(name, tmp_path, command, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    if not load_preset(name).train.needs_gpu:
        assert "bert" not in name
        assert name != "boolquestions"
        return
    for verb in ("pretrain", "train"):
        assert command(verb, "--preset", name, "--out", tmp_path / "run") == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"preset {name} needs a GPU and there is none" in error
        assert not (tmp_path / "run").exists()
