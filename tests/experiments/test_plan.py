"""Finished runs are reused if their settings are the same."""

from __future__ import annotations

import pytest

from boolattn.errors import ConfigError
from boolattn.reproduction.reproduce import plan
from boolattn.reproduction.requests import Paths, RunRequest
from boolattn.reproduction.runs import Run, RunKey


@pytest.fixture
def planned(tmp_path):
    """Plan one system whose finished run has settings changed by a function."""

    def build(system, change):
        request = RunRequest(systems=[system], datasets=["taxa"], seeds=[0], done=[tmp_path])
        [run] = request.runs()
        settings = run.preset.to_dict()
        change(settings)
        key = RunKey("taxa", "minilm", system, 0)
        Run(key, [], {"settings": settings}).save(tmp_path)
        return plan(request, Paths(runs=tmp_path / "runs", work=tmp_path / "work"))

    return build


def test_the_same_settings_are_not_run_again(planned):
    same = planned("plain", lambda settings: settings["model"].update(encoder="elsewhere"))
    assert (len(same[0]), same[1]) == (1, [])
    faster = {"chunk": 192, "captured": "none"}
    assert planned("plain", lambda settings: settings["train"].update(faster))[0]
    with pytest.raises(ConfigError, match=r"train\.batch_size = 8, not 32"):
        planned("plain", lambda settings: settings["train"].update(batch_size=8))


def test_settings_that_a_system_does_not_use_may_differ(planned):
    def other(settings):
        settings["pretrain"]["varied_share"] = 0.25

    assert planned("plain", other)[0]

    def small(settings):
        settings["plugin"]["rank"] = 4

    assert planned("plain", small)[0]
    with pytest.raises(ConfigError, match=r"plugin\.rank = 4"):
        planned("corrected-learned", small)
    with pytest.raises(ConfigError, match=r"pretrain\.varied_share = 0\.25"):
        planned("corrected-learned", other)
