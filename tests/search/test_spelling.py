"""Words that no document has are searched as the documents spell them."""

from __future__ import annotations

import pytest

from boolattn.query.syntax import parse, unparse
from boolattn.search import Document, Searcher
from boolattn.search.spelling import correct_cues, correct_spelling
from tests.parses import read_trees

TEXTS = (
    "Chicken soup with noodles.",
    "Chicken curry from Sumatra.",
    "Asian noodles, and again noodles.",
    "A quiche with leek, spice and more spice.",
    "Spice cake.",
    "Spicy rice.",
    "Chickens.",
)


@pytest.fixture(scope="module")
def searcher(retriever):
    return Searcher.from_texts(TEXTS, retriever)


@pytest.fixture(scope="module")
def reader(searcher):
    with searcher.store.reading() as snapshot:
        yield snapshot


def corrected(text, reader, known=()):
    [reading] = read_trees([parse(text)], [text])
    reading, replaced = correct_spelling(reading, reader, lambda word: word in known)
    return unparse(reading.tree), reading.wording, replaced


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chiken soup", "chicken soup"),  # a letter is missing
        ("chickken soup", "chicken soup"),  # one too many
        ("chucken soup", "chicken soup"),  # another one
        ("asain soup", "asian soup"),  # in another order; "again" is as near
        ("spicey soup", "spicy soup"),  # "spice" is as near, but ends otherwise
        ("nodles AND chiken", "noodles AND chicken"),
        ("soup NOT quihce", "soup NOT quiche"),
        ("Sumatre", "Sumatra"),  # names keep their capital letter
        ("nooddlles", "noodles"),  # two errors in a long word
    ],
)
def test_a_similar_word_is_searched(reader, text, expected):
    assert corrected(text, reader)[:2] == (expected, expected)


@pytest.mark.parametrize(
    "text",
    [
        "chicken soups",  # a form of a word that is there
        "zebra",  # nothing is similar
        "lek",  # too short
        "hiccken",  # the first letter counts
        "likk",  # two errors in a short word
        "year>=1990",
        "like:0",
        "s0up",
    ],
)
def test_other_words_stay(reader, text):
    tree, _, replaced = corrected(text, reader)
    assert (tree, replaced) == (text, {})


def test_a_known_word_stays(reader):
    assert corrected("chiken", reader, known={"chiken"})[2] == {}
    assert corrected("Chiken", reader, known={"chiken"})[2] == {}


def test_a_known_word_with_two_letters_swapped_needs_no_document(reader):
    assert corrected("borth", reader, known={"broth"})[0] == "broth"
    assert corrected("froth", reader, known={"forth", "froht"})[2] == {}  # one of two


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("soup wihtout leek", "soup without leek"),
        ("soup exept leek", "soup except leek"),
        ("soup accept leek", "soup accept leek"),  # a word
        ("soup without leek", "soup without leek"),
        ("soup witout leek, Withoutt rice", "soup without leek, without rice"),
    ],
)
def test_words_that_exclude_are_corrected_before_parsing(text, expected):
    words = {"accept", "soup", "leek", "without", "except"}
    assert correct_cues(text, words.__contains__)[0] == expected


def test_a_corrected_cue_excludes(searcher):
    result = searcher.search("soup wihtout chicken")
    assert result.tree_text == "soup NOT chicken"
    assert result.notes == ("searched for without for 'wihtout'",)


def test_a_correction_is_noted(searcher):
    result = searcher.search("soup without chiken")
    assert result.tree_text == "soup NOT chicken"
    assert result.notes == ("searched for chicken for 'chiken'",)
    assert "0" not in {hit.id for hit in result.hits}
    assert searcher.search("soup without chiken", compose=False).notes == ()


def test_explicit_syntax_is_corrected_but_not_between_quotes(searcher):
    for query in ("soup -chiken", "soup NOT chiken"):
        result = searcher.search(query)
        assert result.tree_text == "soup NOT chicken"
        assert result.notes == ("searched for chicken for 'chiken'",)
        assert "0" not in {hit.id for hit in result}
    for query in ('soup -"chiken"', 'soup NOT "fried chiken"', 'soup "chiken"'):
        assert searcher.search(query).notes == ()


def test_nothing_is_corrected_without_words_or_parser(retriever):
    documents = [Document(id="a", text="chicken soup")]
    for settings in ({"words": False}, {"parser": None}):
        searcher = Searcher.from_texts(documents, retriever, **settings)
        assert searcher.search("chiken").notes == ()
