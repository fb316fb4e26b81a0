"""Plain queries that are rewritten before they are parsed, and those that must not be."""

from __future__ import annotations

import pytest

from boolattn.query.parser import load_parser
from boolattn.query.reading import IS_OFF, NO_PARSER, QueryReader
from boolattn.query.rewriting import (
    after_everything,
    implied_exclusions,
    mixes_operators,
    read_negated_form,
    rewrite,
    with_exclusion_last,
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
        ("non alcoholic drinks", "NOT alcoholic AND drinks"),
        ("Jobs in York, no experience needed", "Jobs in York NOT experience"),
        ("jobs with no driving licence required.", "jobs NOT driving licence"),
        ("anything but country music", "anything NOT country music"),
        ("Show me everything except for horror films!", "everything NOT horror films"),
        ("broken things, not in the kitchen", "broken things NOT kitchen"),
        ("broken things but not in a kitchen,", "broken things NOT kitchen"),
        ("stuff that is not from the attic", "stuff NOT attic"),
        ("network tools not for windows", "network tools NOT windows"),
        ("books I have not read", "books NOT read"),
        ("films that I've never watched before", "films NOT watched"),
        ("Recipes by Anna which we haven't cooked yet.", "Recipes by Anna NOT cooked"),
        ("ways to get around without flying", "ways to get around NOT flying"),
        ("a phone that works without internet", "a phone that works NOT internet"),
        ("tastes like wine but no fruit in it", "tastes like wine NOT fruit"),
        ("damage, no fire", "damage NOT fire"),
        ("damage - no fire", "damage NOT fire"),
        ("damage spells with no fire", "damage spells NOT fire"),
        ("damage without fire", "damage NOT fire"),
        ("damage     , no fire", "damage NOT fire"),
        ("nurse no nights", "nurse NOT nights"),
    ],
)
def test_known_forms_are_read(text, expected):
    assert unparse(read_negated_form(text).tree(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "duty-free shops",
        "hands-free",
        "rebel without a cause",
        "how to tune a guitar without a tuner",
        "free bread",
        "no experience needed",
        "bread",
        "flights, no matter when",
        "piano concerto, no 2",
        "pizza with or without cheese",
        "if no rain, no flowers",
        "Men Without Women",
        "the man without a past",
        "doctors without borders",
        "Everything But the Girl",
        "anything goes",
        "If Not for You",
        "But Not for Me",
        "he is not in the office",
        "whether or not in love",
        "why I have not slept",
        "places I have never been",
        # What costs nothing.
        "museum free admission",
        "parking free of charge",
        "things that are free",
        "how to break free",
        # "non" is a part of the word.
        "non-fiction books",
        "non stick pans",
    ],
)
def test_other_forms_are_left_alone(text):
    assert read_negated_form(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("desserts that are not without eggs", "desserts AND eggs"),
        ("pasta that isn't meat-free", "pasta AND meat"),
        ("desserts not lacking sugar", "desserts AND sugar"),
        ("no breakfast without cheese", "breakfast AND cheese"),
        ("burger, hold the onions", "burger NOT onions"),
        ("belgian ales, none without sugar", "belgian ales AND sugar"),
        ("no recipe that lacks garlic", "recipe AND garlic"),
        ("don't show films without subtitles", "films AND subtitles"),
    ],
)
def test_two_negations_cancel_each_other(text, expected):
    rewritten = rewrite(text)
    assert len(rewritten) == len(text)
    reading = read(text)
    assert unparse(reading.tree) == expected
    for atom, [(start, end)] in zip(atoms(reading.tree), reading.spans, strict=True):
        assert text[start:end] == atom.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broken things (not in the kitchen)", "broken things NOT kitchen"),
        ("all books", "books"),
        ("All my Italian recipes", "All my Italian recipes"),
        ("all of the italian recipes", "italian recipes"),
        ("all weather jackets", "all weather jackets"),
        ("All Saints", "All Saints"),
        (
            "please list everything except the notes about work",
            "everything NOT the notes about work",
        ),
        ("I am moving and want everything except furniture", "everything NOT furniture"),
        ("show me everything except horror or war", "everything NOT horror NOT war"),
        ("No Direction Home", "No Direction Home"),
    ],
)
def test_more_wordings(text, expected):
    assert len(rewrite(text)) == len(text)
    assert tree(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("salads without cheese, with nuts and fruit", "salads nuts AND salads fruit NOT cheese"),
        ("recipes without eggs and with bananas", "recipes with bananas NOT eggs"),
        ("backpacks with no wheels but with straps", "backpacks with straps NOT wheels"),
        ("burgers minus mayo plus bacon", "burgers AND bacon NOT mayo"),
        (
            "laptop no touchscreen with backlit keyboard",
            "laptop with backlit keyboard NOT touchscreen",
        ),
        # One thing is excluded.
        ("films without actors with british accents", "films NOT actors with british accents"),
        ("sugar and gluten free cookies", "cookies NOT sugar NOT gluten"),
        ("nut or dairy free snacks for kids", "snacks for kids NOT nut NOT dairy"),
        ("dinners that are soy-, nut- and gluten-free", "dinners NOT soy NOT nut NOT gluten"),
        ("sulfate- and paraben-free shampoo", "shampoo NOT sulfate NOT paraben"),
        ("museums with free entry and free wifi", "museums free entry AND museums free wifi"),
    ],
)
def test_what_is_wanted_may_stand_after_what_is_excluded(text, expected):
    assert tree(text) == expected
    reading = read(text)
    for atom, spans in zip(atoms(reading.tree), reading.spans, strict=True):
        assert " ".join(text[start:end].strip() for start, end in spans) == atom.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nut-free", "everything NOT nut"),
        ("sugar free please!", "everything NOT sugar"),
        ("neither poison nor gas", "everything NOT poison NOT gas"),
        ("NEITHER CATS NOR DOGS, PLEASE", "everything NOT CATS NOT DOGS"),
        ("duty-free", "duty-free"),
        ("Neither Wolf nor Dog", "Neither Wolf nor Dog"),  # a title
    ],
)
def test_two_forms_say_only_what_is_not_wanted(text, expected):
    assert tree(text) == expected


