"""Fixtures of the experiments' tests."""

from __future__ import annotations

import pytest

from boolattn.errors import BoolattnError
from experiments import runner
from experiments.pool import Outcome
from tests.reproduction.tiny import write_files


@pytest.fixture
def files(tiny_encoder, tokenizer, tmp_path):
    """A folder with a tiny data set, encoder and preset."""
    write_files(tmp_path, tiny_encoder("bert"), tokenizer)
    return tmp_path


@pytest.fixture
def in_process(monkeypatch):
    """Run jobs in this process: workers take seconds to start."""

    class Here:
        def __init__(self, paths, n_workers, **_):
            self.paths = paths

        def run(self, tasks):
            outcome = Outcome()
            for task in tasks:
                assert all(name in outcome.done for name in task.needs)
                try:
                    outcome.done[task.name] = task.job.run(self.paths)
                except BoolattnError as error:
                    outcome.failed[task.name] = str(error)
            return outcome

    monkeypatch.setattr(runner, "Pool", Here)
