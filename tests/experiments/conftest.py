"""Fixtures of the experiments' tests."""

from __future__ import annotations

import pytest

from tests.reproduction.tiny import write_files


@pytest.fixture
def files(tiny_encoder, tokenizer, tmp_path):
    """A folder with a tiny data set, encoder and preset."""
    write_files(tmp_path, tiny_encoder("bert"), tokenizer)
    return tmp_path