def test_a_list_of_what_is_free_of_it_may_stand_alone():
    assert tree("gluten and dairy free") == "everything NOT gluten NOT dairy"


def test_long_texts_are_not_put_in_another_order():
    text = "salads without cheese, with nuts"
    assert with_exclusion_last(text)
    assert with_exclusion_last(text + " and fruit" * 27) is None


def test_nothing_but_is_only():
    assert tree("nothing but pizza") == tree("nothing other than pizza") == "pizza"
    assert tree("nothing") == '"nothing"'


def test_not_before_a_preposition_excludes():
    assert tree("broken things, not in the kitchen") == "broken things NOT kitchen"
    assert tree("network tools not for windows") == "network tools NOT windows"


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
    "text",
    [
        "desserts without eggs",
        "desserts that are not sweet",
        "no eggs, without nuts",
        "nothing without a reason, not even love",
        "hold the line",
        "sugar-free",
    ],
)
def test_one_negation_stays(text):
    assert rewrite(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "hotel with breakfast included",
        "flat where dogs are allowed",
        "electric, battery included",
        "a tour of the old town and booking is required",
        "flat incl. kitchen",
        "estate with tow bar",
        "I don't mind nights",
        "hotel with breakfast possible",
        "woman no cry",
        "boku no hero academia",
        "he who must not be named",
        "not now but soon",
        "s\u0131x rooms",  # a letter that only looks like an i
        "with pool, pets",
        "including pool, parking",
        "pool; pets",
        "spa hotel (with pool)",
        "laptop - gaming",
        "find sauna, gym",
        "why not both",
        "not sure if dress or skirt",
        "hands-free jacket",
        "jeans vs shorts",
        "must not fail",
        "Gone but Not Forgotten",
    ],
)
def test_a_word_that_only_looks_like_a_negation_is_none(text):
    assert Operator.NOT not in operators_of(read(text).tree)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs with no driving licence required", "jobs NOT driving licence"),
        ("hotel with breakfast included but no pets allowed", "hotel with breakfast NOT pets"),
        ("estate without tow bar", "estate NOT tow bar"),
        ("anything bar pizza", "anything NOT pizza"),
        ("flat w/out balcony", "flat NOT balcony"),
        ("must not be in berlin", "everything NOT in berlin"),
        ("can't work on weekends", "everything NOT on weekends"),
        ("not automatic but with sunroof", "NOT automatic AND with sunroof"),
        ("not a van but an estate", "NOT a van AND an estate"),
        (
            "hotels that are not expensive and have a pool",
            "hotels with a pool NOT hotels expensive",
        ),
        ("flat, must not be furnished", "flat NOT furnished"),
        ("used books not novels", "used books NOT novels"),
        ("berlin !hostel", "berlin NOT hostel"),
        # No contractions, though they end in "nt".
        ("apartment without balcony", "apartment NOT balcony"),
        ("restaurant not in Berlin", "restaurant NOT restaurant in Berlin"),
        ("plant w/o soil", "plant NOT soil"),
        ("a plant not safe for dogs", "a plant NOT safe for dogs"),
        ("plants that arent toxic", "plants NOT plants toxic"),
        ("isnt toxic", "everything NOT toxic"),
        ("dog that doesn't bark", "dog NOT bark"),
        ("non-toxic, not big", "everything NOT toxic NOT big"),
        ("dogs not in leeds but in york", "dogs in york NOT dogs in leeds"),
        ("cats not black but grey", "cats grey NOT cats black"),
        ("everything but the jeans", "everything NOT the jeans"),
        ("tree, not fussy", "tree NOT fussy"),
        ("plants that survive without water", "plants that survive NOT water"),
        ("performance but not memory", "performance NOT memory"),
        ("crash except printing", "crash NOT printing"),
        ("crash not open", "crash NOT open"),
        ("with pool, no pets", "with pool NOT pets"),
        ("no sales, no marketing,", "everything NOT sales NOT marketing"),
        ("all days bar Monday", "days NOT Monday"),
    ],
)
def test_a_negation_beside_such_a_word_stays(text, expected):
    assert tree(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no fish please", "everything NOT fish"),
        ("please no fish", "everything NOT fish"),
        ("nothing with fish", "everything NOT fish"),
        ("without nuts", "everything NOT nuts"),
        ("I don't want dairy", "everything NOT dairy"),
        ("I hate mushrooms", "everything NOT mushrooms"),
        ("exclude horror", "everything NOT horror"),
        ("no meat no fish", "everything NOT meat NOT fish"),
        ("neither meat nor fish", "everything NOT meat NOT fish"),
        ("not vegetarian", "everything NOT vegetarian"),
    ],
)
def test_an_exclusion_alone_selects_from_everything(text, expected):
    reading = read(text)
    assert unparse(reading.tree) == expected
    first, *others = reading.spans
    assert first == ()
    negated = list(atoms(reading.tree))[1:]
    assert [text[start:end] for [(start, end)] in others] == [atom.text for atom in negated]


