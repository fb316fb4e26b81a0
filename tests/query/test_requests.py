"""Long requests for one thing: the words that name it are searched, with the shipped parser."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.encoders.models import SHIPPED, load_model
from boolattn.query.parsed_query import ParsedQuery, ParserOutput
from boolattn.query.parser import load_parser
from boolattn.query.plan import plan_queries
from boolattn.query.reading import QueryReader
from boolattn.query.syntax import parse
from boolattn.query.tree import And, Atom, Where
from boolattn.search import Document, Searcher

NAMED = "moths of Borneo"
LETTER = (
    "My aunt has a garden and no patience, and she would rather knit than read. "
    f"Could you please find {NAMED} for her? I will print it out and put it on the wall."
)


@pytest.fixture(scope="module")
def model():
    return load_model(SHIPPED)


def read(text, **options):
    return QueryReader(load_parser(), mode="plain", **options).read(text)


def test_a_letter_is_searched_by_what_it_names(model):
    [plan] = plan_queries([read(LETTER)], model)
    assert (plan.tree, plan.parsed) == (Atom(NAMED), Atom(NAMED))
    assert plan.atoms == (NAMED,)
    [[(start, end)]] = plan.spans
    assert LETTER[start:end] == NAMED
    assert plan.is_request
    assert not plan.is_composed
    assert plan.fallback == f"it was read as a request for {NAMED!r}"
    [whole], [named] = model.encode_queries([LETTER]), model.encode_operands([NAMED])
    assert np.allclose(plan.vectors, (whole + named) / 2, atol=1e-6)
    assert np.array_equal(plan.plain, whole)


def test_a_short_query_is_searched_as_typed(model):
    for text in (NAMED, f"please show me {NAMED}", "how do moths find each other in the dark?"):
        [plan] = plan_queries([read(text)], model)
        assert (plan.tree, plan.operand_spans, plan.fallback) == (Atom(text), (), "")
        assert np.array_equal(plan.vectors, model.encode_queries([text]))


@pytest.mark.parametrize(
    ("threshold", "reason"),
    [
        (None, "a document has this title"),
        (1.01, "the parser's confidence is 1.00, below 1.01"),
    ],
)
def test_a_letter_in_doubt_or_with_a_document_of_its_title_stays_whole(
    model, threshold, reason, monkeypatch
):
    if threshold is not None:
        monkeypatch.setattr(load_parser(), "threshold", threshold)
    reading = read(LETTER)
    if threshold is None:
        reader = QueryReader(load_parser())
        assert reader.may_be_title(reading)
        reading = reader.as_phrase(reading, reason)
    [plan] = plan_queries([reading], model)
    assert (plan.tree, plan.operand_spans, plan.parsed) == (Atom(LETTER), (), Atom(LETTER))
    assert plan.fallback == reason
    assert np.array_equal(plan.vectors[0], plan.plain)


@pytest.mark.parametrize("named", [".", "", "everything", "everything for"])
def test_a_letter_that_names_nothing_stays_whole(monkeypatch, named):
    text = LETTER.replace(NAMED, "everything")
    start = text.index(named)
    output = ParserOutput(ParsedQuery((((start, start + len(named)),),)), 1.0)
    monkeypatch.setattr(load_parser(), "parse", lambda texts: [output] * len(texts))
    reading = read(text)
    assert (reading.tree, reading.is_request) == (Atom(text), False)


def test_conditions_are_joined_to_what_a_letter_names(model):
    condition = parse("year > 1990")
    assert isinstance(condition, Where)
    plan, bare = plan_queries([read(LETTER, added=(condition,)), read(LETTER)], model)
    assert plan.tree == And((Atom(NAMED), condition))
    assert [*map(len, plan.spans)] == [1, 0]
    assert plan.is_request
    assert np.allclose(plan.vectors[0], (plan.plain + 2 * bare.vectors[0] - bare.plain) / 2)


def test_a_passage_is_no_request():
    passage = (
        "Start with a dumbbell in each hand and your palms facing your torso. Keep your back "
        "straight with a slight bend in the knees and bend forward at the waist."
    )
    for text in (passage, f"{LETTER} {passage} {passage} {passage}"):
        reading = read(text)
        assert (reading.is_request, reading.tree) == (False, Atom(text))


def test_an_explicit_query_is_no_request(model, tmp_path):
    document = Document(id="1", text="A moth.")
    searcher = Searcher.build(tmp_path / "index", [document], model)
    result = searcher.search(" AND ".join(f"(a{n} OR b{n})" for n in range(8)))
    assert result.warnings[0] == "searched as one text: it has 256 alternatives, more than 16"


def test_the_words_around_the_request_do_not_count(model, tmp_path, monkeypatch):
    texts = {
        "knit": "How to knit a scarf for an aunt who has a garden and no patience to read.",
        "wall": "To print a picture and put it on the wall you need paper and glue.",
        "moth": "The Atlas moth lives in the forests of Borneo and has wide wings.",
        "beetle": "A beetle of the Alps.",
    }
    documents = [Document(id=name, text=text) for name, text in texts.items()]
    searcher = Searcher.build(tmp_path / "index", documents, model)
    result = searcher.search(LETTER)
    assert result.hits[0].id == "moth"
    why = f"it was read as a request for {NAMED!r}"
    assert result.why_one_vector == why
    assert result.warnings == (f"'no' is no operator here: {why}",)
    monkeypatch.setattr(searcher.parser, "threshold", 1.01)
    assert searcher.search(LETTER).hits[0].id == "knit"
