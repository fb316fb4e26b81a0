"""Words that no document has are searched as the documents spell them."""

from __future__ import annotations

import pytest

from boolattn.query.syntax import unparse
from boolattn.search import Document, Searcher
from boolattn.search.inputs import StoreQueryReader
from tests.parses import KnownParses

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


@pytest.fixture
def corrected(reader, monkeypatch):
    def read(text, known=()):
        monkeypatch.setattr(StoreQueryReader, "_is_word", lambda _, word: word in known)
        return StoreQueryReader(KnownParses({}), reader).read(text)

    return read


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
def test_a_similar_word_is_searched(corrected, text, expected):
    plan = corrected(text)
    assert unparse(plan.tree) == expected
    assert plan.wording == expected.replace("AND", "and").replace("NOT", "but not")


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
def test_other_words_stay(corrected, text):
    plan = corrected(text)
    assert (unparse(plan.tree).removeprefix("everything AND "), plan.notes) == (text, ())


def test_a_known_word_stays(corrected):
    assert corrected("chiken", known={"chiken"}).notes == ()
    assert corrected("Chiken", known={"chiken"}).notes == ()


def test_a_known_word_with_two_letters_swapped_needs_no_document(corrected):
    assert unparse(corrected("borth", known={"broth"}).tree) == "broth"
    assert corrected("froth", known={"forth", "froht"}).notes == ()  # one of two


@pytest.mark.parametrize("cue", ["wihtout", "witout", "withot", "exept", "excpet", "exlcuding"])
def test_a_misspelt_cue_excludes(searcher, cue):
    assert searcher.search(f"soup {cue} chicken").tree_text == "soup NOT chicken"


def test_a_correction_is_noted(searcher):
    result = searcher.search("soup without chiken")
    assert result.tree_text == "soup NOT chicken"
    assert result.notes == ("searched for 'chicken' instead of 'chiken'",)
    assert "0" not in {hit.id for hit in result.hits}
    assert searcher.search("soup without chiken", compose=False).notes == ()


def test_explicit_syntax_is_corrected_but_not_between_quotes(searcher):
    for query in ("soup -chiken", "soup NOT chiken"):
        result = searcher.search(query)
        assert result.tree_text == "soup NOT chicken"
        assert result.notes == ("searched for 'chicken' instead of 'chiken'",)
        assert "0" not in {hit.id for hit in result}
    for query in ('soup -"chiken"', 'soup NOT "fried chiken"', 'soup "chiken"'):
        assert searcher.search(query).notes == ()


def test_nothing_is_corrected_without_words_or_parser(retriever):
    documents = [Document(id="a", text="chicken soup")]
    for settings in ({"words": False}, {"parser": None}):
        searcher = Searcher.from_texts(documents, retriever, **settings)
        assert searcher.search("chiken").notes == ()


@pytest.mark.parametrize(
    ("text", "n_asked"),
    [("moths of Peru", 0), ("2 eggs, no fish under 900 in october 2025 over 3", 1)],
)
def test_a_database_is_asked_for_its_fields_once(reader, monkeypatch, text, n_asked):
    asked = []
    fields = type(reader).fields
    monkeypatch.setattr(type(reader), "fields", lambda store: asked.append(1) or fields(store))
    StoreQueryReader(None, reader).read(text)
    assert len(asked) == n_asked


def test_the_name_of_a_field_is_not_corrected():
    documents = [{"text": f"soup of fish {n}", "preis": n} for n in range(3)]
    [result] = Searcher.from_texts(documents).search_many(["soup preis fihs"])
    assert result.notes == ("searched for 'fish' instead of 'fihs'",)
