"""What the shipped parser reads in queries as people type them."""

from __future__ import annotations

import pytest

from boolattn.query.parser import load_parser
from boolattn.query.reading import (
    IS_OFF,
    NO_PARSER,
    QueryReader,
    implied_exclusions,
    mixes_operators,
)
from boolattn.query.syntax import unparse
from boolattn.query.tree import Atom, Everything, Operator, atoms, operators_of


def read(text):
    """Read a text with the shipped parser."""
    reading = QueryReader(load_parser()).read(text)
    assert len(reading.spans) == len(list(atoms(reading.tree)))
    return reading


def tree(text):
    return unparse(read(text).tree)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gluten-free bread", "NOT gluten AND bread"),
        ("gluten free bread", "NOT gluten AND bread"),
        ("desserts that are nut-free?", "desserts NOT nut"),
        ("sugar and gluten free cookies", "NOT sugar NOT gluten AND cookies"),
        ("dinners that are soy-, nut- and gluten-free", "dinners NOT soy NOT nut NOT gluten"),
        ("non alcoholic drinks", "NOT alcoholic AND drinks"),
        ("non-toxic, not big", "everything NOT toxic NOT big"),
        ("jobs with no driving licence required.", "jobs NOT driving licence"),
        ("damage spells with no fire", "damage spells NOT fire"),
        ("nurse no nights", "nurse NOT nights"),
        ("performance but not memory", "performance NOT memory"),
        ("crash except printing", "crash NOT printing"),
        ("diabetes without injection", "diabetes NOT injection"),
        ("apartment without balcony", "apartment NOT balcony"),
        ("flat w/out balcony", "flat NOT balcony"),
        ("plants that arent toxic", "plants NOT toxic"),
        ("dog that doesnt bark", "dog NOT bark"),
        ("berlin !hostel", "berlin NOT hostel"),
        ("birds –owl", "birds NOT owl"),
        ("topic = wool", '"topic = wool"'),
        ("neither audio nor video", "everything NOT audio NOT video"),
        ("criminals who have nothing to do w/ drugs", "criminals NOT drugs"),
        ("nothing non-vegan pls, mask", "vegan AND mask"),
        ("deodorant aluminium-free", "deodorant NOT aluminium"),
        ("burger, hold the onions", "burger NOT onions"),
        ("flat, must not be furnished", "flat NOT furnished"),
        ("hotel without pool in lisbon", "hotel in lisbon NOT pool"),
        ("dogs without special needs, calm", "dogs calm NOT special needs"),
        ("backpacks with no wheels but with straps", "backpacks with straps NOT wheels"),
        ("dogs not in leeds but in york", "dogs in york NOT in leeds"),
        ("cats not black but grey", "cats grey NOT black"),
        ("no egg desserts", "NOT egg AND desserts"),
        ("no onions no garlic soup", "NOT onions NOT garlic AND soup"),
        ("soup but with cream", "soup AND cream"),
        ("lisbon or porto w/ parking", "lisbon w/ parking OR porto w/ parking"),
        ("birds NOT owls or ducks", "birds NOT owls NOT ducks"),
        ("tokyo or lisbon", "tokyo OR lisbon"),
        ("with pool, pets", "pool AND pets"),
        ("not IT", "everything NOT IT"),
        ("full time, not US", "full time NOT US"),
        ("no confirmation code", "everything NOT confirmation code"),
        ('"green curry" without chicken', "green curry NOT chicken"),
    ],
)
def test_typed_queries(text, expected):
    assert tree(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("desserts that are not without eggs", "desserts AND eggs"),
        ("pasta that isn't without meat", "pasta AND meat"),
        ("desserts not lacking sugar", "desserts AND sugar"),
        ("no breakfast without cheese", "breakfast AND cheese"),
        ("belgian ales, none without sugar", "belgian ales AND sugar"),
        ("don't show films without subtitles", "films AND subtitles"),
    ],
)
def test_two_negations_cancel_each_other(text, expected):
    assert tree(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pasta that isn't meat-free", "pasta AND meat NOT meat-free"),
        ("baking not gluten free", "baking AND gluten NOT gluten-free"),
        ("not alcohol free", "everything NOT alcohol free"),
        ("no sugar-free drinks", "sugar AND drinks NOT sugar-free"),
        ("smoke free with balcony", "NOT smoke AND with balcony"),
        ("a duty free shop, not a kiosk", "a duty free shop NOT a kiosk"),
        ("beer, alcohol free", "beer NOT alcohol"),
    ],
)
def test_what_is_not_free_of_something_is_excluded_for_saying_so(text, expected):
    assert tree(text) == expected
    assert read(text).warnings == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no fish please", ["fish"]),
        ("please no fish", ["fish"]),
        ("w/o nuts or eggs", ["nuts", "eggs"]),
        ("I don't want dairy", ["dairy"]),
        ("I hate mushrooms", ["mushrooms"]),
        ("im allergic to dairy", ["dairy"]),
        ("cant eat gluten", ["gluten"]),
        ("i'm not a fan of cheese", ["cheese"]),
        ("no pool no sauna please", ["pool", "sauna"]),
        ("no vw/bmw", ["vw", "bmw"]),
        ("no bmw, audi or mercedes", ["bmw", "audi", "mercedes"]),
        ("not in Africa, not in Asia", ["Africa", "Asia"]),
        ("neither strings, keys nor drums", ["strings", "keys", "drums"]),
        ("NEITHER CATS NOR DOGS, PLEASE", ["CATS", "DOGS"]),
        ("smoking not allowed", ["smoking allowed"]),
        ("outside germany", ["germany"]),
        ("must not have a garden", ["garden"]),
        ("which ones dont have a garden?", ["a garden"]),
        ("isnt toxic", ["toxic"]),
        ("nut-free", ["nut"]),
        ("anything but country music", ["country music"]),
        ("show me everything except horror or war", ["horror", "war"]),
    ],
)
def test_an_exclusion_alone_selects_from_everything(text, expected):
    assert tree(text) == " NOT ".join(["everything", *expected])


