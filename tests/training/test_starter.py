"""``boolattn train``: without optional packages, and on two processes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from boolattn.data.beir import write_beir

if TYPE_CHECKING:
    from pathlib import Path

#: Packages that a training machine does not have.
LACKING = ("zstandard", "typer", "rich", "datasets", "matplotlib", "marisa_trie")
#: Starts a training without them.
START = """
import runpy, sys, importlib.machinery as machinery
lacking = {lacking!r}
own = machinery.PathFinder.find_spec
def find(name, path=None, target=None):
    return None if name.split('.')[0] in lacking else own(name, path, target)
machinery.PathFinder.find_spec = find
import boolattn.training.pretrain, boolattn.data.catalog
try:
    runpy.run_module("boolattn", run_name="__main__")
finally:
    assert not set(lacking) & set(sys.modules)
"""

PRESET = """
[model]
encoder = "{encoder}"
query_length = 32
document_length = 32
[plugin]
gate = "lexicon"
rank = 4
use_noise = false
[data]
name = "beir"
[pretrain]
n_sentences = 16
batch_size = 8
max_steps = 1
n_held_out = 8
[train]
batch_size = 4
max_steps = 4
n_negatives = 2
learning_rate = 1e-3
evaluate_every = 2
n_validation_documents = 0
"""


@pytest.fixture
def files(tiny_encoder, tokenizer, dataset, tmp_path):
    """A preset without dropout or noise, and the data set as a BEIR folder."""
    encoder = tiny_encoder("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    encoder.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    (tmp_path / "tiny.toml").write_text(PRESET.format(encoder=tmp_path / "encoder"))
    train = dataset.splits["train"][12:]
    splits = {"train": train, "validation": dataset.splits["validation"]}
    write_beir(tmp_path / "data", dataset.documents, splits)
    return tmp_path


def _arguments(files, out, *more):
    preset, data = str(files / "tiny.toml"), str(files / "data")
    return ["train", "--preset", preset, "--data", data, "--out", str(files / out), *more]


def _losses(run: Path) -> list[float]:
    with (run / "metrics.csv").open() as handle:
        return [float(row["value"]) for row in csv.DictReader(handle) if row["name"] == "loss"]


@pytest.mark.slow
def test_two_processes_that_lack_packages_give_the_losses_of_one(files, command, capsys):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    (files / "start.py").write_text(START.format(lacking=LACKING))
    start = [*torchrun, "--nproc-per-node", "2", str(files / "start.py")]
    process = subprocess.Popen(
        [*start, *_arguments(files, "two")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    try:
        assert command(*_arguments(files, "one")) == 0
        printed, complaint = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, complaint[-3000:]
    assert json.loads(printed)["steps"] == 4
    assert json.loads(capsys.readouterr().out)["steps"] == 4
    one, two = _losses(files / "one"), _losses(files / "two")
    assert len(one) == 4
    # Weights moved: a wrong gradient would show in the later losses.
    assert one[-1] != pytest.approx(one[0], abs=1e-2)
    assert two == pytest.approx(one, abs=1e-5)


def test_an_error_is_one_line(files, command, capsys):
    assert command(*_arguments(files, "run", "--set", "batch_size=0")) == 2
    error = capsys.readouterr().err
    assert error.startswith("boolattn: ")
    assert error.count("\n") == 1


def test_a_training_starts_from_a_pretraining(files, command, capsys):
    preset = ["--preset", files / "tiny.toml"]
    assert command("pretrain", *preset, "--out", files / "heads") == 0
    capsys.readouterr()
    options = ["--data", files / "data", "--pretrained", files / "heads" / "model"]
    assert command("train", *preset, *options, "--set", "max_steps=1", "--out", files / "run") == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 1
