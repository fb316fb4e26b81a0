"""QUEST's official files by name: what is missing, what it takes, and going on after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from boolattn.cli import app
from boolattn.errors import BoolattnError, ConfigError
from boolattn.reproduction import reproduce as reproduction
from boolattn.reproduction.reproduce import make_request, run_all
from boolattn.reproduction.requests import Paths, RunRequest
from boolattn.reproduction.runs import Run
from tests.reproduction.tiny import write_quest

#: The paper's preset, made short.
SMALL = (
    *("train.needs_gpu=false", "train.max_steps=2", "train.batch_size=4"),
    *("model.query_length=32", "model.document_length=32", "train.evaluate_every=1"),
    *("pretrain.max_steps=1", "pretrain.n_sentences=16", "pretrain.n_held_out=4"),
    *("pretrain.triplet_weight=0.0",),
)


def command(files, table, *more):
    write_quest(files / "quest") if not (files / "quest").exists() else None
    changes = [part for one in SMALL for part in ("--set", one)]
    names = ("--preset", "bert-base-quest", "--data", files / "quest", "--encoder")
    names += (files / "encoder",)
    return [
        "reproduce",
        table,
        *names,
        "--seeds",
        "0",
        *changes,
        "--out",
        str(files / "out"),
        *more,
    ]


def call(arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)


def test_the_preset_names_data_set_and_encoder(tmp_path):
    request = make_request("table1", "bert-large-quest", "somewhere", "large")
    assert (request.datasets, request.encoders) == (["quest"], ["bert-large"])
    assert str(request.data["quest"]) == "somewhere"
    preset = next(request.runs()).preset
    assert (preset.name, preset.model.encoder) == ("bert-large-quest", "large")
    path = tmp_path / "pairs.toml"
    path.write_text('[data]\nname = "pairs"\n')
    with pytest.raises(ConfigError, match="is for 'pairs', which has no table"):
        make_request("table1", str(path))


def test_the_official_files_make_a_table(files):
    found = call(command(files, "table4"))
    assert "plain towers | ours |" in found.stdout
    assert "BERT-base, QUEST, test; seeds 0" in found.stdout
    # Rows of QUEST can be compared with the paper's.
    assert "must not be compared" not in found.stdout
    [line] = [line for line in found.stderr.splitlines() if "runs to do" in line]
    assert "3 runs to do, 0 finished" in line
    assert "0 runs to do, 3 finished" in call(command(files, "table4")).stderr


@pytest.mark.parametrize("name", ["documents.jsonl", "test.jsonl", "val.jsonl"])
def test_a_missing_file_is_one_line(files, name):
    arguments = command(files, "table1")
    (files / "quest" / name).unlink()
    with pytest.raises(BoolattnError) as caught:
        call(arguments)
    message = str(caught.value)
    assert name in message
    assert "https://storage.googleapis.com/gresearch/quest/" in message
    assert "\n" not in message
    assert not list((files / "out").rglob("*.gz"))


def plain_run(files, *changes):
    """Return a request of one run on tiny data, its settings and its folders."""
    request = RunRequest(
        systems=["plain"],
        datasets=["beir"],
        seeds=[0],
        data={"beir": files / "data"},
        preset=str(files / "tiny.toml"),
        sources={"minilm": str(files / "encoder")},
        changes=["train.max_steps=4", "train.save_every=1", *changes],
    )
    [run] = request.runs()
    return request, run, Paths(runs=files / "out/runs", work=files / "out/work")


def means(path):
    return [row.values["recall@100"].tolist() for row in Run.load(path).results]


@pytest.mark.slow
def test_a_run_goes_on_from_its_last_checkpoint(files, monkeypatch):
    request, run, paths = plain_run(files)
    lines: list[str] = []
    resumed = []
    with monkeypatch.context() as patch:
        patch.setattr(reproduction, "_tower_rankings", lambda *_: 1 / 0)
        assert run_all(request, paths, lines.append) == []
    assert "ZeroDivisionError" in lines[-1]
    steps = reproduction.launch.train

    def train(preset, launch, corpus):
        resumed.append(launch.resume)
        return steps(preset, launch, corpus)

    monkeypatch.setattr(reproduction.launch, "train", train)
    [path] = run_all(request, paths, lines.append)
    # Weights of the checkpoint give the results of a run that was not interrupted.
    whole, _, other = plain_run(files)
    other = replace(other, runs=files / "second/runs", work=files / "second/work")
    [again] = run_all(whole, other, lines.append)
    assert resumed == [True, False]
    assert means(path) == means(again)
    # Nothing is left, and another setting begins anew.
    assert not (paths.work / "models" / str(run.key).replace(" ", "-")).exists()


@pytest.mark.slow
def test_other_settings_do_not_go_on(files, monkeypatch):
    request, _, paths = plain_run(files)
    lines: list[str] = []
    monkeypatch.setattr(reproduction, "_tower_rankings", lambda *_: 1 / 0)
    run_all(request, paths, lines.append)
    monkeypatch.undo()
    request, _, _ = plain_run(files, "train.learning_rate=2e-3")
    [path] = run_all(request, paths, lines.append)
    assert Run.load(path).details["settings"]["train"]["learning_rate"] == 2e-3


@pytest.mark.slow
def test_a_killed_table_goes_on(files):
    more = ("--set", "train.max_steps=60", "--set", "train.save_every=2")
    arguments = [sys.executable, "-m", "boolattn", *command(files, "table4", *more)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as process:
        models = files / "out/work/models"
        while process.poll() is None and not list(models.glob("*/checkpoint.safetensors")):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not list((files / "out/runs").rglob("*-0.jsonl.xz"))
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert "plain towers | ours |" in done.stdout
    again = [*arguments[: -len(more)], *more, "--out", str(files / "whole")]
    subprocess.run(again, capture_output=True, check=True)
    for name in ("plain", "plain-fixed", "plain-bm25"):
        run_file = f"runs/quest/bert-base/{name}-0.jsonl.xz"
        first, second = (means(files / folder / run_file) for folder in ("out", "whole"))
        assert np.array_equal(first, second)
