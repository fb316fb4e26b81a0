"""The command that measures the query parser of a model."""

from __future__ import annotations

import json

import pytest

from experiments.__main__ import main
from experiments.parsing import accuracy as parse_accuracy
from experiments.parsing.queries import cue_word_names, unseen_queries


@pytest.fixture
def some(monkeypatch):
    """Every ninth query and every twentieth name: all of them take seconds."""
    monkeypatch.setattr(parse_accuracy, "unseen_queries", lambda: unseen_queries()[::9])
    monkeypatch.setattr(parse_accuracy, "cue_word_names", lambda: cue_word_names()[::20])


@pytest.mark.usefixtures("some")
def test_the_shipped_model(capsys):
    assert main(["parsing", "shipped"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split("|")[1].strip(): line.split("|")[2:] for line in lines if "|" in line}
    assert int(rows["names"][0]) == 18
    assert int(rows["all"][0]) == len(unseen_queries()[::9])
    assert int(rows["taxa"][0]) + int(rows["unseen domains"][0]) == int(rows["all"][0])
    # Better than without a parser, which is right on plain queries only.
    assert float(rows["all"][1]) > int(rows["plain"][0]) / int(rows["all"][0])


def test_an_unknown_parser_is_one_line(tmp_path, capsys):
    assert main(["parsing", str(tmp_path / "none")]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_a_split_of_a_benchmark(tmp_path, capsys):
    rows = [
        ("moths of Borneo but not Sumatra", "_ that are not _", [[[0, 15]], [[0, 8], [24, 31]]]),
        ("moths of Borneo or Java", "_ or _", [[[0, 15]], [[0, 8], [19, 23]]]),
        ("Romeo and Juliet", "_ that are also _", [[[0, 5]], [[10, 16]]]),
    ]
    path = tmp_path / "queries.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for text, template, spans in rows:
            operands = [{"text": "", "spans": own} for own in spans]
            row = {"id": text, "text": text, "template": template, "operands": operands}
            row |= {"operators": [], "gold": [], "excluded": [], "partial": []}
            row |= {"domain": "", "wording": ""}
            file.write(json.dumps(row) + "\n")
    assert main(["validation", "shipped", "--queries", f"own={path}"]) == 0
    # The name is left alone, whatever its label says.
    assert "| own | 3 | .667 |" in capsys.readouterr().out
    assert main(["validation", "shipped", "--queries", str(path)]) == 2
    assert "names no owner" in capsys.readouterr().err
    path.write_text('{"id": "a"}\n')
    assert main(["validation", "shipped", "--queries", f"own={path}"]) == 2
    assert f"{path}:1" in capsys.readouterr().err