@pytest.mark.parametrize(
    "text",
    [
        "duty-free shops",
        "hands-free kit",
        "museum free admission",
        "rebel without a cause",
        "how to tune a guitar without a tuner",
        "pizza with or without cheese",
        "Men Without Women",
        "the man without a past",
        "doctors without borders",
        "Everything But the Girl",
        "If Not for You",
        "he is not in the office",
        "why I have not slept",
        "non-fiction books",
        "no-bake cookies",
        "not so sweet",
        "no country for old men",
        "No Woman, No Cry",
        "Neither Wolf nor Dog",
        "hold the line",
        "printer not printing",
        "app doesnt work",
        "password not accepted",
        "hotel with breakfast included",
        "flat where dogs are allowed",
        "estate with tow bar",
        "he who must not be named",
        "jeans vs shorts",
        "bread",
    ],
)
def test_other_texts_exclude_nothing(text):
    assert Operator.NOT not in operators_of(read(text).tree)


@pytest.mark.parametrize("text", ["everything", " All ", "anything"])
@pytest.mark.parametrize("mode", ["auto", "plain", "explicit"])
def test_everything_alone_is_all_documents(text, mode):
    for parser in (load_parser(), None):
        reader = QueryReader(parser, mode=mode)
        reading = reader.read(text)
        assert reading.tree == Everything(text.strip())
        assert (reading.fallback, reading.wording) == ("", "")
        assert reader.may_be_title(reading)
    reading = QueryReader(None, compose=False).read(text)
    assert reading.tree == Atom(text)


@pytest.mark.parametrize(
    ("text", "is_mixed"),
    [
        ("soup without cream AND noodles", True),
        ("birds NOT owls or ducks", True),
        ("rock and roll NOT jazz", False),
        ("rock AND NOT NOT jazz", False),
        ("cream OR sugar, but not (nuts)", False),  # explicit by its parentheses
        ('"not blue" AND red', False),
    ],
)
def test_plain_words_beside_capitals_are_plain_language(text, is_mixed):
    assert mixes_operators(text) is is_mixed
    assert QueryReader(load_parser()).uses_syntax(text) is not is_mixed
    assert QueryReader(load_parser(), mode="explicit").uses_syntax(text)
    assert QueryReader(None).uses_syntax(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vegetarian pasta", "vegetarian pasta NOT meat NOT seafood"),
        ("vegetarian or vegan cake", "(vegetarian cake OR vegan cake) NOT meat NOT seafood"),
        ("pasta that is not vegetarian", "pasta NOT vegetarian"),
        ("veggie burgers but not vegan", "veggie burgers NOT vegan NOT meat NOT seafood"),
        ("vegetarian-friendly restaurants", "vegetarian-friendly restaurants"),
        ("vegetarian AND pasta", "vegetarian AND pasta"),  # explicit
    ],
)
def test_what_a_word_excludes(text, expected):
    assert tree(text) == expected


def test_what_a_word_excludes_points_at_the_word():
    reading = read("pasta for pescatarian guests")
    assert implied_exclusions(reading.text) == [("meat", (10, 21))]
    assert reading.spans[-1] == ((10, 21),)


def test_nothing_is_excluded_between_quotes_or_without_composition():
    assert implied_exclusions('a "vegan" film') == []
    off = QueryReader(load_parser(), compose=False)
    for reader, reason in ((off, IS_OFF), (QueryReader(None), NO_PARSER)):
        reading = reader.read("vegan cake")
        assert (unparse(reading.tree), reading.fallback) == ("vegan cake", reason)
