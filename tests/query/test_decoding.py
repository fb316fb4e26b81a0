"""From logits to a parsed query."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.query.parsed_query import (
    ABSENT,
    GAPS,
    NEGATED,
    POSITIVE,
    Gap,
    ParserLogits,
    decode,
    mark_operators,
)
from boolattn.query.syntax import parse
from boolattn.query.tree import Operator

TEXT = "red moths or blue ants, no bees"
OFFSETS = [(0, 0), (0, 3), (4, 9), (10, 12), (13, 17), (18, 20), (20, 22), (22, 23)]
OFFSETS += [(24, 26), (27, 31), (0, 0)]
WORDS = {"red": [1], "moths": [2], "blue": [4], "ants": [5, 6], "bees": [9]}
OR2, AND1 = Gap(Operator.OR, 2), Gap(Operator.AND, 1)


def _logits(slots, gaps, certainty=8.0):
    """Return logits of slots: words and role of each."""
    tags = np.full((1, len(OFFSETS), 4), -certainty)
    roles = np.full((1, 4, 3), -certainty)
    roles[0, :, ABSENT] = certainty
    for slot, (words, role) in enumerate(slots):
        roles[0, slot] = -certainty
        roles[0, slot, role] = certainty
        tags[0, [token for word in words.split() for token in WORDS[word]], slot] = certainty
    joins = np.full((1, 3, len(GAPS)), -certainty)
    for at, gap in enumerate(gaps):
        joins[0, at, GAPS.index(gap)] = certainty
    return ParserLogits(tags, roles, joins)


def _decoded(slots, gaps, **more):
    return decode(_logits(slots, gaps, **more), TEXT, OFFSETS, 0)


def test_a_nested_query():
    slots = [("red moths", POSITIVE), ("blue ants", POSITIVE), ("bees", NEGATED)]
    output = _decoded(slots, [OR2, AND1])
    assert output.parsed.tree(TEXT) == parse('("red moths" OR "blue ants") NOT bees')
    assert output.confidence > 0.99
    assert output.reason == ""
    assert _decoded(slots, [OR2, AND1], certainty=0.5).confidence < 0.5


def test_words_may_belong_to_several_slots_and_are_never_cut():
    logits = _logits([("red ants", POSITIVE), ("blue ants", POSITIVE)], [Gap(Operator.OR, 1)])
    # One piece of "ants" is enough.
    logits.tags[0, 6, :] = -8.0
    parsed = decode(logits, TEXT, OFFSETS, 0).parsed
    assert parsed.tree(TEXT) == parse('"red ants" OR "blue ants"')


def test_a_plain_text_with_cue_words_says_so():
    output = _decoded([("red moths", POSITIVE)], [])
    assert output.parsed.is_plain
    assert output.reason == "it was read as one phrase"


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        ([], "no words of its own"),
        ([("red moths", POSITIVE), ("", POSITIVE)], "no words of its own"),
        ([("red moths", POSITIVE), ("moths", NEGATED)], "no words of its own"),
    ],
)
def test_what_makes_no_sense_is_not_parsed(slots, reason):
    output = _decoded(slots, [AND1])
    assert output.parsed is None
    assert output.confidence == 0
    assert reason in output.reason


def test_negated_operands_alone_follow_an_empty_one():
    parsed = _decoded([("bees", NEGATED)], []).parsed
    assert parsed.operands[0] == ()
    assert parsed.tree(TEXT) == parse("everything NOT bees")


def test_only_operators_in_capitals_become_signs():
    text = "rock and roll AND NOT (jazz OR blues) ANDES"
    marked = mark_operators(text)
    assert marked == "rock and roll &&& !!! (jazz || blues) ANDES"
    assert len(marked) == len(text)
    assert mark_operators("ROCK AND ROLL") == "ROCK AND ROLL"
