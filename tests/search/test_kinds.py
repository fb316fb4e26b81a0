"""Exclusion by kind: what NOT leaves out though the document has another word."""

from __future__ import annotations

import pytest

from boolattn.errors import ConfigError
from boolattn.kinds import lexicon
from boolattn.kinds.lexicon import load_kinds
from boolattn.query.syntax import parse
from boolattn.search import Document, Searcher
from boolattn.search.exclusion import Exclusion
from boolattn.search.pipeline import OTHER_LEXICON
from boolattn.search.result import LeftOut
from boolattn.stores.filters import Filter

TEXTS = {
    "tiramisu": "A dessert with mascarpone.",
    "ice": "Ice with lemons.",
    "cake": "A dairy-free cake with coconut milk.",
    "curry": "Curry with chicken and butter beans.",
    "porridge": "Oats; no milk is needed.",
    "stew": "Beef stew with dairy.",
}
DAIRY = {"tiramisu", "stew"}


def documents(texts=TEXTS):
    return [Document(id=name, title=name.title(), text=text) for name, text in texts.items()]


@pytest.fixture(scope="module")
def searcher(retriever):
    return Searcher.from_texts(documents(), retriever)


def found(searcher, query, **options):
    return {hit.id for hit in searcher.search(query, **options).hits}


@pytest.mark.parametrize(
    ("query", "options", "left_out"),
    [
        ("everything NOT dairy", {}, DAIRY),
        ("NOT dairy", {}, DAIRY),
        ("dishes without dairy", {}, DAIRY),
        ("no dairy please", {}, DAIRY),
        ("dishes", {"negative": ["dairy"]}, DAIRY),
        ("dishes NOT dairy", {"hybrid": False}, DAIRY),
        ("dishes NOT dairy", {"exhaustive": True}, DAIRY),
        ("dishes NOT dairy", {"kinds": False}, {"stew"}),  # by its word
        ("dishes NOT dairy", {"strict_not": False}, set()),
        ("dishes without meat", {}, {"curry", "stew"}),
        ("vegetarian dishes", {}, {"curry", "stew"}),
        ("dishes NOT (dairy OR fruit)", {}, DAIRY | {"ice"}),
        ("dishes NOT (dairy AND meat)", {}, {"stew"}),
        ("(dishes NOT dairy) OR dessert", {}, set()),  # a dessert may have some
        ("dishes AND NOT mascarpone", {}, {"tiramisu"}),
        ("dishes AND dairy", {}, set()),
    ],
)
def test_strict_not_leaves_out_things_of_the_kind(searcher, query, options, left_out):
    assert found(searcher, query, **options) == TEXTS.keys() - left_out


def test_of_several_phrases_words_alone_leave_out(retriever):
    texts = {"squat": "Leg muscles: quadriceps.", "row": "Biceps. Stand with one leg forward."}
    searcher = Searcher.from_texts(documents(texts), retriever)
    assert found(searcher, "exercises NOT muscle") == set()
    assert found(searcher, "exercises NOT leg muscles") == {"row"}


def test_what_is_asked_for_is_of_no_negated_kind(retriever):
    texts = {
        "a": "Coconut ice cream.",
        "b": "Ice cream of butter.",
        "c": "Ice cream, dairy or not.",
    }
    searcher = Searcher.from_texts(documents(texts), retriever)
    assert found(searcher, "ice cream without dairy") == {"a"}
    assert found(searcher, "desserts without dairy") == set()
    # Of another operand's words together nothing is named, and not of a part of a name.
    assert found(searcher, "coconut AND cream NOT dairy") == set()
    result = searcher.search("ice cream without dairy")
    assert {(d.id, d.why) for d in result.left_out} == {
        ("b", "butter is dairy"),
        ("c", "it mentions 'dairy'"),
    }


def test_what_was_left_out_is_told_with_its_reason(searcher):
    result = searcher.search("dishes without dairy")
    assert {document.id: document for document in result.left_out} == {
        "tiramisu": LeftOut("tiramisu", "Tiramisu", "mascarpone is dairy", "mascarpone"),
        "stew": LeftOut("stew", "Stew", "it mentions 'dairy'", ""),
    }
    assert result.to_dict()["left_out"][0].keys() == {"id", "title", "why", "word"}
    for options in ({"strict_not": False}, {"verdicts": False}):
        assert searcher.search("dishes without dairy", **options).left_out == ()
    assert searcher.search("dishes").left_out == ()
    # Whatever the number of results.
    first = searcher.search("dishes without dairy", k=1)
    assert len(first.hits) == 1
    assert first.left_out == result.left_out


def test_a_reason_names_the_kind_alone(searcher):
    result = searcher.search("dessert NOT dessert dairy")
    assert [document.why for document in result.left_out][:1] == ["mascarpone is dairy"]


def test_a_word_that_is_allowed_leaves_nothing_out(searcher):
    query = "dishes without dairy"
    assert "tiramisu" in found(searcher, query, allow=["Mascarpone"])
    assert "tiramisu" not in found(searcher, query, allow=["cream"])
    # A document with the word itself stays out.
    assert "stew" not in found(searcher, query, allow=["dairy", "mascarpone"])
    with pytest.raises(ConfigError, match="allow"):
        searcher.search(query, allow="mascarpone")


def test_pages_and_total(searcher):
    whole = searcher.search("dishes without dairy", k=10)
    pages = [searcher.search("dishes without dairy", k=2, offset=offset) for offset in (0, 2)]
    assert [hit.id for page in pages for hit in page.hits] == [hit.id for hit in whole.hits]
    assert {page.total for page in (whole, *pages)} == {len(TEXTS)}


