"""Checkpoints: whole or not at all, and only for the model they were made of."""

from __future__ import annotations

import errno

import pytest
import torch
from torch import nn

from boolattn.errors import ConfigError, DataError
from boolattn.training import run_folder
from boolattn.training.run_folder import last_checkpoint, load_checkpoint, write_checkpoint


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
    write_checkpoint(folder, step, model, optimizer, [{"loss": 0.5, "step": step}])
    return model, optimizer


def _load(path, model=None):
    model = model or Shared()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    return model, optimizer, load_checkpoint(path, model, optimizer)


def test_everything_comes_back(tmp_path):
    model, optimizer = _write(tmp_path, 5)
    drawn = torch.rand(3)
    other, fresh, history = _load(last_checkpoint(tmp_path))
    assert torch.equal(other.second.weight, model.first.weight)
    assert torch.equal(
        fresh.state[other.first.weight]["exp_avg"], optimizer.state[model.first.weight]["exp_avg"]
    )
    # Learning rates are the loop's.
    assert fresh.param_groups[0]["lr"] == 0.5
    assert history == [{"loss": 0.5, "step": 5}]
    assert torch.equal(torch.rand(3), drawn)


def test_a_full_disk_leaves_the_last_good_one(tmp_path, monkeypatch):
    _write(tmp_path, 1)

    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "save_file", full)
        with pytest.raises(
            DataError, match=r"No space left on device; the last complete one is .*0001"
        ):
            _write(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-0000001.safetensors"]
    _load(last_checkpoint(tmp_path))


def test_a_kill_in_the_middle_leaves_the_last_good_one(tmp_path, monkeypatch):
    _write(tmp_path, 1)

    def killed(tensors, path, metadata):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "save_file", killed)
        with pytest.raises(KeyboardInterrupt):
            _write(tmp_path, 2)
    assert last_checkpoint(tmp_path).name == "checkpoint-0000001.safetensors"
    _write(tmp_path, 2)
    assert last_checkpoint(tmp_path).name == "checkpoint-0000002.safetensors"
    assert len(list(tmp_path.iterdir())) == 2
    assert last_checkpoint(tmp_path / "nowhere") is None


def test_old_ones_go(tmp_path):
    for step in (1, 2, 10):
        _write(tmp_path, step)
    names = [f"checkpoint-{step:07d}.safetensors" for step in (2, 10)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_another_model_is_refused(tmp_path):
    _write(tmp_path, 1)
    path = last_checkpoint(tmp_path)
    with pytest.raises(ConfigError, match=r"another model: first.weight is \(2, 3\) there and"):
        _load(path, Shared(4))
    with pytest.raises(ConfigError, match=r"another model: 0.bias is None there"):
        _load(path, nn.Sequential(nn.Linear(3, 2)))


def test_damage_is_named(tmp_path):
    _write(tmp_path, 1)
    path = last_checkpoint(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"0001.safetensors is damaged"):
        _load(path)
