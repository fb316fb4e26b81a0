"""The frozen wordings: enough of them, a third held out, spans exact."""

from __future__ import annotations

import random
import re

import pytest

from benchmark_data.taxa import wordings as table
from benchmark_data.taxa.phrases import Builder, fill, parse
from benchmark_data.taxa.queries import Speaker
from benchmark_data.taxa.sets import Group, Operand
from boolattn.data.catalog import WORDINGS_SHA256
from boolattn.errors import DataError
from boolattn.query.syntax import TEMPLATES
from boolattn.query.tokens import find_cues
from boolattn.query.tree import Operator

FROZEN = ("1", WORDINGS_SHA256["taxa"])

FROGS = Group("family", "Ranidae", "true frogs", "animals", "train")
PLACES = ("Peru", "Ecuador", "Chile")


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w'&/-]+", text.lower()))


def literal(skeleton: str) -> str:
    """What a skeleton itself says, without its slots."""
    return " ".join(re.sub(r"\{\w+\}", " ", token.text) for token in parse(skeleton))


def training_phrases() -> list[str]:
    found = [*table.links().seen, *table.requests().seen]
    for row in table.wordings().values():
        for wording in row:
            if not wording.is_unseen:
                found.append(literal(wording.skeleton))
                found.extend(cue for _, cue in wording.cues)
    return [re.sub(r"[~|^]", " ", phrase) for phrase in found]


def all_held_out_cues() -> list[str]:
    return sorted({cue for family in table.families().values() for cue in family.unseen})


def test_the_wordings_are_frozen():
    # Other wordings are another benchmark: give them a new version, then change both.
    assert (table.version(), table.digest()) == FROZEN


@pytest.mark.parametrize("template", list(TEMPLATES))
def test_thirty_wordings_of_each_structure_and_a_third_held_out(template):
    row = table.wordings()[template]
    unseen = [wording for wording in row if wording.is_unseen]
    assert len(row) - len(unseen) >= 30
    assert len(row) / 3 <= len(unseen) <= len(row) / 2
    assert len({wording.name for wording in row}) == len(row)


@pytest.mark.parametrize("template", list(TEMPLATES))
def test_held_out_wordings_are_held_out_by_a_part(template):
    row = table.wordings()[template]
    seen = {wording.skeleton for wording in row if not wording.is_unseen}
    held_out = {*all_held_out_cues(), *table.links().unseen}
    for wording in row:
        has_new_part = any(cue in held_out for _, cue in wording.cues)
        if wording.is_unseen:
            assert has_new_part or wording.skeleton not in seen, wording.name
        else:
            assert not has_new_part, wording.name


@pytest.mark.parametrize("cue", all_held_out_cues())
def test_training_never_sees_a_held_out_cue(cue):
    plain = " ".join(re.sub(r"[~|^,]", " ", cue.replace("{live}", "")).split())
    phrases = [" ".join(phrase.replace(",", " ").split()) for phrase in training_phrases()]
    assert not any(f" {plain} " in f" {phrase} " for phrase in phrases)
    known = set().union(*map(words, training_phrases()))
    assert words(plain) - known, "every word of it is known from training"


def test_five_ways_to_exclude_have_no_cue_of_the_lexicon():
    ways = set()
    for wording in table.wordings()["_ that are not _"]:
        cues = " ".join(cue for _, cue in wording.cues)
        said = re.sub(r"[~|^]", " ", f"{literal(wording.skeleton)} {cues}")
        if wording.is_unseen and not any(c.operator is Operator.NOT for c in find_cues(said)):
            ways.add(cues or wording.skeleton)
    assert {"rather than", "instead of", "save for"} <= ways
    assert any("favouring" in way for way in ways)
    assert len(ways) >= 5


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("template", list(TEMPLATES))
def test_a_filled_wording_reads_as_one_line(template, unseen):
    speaker = Speaker(random.Random(1), unseen=unseen)
    operands = [Operand(FROGS, place) for place in PLACES[: template.count("_")]]
    for _ in range(120):
        _, phrase, texts = speaker.word(template, operands)
        text = phrase.text
        assert not re.search(r"[{}<>|~^*\[\]]|  | [,.;:?]|\( |,,|\bthe the\b", text), text
        assert text == text.strip()
        assert len(texts) == len(phrase.operands) == len(operands)
        for spans in phrase.operands:
            assert spans, text
            assert list(spans) == sorted(spans)
            assert all(start < end and text[start:end].strip() for start, end in spans)
        covered = {at for spans in phrase.operands for a, b in spans for at in range(a, b)}
        for cue in phrase.cues:
            assert covered.isdisjoint(range(cue.start, cue.end)), "a cue belongs to no operand"


