"""Operands found in people's paraphrases: moved, inflected, shared, left out, or given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from boolattn.data.labelled_queries import label_queries
from boolattn.data.quest import load_quest_intro
from boolattn.data.records import Operand, Query
from boolattn.data.sentences import Mixture, generate
from boolattn.logic.parsed_query import words
from experiments.parser_queries.alignment import align, align_operands
from experiments.parser_queries.sources import (
    has_cues,
    label_paraphrases,
    sentence_queries,
)
from experiments.quest_queries import with_generated
from tests.parses import form, negated, positive

SAMPLE = Path(__file__).parents[1] / "data" / "samples" / "quest-intro"


def found(text, *names):
    spans = align_operands(text, names)
    return spans and [words(text, operand) for operand in spans]


@pytest.mark.parametrize(
    ("text", "names", "wanted"),
    [
        # moved
        (
            "Novels about terrorism set in Israel",
            ["Novels set in Israel", "Novels about terrorism"],
            ["Novels set in Israel", "Novels about terrorism"],
        ),
        # inflected, and other words for the same
        (
            "Cuban song birds or movies from the UK",
            ["Birds of Cuba", "British films"],
            ["Cuban song birds", "movies from the UK"],
        ),
        # one head for both, before and after
        (
            "Flora of Japan and Finland",
            ["Flora of Finland", "Flora of Japan"],
            ["Flora of Finland", "Flora of Japan"],
        ),
        (
            "Swiss independent or Swiss horror thriller films",
            ["Swiss independent films", "Swiss horror thriller films"],
            ["Swiss independent films", "Swiss horror thriller films"],
        ),
        # shared with what is excluded
        (
            "Indian mystery action films that are not crime films",
            ["Indian action films", "Mystery films", "Indian crime films"],
            ["Indian action films", "mystery films", "Indian crime films"],
        ),
        # a cue word inside a name
        (
            "mammals from Barbados or of Antigua and Barbuda",
            ["Mammals of Antigua and Barbuda", "Mammals of Barbados"],
            ["mammals of Antigua and Barbuda", "mammals from Barbados"],
        ),
        # what asks belongs to nobody
        (
            "what are some Eocene fish of Europe or of Asia?",
            ["Eocene fish of Europe", "Eocene fish of Asia"],
            ["Eocene fish of Europe", "Eocene fish of Asia"],
        ),
        # a slip of the pen
        (
            "Cenzoic birds but not Palearctic birds",
            ["Cenozoic birds", "Palearctic birds"],
            ["Cenzoic birds", "Palearctic birds"],
        ),
    ],
)
def test_words_are_found(text, names, wanted):
    assert found(text, *names) == wanted


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # an operand that the paraphrase lost
        ("American books about crowd psychology", ["American books", "Books about London"]),
        ("Mythology books about London", ["Books about cities", "Books about London"]),
        # two that say the same
        ("Plants from Dominica", ["Trees of Dominica", "Flora of Dominica"]),
        # another query altogether
        ("Ordovician invertebrates or Cambrian sponges", ["Brassicales families", "Boryaceae"]),
        ("", ["Flora of Japan", "Flora of Finland"]),
    ],
)
def test_it_gives_up_when_unsure(text, names):
    assert found(text, *names) is None


def test_the_marks_of_an_original_are_read():
    query = Query(
        id="1",
        text="2017 non action science fiction films",
        gold=frozenset(),
        template="_ that are not _",
    )
    original = "<mark>2017 science fiction films</mark> that are not <mark>2017 action films</mark>"
    marked = align(query, original)
    assert [words(marked.text, spans) for spans in positive(marked.parsed)] == [
        "2017 science fiction films"
    ]
    assert [words(marked.text, spans) for spans in negated(marked.parsed)] == ["2017 action films"]
    assert align(query) is None, "without its original the operands are not known"


@pytest.mark.parametrize(
    "text",
    ["Paleotropical flora that is not Pandanaceae", "Pandanaceae but of Paleotropical flora"],
)
def test_an_exclusion_that_was_lost_or_turned_round_is_given_up(text):
    operands = (Operand("Pandanaceae"), Operand("Paleotropical flora"))
    query = Query(
        id="1", text=text, gold=frozenset(), template="_ that are not _", operands=operands
    )
    assert align_operands(text, [operand.text for operand in operands])
    assert align(query) is None


def test_word_for_word_queries_are_aligned_exactly():
    quest = with_generated(load_quest_intro(SAMPLE))
    queries = [q for q in quest.splits["generated_train"] if q.template != "_"]
    assert len(queries) > 50
    marked = {m.text: m for m in label_paraphrases(queries, require_cues=False)}
    exact = {m.text: m for m in label_queries(queries)}
    assert len(marked) >= 0.9 * len(exact)
    wrong = [
        text
        for text, m in marked.items()
        if [words(text, s) for s in m.parsed.operands]
        != [words(text, s).replace("(", "").replace(")", "") for s in kept_and_not(exact[text])]
    ]
    assert len(wrong) <= 0.05 * len(marked), wrong


def kept_and_not(marked):
    return marked.parsed.operands


def test_an_operator_without_a_word_for_it_is_known():
    def query(text):
        operands = (Operand("American crime novels"), Operand("1990 novels"))
        return Query(
            id="1", text=text, gold=frozenset(), template="_ that are also _", operands=operands
        )

    silent = query("1990 American crime novels")
    said = query("American crime novels that are also 1990 novels")
    assert not list(label_paraphrases([silent]))
    assert len(list(label_paraphrases([silent], require_cues=False))) == 1
    assert len(list(label_paraphrases([said]))) == 1


def test_sentences_are_marked_with_what_they_keep_and_exclude():
    found = list(sentence_queries(300, seed=1))
    assert len(found) == 300
    forms = {form(marked.parsed) for marked in found}
    assert {(1, 0, "and"), (2, 0, "or"), (1, 1, "and"), (2, 1, "and"), (3, 0, "or")} <= forms
    assert all(has_cues(marked) for marked in found if form(marked.parsed)[2] == "or")


def test_sentence_queries_take_a_mixture():
    varied = Mixture(varied=1.0)
    queries = list(sentence_queries(50, 4, varied))
    assert [query.text for query in queries] == [s.text for s in generate(50, 4, varied)]
    assert any(form(query.parsed)[2] == "or" for query in queries)
