"""Checkpoints: whole or not at all, and only for the model they were made of."""

from __future__ import annotations

import errno
import json

import pytest
import torch
from torch import nn

from boolattn.errors import ConfigError, DataError
from boolattn.training.retrieval import checkpoints
from boolattn.training.retrieval.checkpoints import (
    State,
    drop_old,
    last_checkpoint,
    load_state,
    load_weights,
    write_checkpoint,
)


class Shared(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(width, 2)
        self.second = self.first


def _write(folder, step, model=None):
    model = model or Shared()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.first(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    state = State(optimizer.state_dict(), schedule.state_dict(), {"cpu.0": torch.get_rng_state()})
    write_checkpoint(
        folder, step, model, state, lambda draft: (draft / "more.json").write_text("{}")
    )
    return model, optimizer, schedule


def test_everything_comes_back(tmp_path):
    model, optimizer, schedule = _write(tmp_path, 5)
    drawn = torch.get_rng_state()
    path = last_checkpoint(tmp_path)
    other = Shared()
    load_weights(path, other)
    assert torch.equal(other.second.weight, model.first.weight)
    state = load_state(path)
    fresh = torch.optim.AdamW(other.parameters(), lr=0.5)
    fresh.load_state_dict(dict(state.optimizer))
    assert fresh.param_groups[0]["lr"] == 0.1
    assert torch.equal(
        fresh.state[other.first.weight]["exp_avg"], optimizer.state[model.first.weight]["exp_avg"]
    )
    assert state.scheduler["last_epoch"] == schedule.last_epoch
    assert torch.equal(state.random["cpu.0"], drawn)
    assert (path / "more.json").is_file()


def test_no_pickle_is_written(tmp_path):
    _write(tmp_path, 5)
    endings = {path.suffix for path in last_checkpoint(tmp_path).iterdir()}
    assert endings == {".safetensors", ".json"}


@pytest.mark.parametrize("failing", ["model.safetensors", "optimizer.safetensors"])
def test_a_full_disk_leaves_the_last_good_one(tmp_path, monkeypatch, failing):
    _write(tmp_path, 1)
    own = checkpoints.save_file

    def full(tensors, path, *args, **kwargs):
        own(tensors, path, *args, **kwargs)
        if path.name == failing:
            path.write_bytes(path.read_bytes()[:20])
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_file", full)
        with pytest.raises(
            DataError, match=r"No space left on device; the last complete one is .*0001"
        ):
            _write(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-0000001"]
    load_weights(last_checkpoint(tmp_path), Shared())


def test_a_kill_in_the_middle_leaves_the_last_good_one(tmp_path, monkeypatch):
    _write(tmp_path, 1)

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    # Nothing is tidied up after a kill.
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.shutil, "rmtree", lambda *args, **kwargs: None)
        patch.setattr(checkpoints.json, "dumps", killed)
        with pytest.raises(KeyboardInterrupt):
            _write(tmp_path, 2)
    assert (tmp_path / "checkpoint-0000002.part").is_dir()
    assert last_checkpoint(tmp_path).name == "checkpoint-0000001"
    _write(tmp_path, 2)
    assert last_checkpoint(tmp_path).name == "checkpoint-0000002"
    assert not (tmp_path / "checkpoint-0000002.part").exists()


def test_a_damaged_one_is_skipped(tmp_path, caplog):
    _write(tmp_path, 1)
    _write(tmp_path, 2)
    file = tmp_path / "checkpoint-0000002" / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert last_checkpoint(tmp_path).name == "checkpoint-0000001"
    assert "incomplete" in caplog.text
    assert last_checkpoint(tmp_path / "nowhere") is None


def test_old_ones_go(tmp_path):
    for step in (1, 2, 10):
        _write(tmp_path, step)
    drop_old(tmp_path, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint-0000002",
        "checkpoint-0000010",
    ]


def test_another_model_is_refused(tmp_path):
    _write(tmp_path, 1)
    path = last_checkpoint(tmp_path)
    with pytest.raises(ConfigError, match=r"another model: first.weight is \(2, 3\) there and"):
        load_weights(path, Shared(4))
    with pytest.raises(ConfigError, match=r"another model: only this model has 0.bias"):
        load_weights(path, nn.Sequential(nn.Linear(3, 2)))


def test_damage_is_named(tmp_path):
    _write(tmp_path, 1)
    path = last_checkpoint(tmp_path)
    (path / "state.json").write_text(json.dumps({"optimizer": []}))
    with pytest.raises(DataError, match=r"state.json is damaged"):
        load_state(path)
    (path / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"model.safetensors is damaged"):
        load_weights(path, Shared())
