"""The queries for model selection of the parser: apart from test and training, errors by kind."""

from __future__ import annotations

import pytest

from boolattn.query.syntax import parse
from experiments.__main__ import main
from experiments.parser_queries.natural import natural_queries
from experiments.parser_queries.wordings import table
from experiments.parsing.accuracy import ERRORS, error_kind
from experiments.parsing.queries import cue_word_names, unseen_queries, validation_queries


def test_no_query_is_a_test_query_or_a_written_training_query():
    own = {query.labelled.text.casefold() for query in validation_queries()}
    assert len(own) == len(validation_queries())
    assert not own & {query.labelled.text.casefold() for query in unseen_queries()}
    natural = [*natural_queries(), *natural_queries(held_out=True)]
    assert not own & {query.labelled().text.casefold() for query in natural}
    names = {name.name.casefold() for name in cue_word_names()}
    names |= {
        name.casefold() for part in table("plain")["names"].values() for name in part["train"]
    }
    assert not {name for name in names for text in own if name in text and len(name.split()) > 1}


def test_every_kind_has_queries_and_exclusions_are_negated():
    kinds = {}
    for query in validation_queries():
        kinds.setdefault(query.kind, []).append(query.labelled.parsed)
    assert all(parsed.is_plain for kind in ("name", "plain") for parsed in kinds[kind])
    assert all(sum(parsed.is_negated) == 1 for parsed in kinds["exclusion"])
    assert all(sum(parsed.is_negated) > 1 for parsed in kinds["exclusions"])
    assert {gap.level for parsed in kinds["nested"] for gap in parsed.gaps} == {1, 2, 3}


@pytest.mark.parametrize(
    ("expected", "parsed", "error"),
    [
        ("a", "a OR b", "taken apart"),
        ("a OR b", "a", "left whole"),
        ("a OR b", "a OR b OR c", "number of operands"),
        ("a AND NOT b", "a AND b", "negation"),
        ("a AND b", "a OR b", "joined otherwise"),
        ("a AND NOT b", "x AND NOT y", ""),
    ],
)
def test_errors_have_kinds(expected, parsed, error):
    assert error_kind(parse(expected), parse(parsed)) == error
    assert error in ("", *ERRORS)


def test_errors_are_counted_and_shown(capsys):
    assert main(["validation", "shipped", "--errors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    n_wrong = sum(map(int, cells[6:]))
    assert cells[:2] == ["all", str(len(validation_queries()))]
    assert float(cells[2]) == pytest.approx(1 - n_wrong / int(cells[1]), abs=0.001)
    assert n_wrong == sum(" -> " in line for line in lines) > 0