def test_every_operator_is_announced_unless_the_order_of_words_does_it():
    speaker = Speaker(random.Random(2), unseen=False)
    for template in TEMPLATES:
        operands = [Operand(FROGS, place) for place in PLACES[: template.count("_")]]
        wanted = {"_": set(), "_ that are also _ but not _": {"and", "not"}}.get(
            template, {"or" if " or " in template else "not" if "not" in template else "and"}
        )
        for _ in range(80):
            _, phrase, _ = speaker.word(template, operands)
            assert {cue.operator.value for cue in phrase.cues} == wanted, phrase.text


def test_training_has_no_cue_word_that_is_not_marked():
    speaker = Speaker(random.Random(3), unseen=False)
    for template in TEMPLATES:
        operands = [Operand(FROGS, place) for place in PLACES[: template.count("_")]]
        for _ in range(150):
            _, phrase, _ = speaker.word(template, operands)
            marked = {at for cue in phrase.cues for at in range(cue.start, cue.end)}
            for cue in find_cues(phrase.text):
                assert marked & set(range(cue.start, cue.end)), (cue.text, phrase.text)


def test_a_shared_word_belongs_to_both_operands():
    builder = Builder(2)
    cues = {"not_place": (Operator.NOT, "but not")}
    slots = {"G": "moths", "P0": "Borneo", "P1": "Sumatra"}
    fill("<01|{G} of> <0|{P0}> {not_place} <1|{P1}>", cues, slots, builder)
    phrase = builder.finish()
    assert phrase.text == "moths of Borneo but not Sumatra"
    assert phrase.operands == (((0, 15),), ((0, 8), (24, 31)))
    assert [phrase.text[cue.start : cue.end] for cue in phrase.cues] == ["but not"]


def test_the_verb_after_a_cue_belongs_to_the_operand():
    builder = Builder(2)
    cues = {"not_verb": (Operator.NOT, "that do not|{live} in")}
    slots = {"G": "moths", "P0": "Borneo", "P1": "Java", "live": "live"}
    fill("<01|{G}> <0|of {P0}> {not_verb} <1|{P1}>?", cues, slots, builder)
    phrase = builder.finish()
    assert phrase.text == "moths of Borneo that do not live in Java?"
    assert [phrase.text[a:b] for a, b in phrase.operands[1]] == ["moths", "live in Java"]
    assert [phrase.text[cue.start : cue.end] for cue in phrase.cues] == ["that do not"]


def test_a_verb_can_belong_to_two_operands_and_a_part_can_be_no_cue():
    builder = Builder(3)
    cues = {"and_verb": (Operator.AND, "^that|{live} in~as well")}
    slots = {"G": "moths", "P1": "Java", "P2": "Bali", "live": "live"}
    fill("<012|{G}> {and_verb.0@12} <1|{P1}> [and:and] <2|{P2}> {and_verb.1}", cues, slots, builder)
    phrase = builder.finish()
    assert phrase.text == "moths that live in Java and Bali as well"
    joined = [" ".join(phrase.text[a:b] for a, b in spans) for spans in phrase.operands]
    assert joined == ["moths", "moths live in Java", "moths live in Bali"]
    assert [phrase.text[cue.start : cue.end] for cue in phrase.cues] == ["and", "as well"]


def test_commas_spaces_and_articles_meet_once():
    builder = Builder(1)
    for piece in ("among the", " ", "the Bahamas' frogs", " ", ", ", ", but not", " ", "(", " x)"):
        builder.add(piece)
    assert builder.finish().text == "among the Bahamas' frogs, but not (x)"


def test_a_skeleton_that_cannot_be_read_is_named():
    with pytest.raises(DataError, match=r"cannot parse the wording .*from '<0\|"):
        parse("<01|{G}> <0|{P0}")
