"""Finished runs are reused if their settings are the same."""

from __future__ import annotations

import json

import pytest

from boolattn.errors import ConfigError
from boolattn.reproduction.requests import Paths, RunRequest, resolve
from boolattn.reproduction.runs import Run, RunKey
from experiments.plan import make_plan
from experiments.registry import registry


@pytest.fixture
def planned(tmp_path):
    """Plan one system whose finished run has settings changed by a function."""

    def build(system, change, formerly=""):
        request = RunRequest(systems=[system], datasets=["taxa"], seeds=[0], done=[tmp_path])
        [spec] = request.specs(registry())
        settings = json.loads(json.dumps(resolve(spec, request).to_dict()))
        change(settings)
        key = RunKey("taxa", "minilm", formerly or system, 0)
        Run(key, [], {"settings": settings}).save(tmp_path)
        return make_plan(request, Paths(runs=tmp_path / "runs", work=tmp_path / "work"))

    return build


def test_the_same_settings_are_not_run_again(planned):
    same = planned("composed", lambda settings: settings["model"].update(encoder="elsewhere"))
    assert len(same.finished) == 1
    assert same.tasks == []
    faster = {"chunk": 192, "captured": "none", "n_workers": 3}
    assert planned("composed", lambda settings: settings["train"].update(faster)).finished
    with pytest.raises(ConfigError, match=r"train\.batch_size = 8, not 32"):
        planned("composed", lambda settings: settings["train"].update(batch_size=8))


def test_a_setting_that_a_run_lacks_had_its_default(planned):
    assert planned("composed", lambda settings: settings["compose"].pop("gate_steps")).finished
    with pytest.raises(ConfigError, match=r"compose\.n_natural = 0, not 30000"):
        planned("composed", lambda settings: settings["compose"].pop("n_natural"))


def test_a_run_under_a_former_name_is_found(planned):
    assert planned("corrected-frozen", lambda settings: None, formerly="corrected-held").finished


def test_settings_that_a_system_does_not_use_may_differ(planned):
    def other(settings):
        settings["pretrain"]["varied_share"] = 0.25

    assert planned("plain", other).finished

    def composed(settings):
        settings["compose"]["parser_weight"] = 9.0
        settings["plugin"]["rank"] = 4

    assert planned("plain", composed).finished
    with pytest.raises(ConfigError, match=r"plugin\.rank = 4"):
        planned("corrected-learned", composed)
    with pytest.raises(ConfigError, match=r"compose\.parser_weight = 9\.0"):
        planned("composed", composed)
    with pytest.raises(ConfigError, match=r"pretrain\.varied_share = 0\.25"):
        planned("corrected-learned", other)
