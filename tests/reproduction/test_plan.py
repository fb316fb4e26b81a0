"""What is finished is not done again, and what was made in another way does not pass for it."""

from __future__ import annotations

import json

import pytest

from boolattn.errors import ConfigError
from boolattn.reproduction.places import Places
from boolattn.reproduction.plan import Wanted, plan
from boolattn.reproduction.runs import Run, RunKey
from boolattn.reproduction.systems import Request, known, resolve


@pytest.fixture
def planned(tmp_path):
    """Plan one system whose finished run lies there, its settings changed by a function."""

    def build(system, change):
        found = known()
        suite, encoder = found.suite("taxa"), found.encoder("minilm")
        preset = resolve(found.system(system), suite, encoder, 0, Request())
        settings = json.loads(json.dumps(preset.to_dict()))
        change(settings)
        Run(RunKey("taxa", "minilm", system, 0), [], {"settings": settings}).save(tmp_path)
        wanted = Wanted(systems=[system], datasets=["taxa"], seeds=[0], done=[tmp_path])
        places = {name: tmp_path / name for name in ("runs", "work", "made")}
        return plan(wanted, Places(**places))

    return build


def test_the_same_settings_are_not_run_again(planned):
    same = planned("composed", lambda settings: settings["model"].update(encoder="elsewhere"))
    assert len(same.finished) == 1
    assert same.tasks == []
    faster = {"chunk": 192, "captured": "none", "n_workers": 3}
    assert planned("composed", lambda settings: settings["train"].update(faster)).finished
    with pytest.raises(ConfigError, match=r"train\.batch_size = 8, not 32"):
        planned("composed", lambda settings: settings["train"].update(batch_size=8))


def test_a_run_from_before_a_setting_was_there_did_without(planned):
    assert planned("composed", lambda settings: settings["compose"].pop("gate_steps")).finished
    with pytest.raises(ConfigError, match=r"compose\.n_natural = 0, not 30000"):
        planned("composed", lambda settings: settings["compose"].pop("n_natural"))


def test_what_a_system_does_not_use_may_differ(planned):
    def other(settings):
        settings["pretrain"]["wide"] = 0.25

    assert planned("plain", other).finished

    def composed(settings):
        settings["compose"]["reading_weight"] = 9.0
        settings["plugin"]["rank"] = 4

    assert planned("plain", composed).finished
    with pytest.raises(ConfigError, match=r"plugin\.rank = 4"):
        planned("corrected-learned", composed)
    with pytest.raises(ConfigError, match=r"compose\.reading_weight = 9\.0"):
        planned("composed", composed)
    with pytest.raises(ConfigError, match=r"pretrain\.wide = 0\.25"):
        planned("corrected-learned", other)