def test_a_kind_counts_as_a_word_does(searcher):
    with searcher.store.reading() as reader:
        tree = parse("fruit AND blue")
        fruit, blue = Exclusion(tree, reader).tags()
        [ranked] = reader.words([fruit], 9, Filter())
        assert [document.id for document in reader.documents(ranked.rows)] == ["ice"]
        assert Exclusion(tree, reader, kinds=False).tags() == [[], []]
    assert blue == []


def test_the_corpus_says_which_sense_is_meant(retriever):
    texts = {"fox": "A flying fox hangs in a tree.", "racket": "A squash racket of wood."}
    for others, left in (
        ({"more": "Another flying fox flies at night."}, {"racket"}),
        ({"more": "A squash racket of steel."}, {"fox"}),
    ):
        searcher = Searcher.from_texts(documents(texts | others), retriever)
        assert found(searcher, "everything NOT bat") == left


def test_the_positive_part_says_which_sense_is_meant(retriever):
    """Though the corpus has more animals."""
    texts = {
        "fox": "A flying fox hangs in a tree.",
        "more": "Another flying fox flies at night.",
        "racket": "A squash racket of wood.",
    }
    searcher = Searcher.from_texts(documents(texts), retriever)
    assert found(searcher, "equipment NOT bat") == {"fox", "more"}
    assert found(searcher, "everything NOT bat") == {"racket"}


def test_what_is_food_too_is_not_meant_as_a_plant(retriever):
    """Herbs are plants, and most vegetables are such."""
    texts = {"1": "Tomatoes with milk.", "2": "Rice with milk.", "3": "Spinach and parsley."}
    searcher = Searcher.from_texts(documents(texts), retriever)
    assert found(searcher, "everything NOT herbs") == {"1", "2"}


def test_a_users_kinds_are_used_and_kept(retriever, folder):
    kinds = {"winter food": ["stew"], "dairy": ["oats"], "not dairy": ["mascarpone"]}
    Searcher.build(folder, documents(), retriever, kinds=kinds)
    searcher = Searcher.open(folder, retriever)
    assert searcher.settings.kinds == kinds
    assert found(searcher, "dishes without dairy") == TEXTS.keys() - {"porridge", "stew"}
    assert found(searcher, "NOT winter food") == TEXTS.keys() - {"stew"}
    searcher.add([Document(id="late", text="More oats.")])
    assert "late" not in found(searcher, "dishes without dairy")


@pytest.mark.parametrize("kinds", [{"dairy": "oats"}, {"dairy": [1]}, {"dairy": {"a": 1}}])
def test_kinds_that_are_no_lists_are_refused(retriever, kinds):
    with pytest.raises(ConfigError, match="kinds: 'dairy' must be a list of names"):
        Searcher.from_texts(["a"], retriever, kinds=kinds)


def test_an_index_of_another_lexicon_is_searched_without_kinds(
    retriever, folder, tmp_path, monkeypatch
):
    Searcher.build(folder, documents(), retriever)
    path = tmp_path / "additions.txt"
    path.write_text("dairy product: oats\n")
    monkeypatch.setattr(lexicon, "_ADDITIONS", path)
    load_kinds.cache_clear()
    try:
        searcher = Searcher.open(folder, retriever)
        assert searcher.settings.known_kinds is None
        assert OTHER_LEXICON in searcher.search("dishes without dairy").warnings
        off = searcher.search("dishes without dairy", kinds=False)
        assert OTHER_LEXICON not in off.warnings
        assert searcher.search("dishes").warnings == ()
        assert found(searcher, "dishes without dairy") == TEXTS.keys() - {"stew"}
        searcher.add([Document(id="late", text="More cream.")])
        assert "late" in found(searcher, "dishes without dairy")
    finally:
        load_kinds.cache_clear()


def test_an_index_without_words_is_read_for_kinds(retriever):
    toast = Document(id="toast", text="Toast.", metadata={"with": "butter"})
    searcher = Searcher.from_texts([*documents(), toast], retriever, words=False)
    assert found(searcher, "dishes NOT dairy") == TEXTS.keys() - DAIRY


def test_what_a_title_or_value_is_free_of_the_text_does_not_have():
    rows = [
        {"id": "almond", "title": "Almond cake", "text": "Bake it.", "tags": ["gluten free"]},
        {"id": "sponge", "title": "Sponge cake", "text": "Of flour. A gluten free one is dry."},
        {"id": "wine", "title": "Alcohol-free sparkling", "text": "Dry.", "grape": "Riesling"},
        {"id": "nuts", "title": "Peanut-free bar", "text": "Almonds and raisins."},
    ]
    searcher = Searcher.from_texts(rows)
    for query, expected in {
        "gluten free cake": {"sponge": "flour is gluten"},
        "no alcohol": {},
        "no nuts": {"nuts": "Almonds is nuts", "almond": "Almond is nuts"},
    }.items():
        left_out = searcher.search(query, 9).left_out
        assert {document.id: document.why for document in left_out} == expected


def test_an_adjective_before_land_names_a_place():
    kinds = load_kinds()
    [greece] = kinds.senses("Greece")
    for text in ("A Greek island", "the Greek Islands", "in Greek villages"):
        assert kinds.witnesses(text, greece) == ["Greek"]
    for text in ("Greek salad", "We speak Greek on the island", "a Greek restaurant"):
        assert kinds.witnesses(text, greece) == []
    assert not any(kinds.witnesses("mucosal areas", tags) for tags in kinds.senses("membrane"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [("tablets", "gluten"), ("Hay fever", "food"), ("peanuts", "child"), ("fleece", "leather")],
)
def test_rare_senses_of_everyday_words_are_no_kinds(text, kind):
    kinds = load_kinds()
    assert not any(kinds.witnesses(text, tags) for tags in kinds.senses(kind))
