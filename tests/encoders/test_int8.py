from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from boolattn.encoders import int8
from boolattn.encoders.int8 import LEVELS, dequantise, quantise, read_tensors, write_parts
from boolattn.errors import DataError


@pytest.mark.parametrize("axis", [0, 1])
def test_rounding_is_within_half_a_step_of_each_channel(axis):
    matrix = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
    matrix[3] *= 100
    values, scale = quantise(matrix, axis)
    assert values.dtype == np.int8
    assert np.abs(values).max() == LEVELS
    assert (np.abs(dequantise(values, scale) - matrix) <= scale / 2 * 1.0001).all()
    # One scale for each channel, so a large row does not spoil the others.
    assert scale.shape == ((40, 1) if axis == 0 else (30,))
    error = np.abs(dequantise(values, scale) - matrix)[4:].max()
    assert bool(error < 0.05) is (axis == 0)


def test_rounding_twice_changes_nothing():
    matrix = np.random.default_rng(1).normal(size=(33, 17)).astype(np.float32)
    once = quantise(matrix, 1)
    twice = quantise(dequantise(*once), 1)
    assert np.array_equal(once[0], twice[0])
    assert np.array_equal(once[1], twice[1])


def test_zeros_have_a_scale():
    values, scale = quantise(np.zeros((4, 3), np.float32), 1)
    assert not values.any()
    assert (scale == 1).all()


def test_parts_hold_every_tensor_where_they_say(tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "MAX_PART", 1000)
    tensors = {f"t{n}": np.full((100,), n, np.float32) for n in range(6)}
    places = write_parts(tensors, tmp_path)
    assert len({file for file, _, _ in places.values()}) == 3
    for name, (file, offset, size) in places.items():
        found = np.frombuffer((tmp_path / file).read_bytes()[offset : offset + size], np.float32)
        assert np.array_equal(found, tensors[name])
        assert np.array_equal(load_file(tmp_path / file)[name], tensors[name])


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "weights-0.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(DataError, match=r"weights-0.safetensors is damaged"):
        read_tensors([path])
    (tmp_path / "weights.json").write_text(json.dumps({})[:1])
    with pytest.raises(DataError, match=r"weights.json is damaged"):
        int8.read_map(tmp_path)
