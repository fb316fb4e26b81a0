"""Checkpoints: whole or not at all, and only for the model they were made of."""

from __future__ import annotations

import errno

import pytest
import torch
from torch import nn

from boolattn.errors import ConfigError, DataError
from boolattn.training import loop
from boolattn.training.loop import RunFolder


class Shared(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(width, 2)
        self.second = self.first


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "checkpoint.safetensors"


def _write(path, step, model=None):
    model = model or Shared()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.first(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    run = RunFolder(path.parent)
    run.history = [{"loss": 0.5, "step": step}]
    run.write_checkpoint(step, model, optimizer)
    return model, optimizer


def _load(path, model=None):
    model = model or Shared()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    run = RunFolder(path.parent)
    return model, optimizer, (run.load_checkpoint(model, optimizer), run.history)


def test_everything_comes_back(path):
    model, optimizer = _write(path, 5)
    drawn = torch.rand(3)
    other, fresh, (step, history) = _load(path)
    assert torch.equal(other.second.weight, model.first.weight)
    assert torch.equal(
        fresh.state[other.first.weight]["exp_avg"], optimizer.state[model.first.weight]["exp_avg"]
    )
    # Learning rates are the loop's.
    assert fresh.param_groups[0]["lr"] == 0.5
    assert (step, history) == (5, [{"loss": 0.5, "step": 5}])
    assert torch.equal(torch.rand(3), drawn)


def test_a_full_disk_leaves_the_last_good_one(path, monkeypatch):
    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    for step, after in ((1, "there is none before it"), (2, "the one before is complete")):
        with monkeypatch.context() as patch:
            patch.setattr(loop, "save_file", full)
            with pytest.raises(DataError, match=rf"at step {step}: .*No space left.*; {after}"):
                _write(path, step)
        _write(path, step)
        assert _load(path)[2][0] == step
        assert list(path.parent.iterdir()) == [path]


def test_another_model_is_refused(path):
    _write(path, 1)
    with pytest.raises(
        ConfigError, match=r"another model: .* first.weight = \(2, 3\), not \(2, 4\)"
    ):
        _load(path, Shared(4))
    with pytest.raises(ConfigError, match=r"another model: .* 0.bias = None, not \(2,\)"):
        _load(path, nn.Sequential(nn.Linear(3, 2)))


def test_damage_is_named(path):
    _write(path, 1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"checkpoint.safetensors is damaged"):
        _load(path)
