"""The command that says how well one model reads."""

from __future__ import annotations

import json

import pytest

from boolattn.data.parser_tests import cue_word_names, unseen_queries
from boolattn.encoder import build_towers
from boolattn.evaluation import parse_accuracy as reading
from boolattn.reproduction.__main__ import main


@pytest.fixture
def some(monkeypatch):
    """Every ninth query and every twentieth name: all of them take seconds."""
    monkeypatch.setattr(reading, "unseen_queries", lambda: unseen_queries()[::9])
    monkeypatch.setattr(reading, "cue_word_names", lambda: cue_word_names()[::20])


@pytest.mark.usefixtures("some")
def test_the_shipped_model_reads(tmp_path, capsys):
    path = tmp_path / "reading.json"
    assert main(["reading", "shipped", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    said = capsys.readouterr().out
    assert f"{found['names']['misread']} of 18 names were taken apart (film " in said
    assert f"| all | {len(unseen_queries()[::9])} | ." in said
    assert "| plain | " in said
    # Better than a model that reads nothing, which has only the plain ones right.
    plain = found["fresh"]["forms"]["plain"]
    assert found["fresh"]["structure"] > plain["n"] / found["fresh"]["n"]


def test_a_model_that_cannot_read_is_refused(tiny_encoder, tokenizer, tmp_path, capsys):
    build_towers(tiny_encoder("bert"), tokenizer=tokenizer).save_pretrained(str(tmp_path / "m"))
    assert main(["reading", str(tmp_path / "m")]) == 2
    assert "has no reader: to it, every text is one operand" in capsys.readouterr().err
    assert main(["reading", str(tmp_path / "none")]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
