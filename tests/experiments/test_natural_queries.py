"""Queries as people write them: read right, clean of what is held out, and filled with others."""

from __future__ import annotations

import re

import pytest

from boolattn.errors import DataError
from experiments.labels import parse_labelled
from experiments.parser_queries.natural import (
    fill_natural,
    natural_queries,
    parse_natural,
    short_queries,
)
from experiments.parser_queries.wordings import BANNED
from experiments.parsing.queries import unseen_queries
from tests.parses import form, negated, positive

TRAIN, HELD_OUT = natural_queries(), natural_queries(held_out=True)


def said(text):
    return " ".join(re.findall(r"\w+", text.lower()))


def test_there_are_many_and_a_tenth_is_held_out():
    assert len(TRAIN) > 10_000
    assert 0.06 < len(HELD_OUT) / len(TRAIN) < 0.16
    texts = [said(parse_labelled(one.markup)[0]) for one in TRAIN + HELD_OUT]
    assert len(set(texts)) == len(texts)


def test_no_word_that_the_benchmark_holds_out_is_said():
    found = [one.markup for one in TRAIN + HELD_OUT if BANNED.search(parse_labelled(one.markup)[0])]
    assert not found


def test_no_query_of_the_frozen_test_set_is_among_them():
    frozen = {said(one.labelled.text) for one in unseen_queries()}
    assert not frozen & {said(parse_labelled(one.markup)[0]) for one in TRAIN + HELD_OUT}


def test_every_form_has_its_operands():
    forms = set()
    for one in TRAIN + HELD_OUT:
        joiner, kept, excluded = one.form.split(":")
        reading = one.labelled().parsed
        assert (len(positive(reading)), len(negated(reading))) == (int(kept), int(excluded))
        assert form(reading)[2] == ("or" if joiner == "or" else "and")
        forms.add(one.form)
    assert {"-:1:0", "-:1:1", "-:1:2", "and:2:1", "or:2:1", "or:4:0", "and:4:0"} <= forms


def test_they_come_as_written_first_and_then_with_other_words():
    made = list(fill_natural(len(TRAIN) + 300, 3))
    assert made[: len(TRAIN)] == [one.labelled() for one in TRAIN]
    again, other = (list(fill_natural(len(TRAIN) + 30, seed))[len(TRAIN) :] for seed in (3, 4))
    assert made[len(TRAIN) : len(TRAIN) + 30] == again != other
    known = {one.text for one in made[: len(TRAIN)]}
    others = made[len(TRAIN) :]
    assert sum(one.text not in known for one in others) > 250
    forms = {form(one.labelled().parsed) for one in TRAIN}
    for one in others:
        assert form(one.parsed) in forms
        assert not BANNED.search(one.text)
        for spans in one.parsed.operands:
            assert all(one.text[start:end].strip() for start, end in spans)


def test_a_refilled_query_keeps_its_frame():
    made = list(fill_natural(len(TRAIN) + 200, 1))[len(TRAIN) :]

    def frame(marked):
        inside = {
            at for spans in marked.parsed.operands
            for start, end in spans for at in range(start, end)
        }  # fmt: skip
        return "".join(c for at, c in enumerate(marked.text) if at not in inside)

    frames = {frame(one.labelled()) for one in TRAIN}
    assert all(frame(one) in frames for one in made)


def test_short_queries_have_few_words_and_every_operator():
    made = list(short_queries(400, 2))
    assert made == list(short_queries(400, 2))
    assert made != list(short_queries(400, 3))
    assert max(len(one.text.split()) for one in made) <= 12
    assert not [one.text for one in made if BANNED.search(one.text)]
    forms = {form(one.parsed) for one in made}
    assert {(1, 0, "and"), (2, 0, "or"), (3, 0, "or"), (2, 0, "and"), (1, 1, "and")} <= forms
    one = next(one for one in made if " without " in one.text)
    kept, excluded = positive(one.parsed)[0], negated(one.parsed)[0]
    assert kept[-1][1] < excluded[0][0], "what it lacks stands alone"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("or:2:0\ttaxa", "not a known form"),
        ("xor:2:0\ttaxa\t<0|a> or <1|b>", "not a known form"),
        ("or:3:0\ttaxa\t<0|a> or <1|b>", "do not fit the form or:3:0"),
        ("or:2:0\ttaxa\t<0|a> or <2|b>", "do not fit the form"),
        ("and:1:1\ttaxa\t<0|a> not <1|b>", "must name the joiner"),
    ],
)
def test_a_bad_line_is_named(line, message):
    with pytest.raises(DataError, match=rf"x\.txt:2: .*{message}"):
        parse_natural(["# a comment", line], "x.txt")
