"""The command that measures the query parser of a model."""

from __future__ import annotations

import json

import pytest

from experiments.__main__ import main
from experiments.parsing import accuracy as parse_accuracy
from experiments.parsing.test_sets import cue_word_names, unseen_queries


@pytest.fixture
def some(monkeypatch):
    """Every ninth query and every twentieth name: all of them take seconds."""
    monkeypatch.setattr(parse_accuracy, "unseen_queries", lambda: unseen_queries()[::9])
    monkeypatch.setattr(parse_accuracy, "cue_word_names", lambda: cue_word_names()[::20])


@pytest.mark.usefixtures("some")
def test_the_shipped_model(tmp_path, capsys):
    path = tmp_path / "reading.json"
    assert main(["parsing", "shipped", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    table = capsys.readouterr().out
    assert f"{found['names']['misread']} of 18 names were split into operands (film " in table
    assert f"| all | {len(unseen_queries()[::9])} | ." in table
    assert "| plain | " in table
    # Better than without a parser, which is right on plain queries only.
    plain = found["fresh"]["forms"]["plain"]
    assert found["fresh"]["structure"] > plain["n"] / found["fresh"]["n"]


def test_an_unknown_parser_is_one_line(tmp_path, capsys):
    assert main(["reading", str(tmp_path / "none")]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
