"""The names that hold a cue word: enough of them, and few that training sees."""

from __future__ import annotations

import re

import pytest

from boolattn.files import package_table
from boolattn.query.tokens import find_cues
from experiments.parser_queries.generator import generate_queries
from experiments.parser_queries.natural import natural_queries
from experiments.parser_queries.wordings import table
from experiments.parsing.queries import cue_word_names
from tests.parses import positive

CUES = re.compile(r"\b(and|or|not|no|non|never|nor|without|but|also|both|\w+n't)\b", re.IGNORECASE)
#: Names that also occur in natural.txt; no result depends on them.
IN_NATURAL = {"Argyll and Bute"}


def folded(text):
    text = text.lower().replace("&", "and").replace("'", "")
    return f" {re.sub(r'[^a-z0-9]+', ' ', text).strip()} "


def strings(node):
    if isinstance(node, str):
        return [node]
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [text for value in values for text in strings(value)]


def test_there_are_enough_and_every_one_holds_a_cue_word():
    assert len(cue_word_names()) >= 300
    assert len({folded(name.name) for name in cue_word_names()}) == len(cue_word_names())
    assert all(CUES.search(name.name) for name in cue_word_names())
    assert all(folded(name.name) in folded(name.labelled.text) for name in cue_word_names())
    assert len({name.kind for name in cue_word_names()}) >= 6
    # A lexicon sees an operator in most of them: that is what they are for.
    assert sum(bool(find_cues(name.labelled.text)) for name in cue_word_names()) > 0.8 * len(
        cue_word_names()
    )


def test_each_query_is_one_operand():
    for marked in (name.labelled for name in cue_word_names()):
        assert marked.parsed.is_plain
        ((start, end),) = positive(marked.parsed)[0]
        assert (start, marked.text[end:].strip("?!")) == (0, "")


def every_table():
    yield package_table("experiments.sentences", "contents.toml")
    yield package_table("benchmark_data.taxa", "places.toml")
    for name in ("wordings", "plain", "contents"):
        yield table(name)


def test_no_name_stands_in_a_table_of_training():
    said = "\n".join(folded(text) for part in every_table() for text in strings(part))
    assert not [name.name for name in cue_word_names() if folded(name.name) in said]


def test_no_name_of_training_is_part_of_one():
    plain = table("plain")
    trained = [folded(text) for text in strings(plain["names"]) + strings(plain["expressions"])]
    inside = [(n.name, t) for n in cue_word_names() for t in trained if t in folded(n.name)]
    assert not inside


def test_the_names_that_natural_queries_hold_are_known():
    said = "\n".join(folded(one.labelled().text) for one in natural_queries())
    assert {name.name for name in cue_word_names() if folded(name.name) in said} == IN_NATURAL


@pytest.mark.parametrize("held_out", [False, True])
def test_no_generated_query_holds_a_name(held_out):
    said = "\n".join(folded(m.text) for m in generate_queries(400, seed=2, held_out=held_out))
    long_names = [name.name for name in cue_word_names() if len(name.name.split()) > 3]
    assert not [text for text in long_names if folded(text) in said]
