"""A tiny data set in a folder, a tiny encoder on disk, and a preset that fits them."""

from __future__ import annotations

import pytest

from boolattn.data.beir import write_beir
from tests.reproduction.tiny import make_queries

PRESET = """
[model]
encoder = "unused"
query_length = 32
document_length = 32
[plugin]
rank = 4
use_noise = false
[data]
name = "beir"
validation = ""
[pretrain]
n_sentences = 16
batch_size = 8
max_steps = 1
n_held_out = 4
triplet_weight = 0.0
[train]
batch_size = 4
max_steps = 2
n_negatives = 2
n_logical = 1
learning_rate = 1e-3
keep = "last"
[compose]
n_generated = 0
n_readings = 0
"""


@pytest.fixture
def files(tiny_encoder, tokenizer, tmp_path):
    """The folder ``data``, the folder ``encoder`` and the file ``tiny.toml``."""
    tiny_encoder("bert").save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    (tmp_path / "tiny.toml").write_text(PRESET)
    documents, queries = make_queries()
    splits = {"train": queries[::2], "test": queries[1::2]}
    write_beir(tmp_path / "data", documents, splits)
    return tmp_path


@pytest.fixture
def in_process(monkeypatch):
    """Do the jobs here instead of in workers, which take seconds to start."""
    from boolattn.errors import BoolattnError
    from boolattn.reproduction import running
    from boolattn.reproduction.pool import Outcome

    class Here:
        def __init__(self, places, n_workers, **_):
            self.places = places

        def run(self, tasks):
            outcome = Outcome()
            for task in tasks:
                assert all(name in outcome.done for name in task.needs)
                try:
                    outcome.done[task.name] = task.work.do(self.places)
                except BoolattnError as error:
                    outcome.failed[task.name] = str(error)
            return outcome

    monkeypatch.setattr(running, "Pool", Here)
