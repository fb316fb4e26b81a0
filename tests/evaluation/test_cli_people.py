"""``boolattn evaluate --on people``: verdicts by collection and by type."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from boolattn.cli import app
from boolattn.data import people
from boolattn.data.people import PeopleQuery, load_collection
from boolattn.data.records import Document
from boolattn.errors import ConfigError
from tests.search import word_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people") / "words"
    word_model.retriever().towers.save_pretrained(str(folder))
    return folder


def run(model, *options):
    return CliRunner().invoke(app, ["evaluate", str(model), "--on", "people", *options])


def rows_of(done):
    """The cells of the table's rows, by their names."""
    rows = (line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:])
    return {name: cells for name, *cells in rows}


def small(_name):
    """Three documents, and a query for each verdict; one query is no query."""
    documents = [Document(id=name, text=f"{name} moths") for name in ("red", "old", "large")]
    queries = [
        ("moths NOT red", "not", {"old", "large"}, {"red"}),
        ("red moths", "plain", {"old"}, set()),
        ("red moths", "plain", {"old"}, {"red"}),
        ("moths AND (red", "and", {"red"}, set()),
    ]
    return documents, [
        PeopleQuery(text, kind, frozenset(relevant), frozenset(excluded), frozenset())
        for text, kind, relevant, excluded in queries
    ]


def test_verdicts_are_counted_by_collection_and_type(model, monkeypatch):
    monkeypatch.setattr(people, "SPLITS", {"validation": ("a",), "test": ("a", "b")})
    monkeypatch.setattr(people, "load_collection", small)
    done = run(model)
    assert done.exit_code == 0, done.output
    assert rows_of(done) == {
        "a": ["1", "2", "1", "4", ".250"],
        "and": ["0", "1", "0", "1", ".000"],
        "not": ["1", "0", "0", "1", "1.000"],
        "plain": ["0", "1", "1", "2", ".000"],
        "all": ["1", "2", "1", "4", ".250"],
    }
    # What was refused is told.
    assert "wrong: 'moths AND (red': column 11: this parenthesis is never closed" in done.stderr
    table = run(model, "--split", "test").stdout
    assert "| b | 1 | 2 | 1 | 4 | .250 |" in table
    assert table.splitlines()[-1] == "| all | 2 | 4 | 2 | 8 | .250 |"


def test_every_query_of_a_real_collection_is_judged(model, monkeypatch):
    documents, queries = load_collection("recipes")
    documents, queries = documents[:30], queries[::3]
    monkeypatch.setattr(people, "SPLITS", {"validation": ("recipes",)})
    monkeypatch.setattr(people, "load_collection", lambda _: (documents, queries))
    rows = rows_of(run(model))
    assert rows["recipes"][3] == str(len(queries))
    assert rows.keys() == {query.type for query in queries} | {"all", "recipes"}


def test_an_unknown_split_is_refused(model):
    done = run(model, "--split", "train")
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "people has no split 'train'; there are validation, test"