@pytest.mark.parametrize(
    "text",
    [
        "no-bake cookies",
        "no knead bread",
        "not so sweet",
        "not only jazz",
        "non-fiction books",
        "No Country for Old Men",
        "Never Let Me Go",
        "hold the line",
        "skip the dishes",
        "soup without fish",  # has something else to select from
    ],
)
def test_other_texts_are_no_exclusion_alone(text):
    assert not tree(text).startswith("everything")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no strings, no keys", "everything NOT strings NOT keys"),
        ("not in Africa, not in Asia", "everything NOT Africa NOT Asia"),
        ("without pool and without sauna", "everything NOT pool NOT sauna"),
        ("no pool no sauna please", "everything NOT pool NOT sauna"),
        ("no keys or strings", "everything NOT keys NOT strings"),
        ("neither strings, keys nor drums", "everything NOT strings NOT keys NOT drums"),
        (
            "houses neither in France nor in Spain nor in Italy",
            "houses NOT France NOT Spain NOT Italy",
        ),
        ("no children", "everything NOT children"),
        ("not not violins", "violins"),
        ("No Woman, No Cry", "No Woman, No Cry"),
        ("not only dogs, not only cats", "dogs AND cats"),
        ("no country for old men", "no country for old men"),
    ],
)
def test_lists_of_exclusions_are_read(text, expected):
    assert tree(text) == expected


def test_an_exclusion_begins_the_text():
    assert after_everything("soup, no fish") is None
    assert after_everything("ok, no fish") == "everything     no fish"


@pytest.mark.parametrize(
    ("text", "is_mixed"),
    [
        ("soup without cream AND noodles", True),
        ("rock and roll NOT jazz", False),
        ("rock AND NOT NOT jazz", False),
        ("cream OR sugar, but not (nuts)", False),  # explicit by its parentheses
        ('"not blue" AND red', False),
    ],
)
def test_plain_negation_beside_capitals_is_plain_language(text, is_mixed):
    assert mixes_operators(text) is is_mixed
    assert QueryReader(load_parser()).uses_syntax(text) is not is_mixed
    assert QueryReader(load_parser(), mode="explicit").uses_syntax(text)
    assert QueryReader(None).uses_syntax(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vegetarian pasta", "vegetarian pasta NOT meat NOT seafood"),
        ("Meatless Monday ideas", "Meatless Monday ideas NOT meat"),
        ("eggless or flourless cake", "eggless cake OR flourless cake"),  # each lacks another thing
        ("vegetarian or vegan cake", "(vegetarian cake OR vegan cake) NOT meat NOT seafood"),
        ("pasta that is not vegetarian", "pasta NOT pasta vegetarian"),
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


@pytest.mark.parametrize("text", ["no" + " " * 900 + "x", "no a" + " " * 990 + "b"])
def test_a_text_with_much_space_is_not_rewritten(text):
    assert read(text).text == text  # patterns would take seconds
