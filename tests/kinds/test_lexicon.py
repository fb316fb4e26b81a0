"""The lexicon of kinds: what a text names, by kind."""

from __future__ import annotations

import pytest

from boolattn.errors import ConfigError, DataError
from boolattn.kinds.lexicon import Kinds, is_tag, load_kinds, read_kinds, related
from boolattn.stores.analysis import negated_spans

KINDS = load_kinds()
ASSERTED, DENIED, ABSENT = "asserted", "denied", "absent"


def claim(text, kind, kinds=KINDS):
    """Say what a text says of a kind."""
    tags = {tag for sense in kinds.senses(kind) for tag in sense}
    assert tags, f"{kind} is no kind"
    asserted, denied, _ = kinds.tags(text, negated_spans(text))
    assert asserted.isdisjoint(denied)
    return ASSERTED if tags & asserted else DENIED if tags & denied else ABSENT


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Whip the cream.", "dairy"),
        ("Contains dairy.", "dairy"),  # the product, not the farm
        ("a dog", "dog"),  # the animal, not its food
        ("a wolf", "animal"),
        ("two lemons", "citrus"),
        ("strawberries", "fruit"),
        ("wolves", "animal"),
        ("cherry tomatoes and olives", "vegetable"),
        ("peanut butter", "nut"),
        ("wine", "alcohol"),
        ("wine", "alcoholic"),
        ("crabs", "seafood"),  # a kind of shellfish, which is a kind of seafood
        # The name of a dish says what is in it.
        ("Grandma's beef stew", "meat"),
        ("Ham And Eggs", "meat"),
        ("clam chowder", "soup"),
        ("clam chowder", "seafood"),
        # What WordNet lacks.
        ("crispy bacon", "pork"),
        ("crispy bacon", "red meat"),
        ("turkey bacon", "meat"),
        ("a slice of feta", "cheese"),
        ("grilled tuna steak", "fish"),
        ("espresso", "caffeinated drinks"),
        ("offices in Stockholm", "Scandinavia"),
        ("offices in Kyiv", "former Soviet Union"),
        ("offices in Lima", "Latin America"),
        ("a tool written in Python", "programming language"),
        ("a MySQL client", "database"),
        ("Rip a DVD.", "disc"),
        ("fried chicken wings", "meat"),
        ("ground turkey", "poultry"),
        ("smoked salmon", "seafood"),
        ("Add some Gruyère.", "cheese"),
        ("a porcelain jar", "ceramics"),
        ("an old trombone", "wind instrument"),
        ("two armchairs", "furniture"),
        ("a grey hoodie", "clothes"),
        ("a used tram", "public transport"),
        ("naproxen 250 mg", "painkiller"),
        ("a sailing trip", "water sport"),
        ("wild salmon", "sea creature"),  # a listed fish has kinds of fish below it
        ("a spoon of mayonnaise", "eggs"),
        ("panko", "gluten"),
        ("teriyaki sauce", "soy"),
        ("Sold in Texas.", "North America"),
    ],
)
def test_a_thing_is_of_its_kind(text, kind):
    assert claim(text, kind) == ASSERTED


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        # The longest phrase wins: each has a word that is of the kind.
        ("coconut milk", "dairy"),
        ("peanut butter", "dairy"),
        ("a butternut squash", "dairy"),
        ("rice flour", "gluten"),
        ("Dust it with nutmeg.", "nut"),
        ("turkey bacon", "pork"),
        ("grilled tuna steak", "beef"),
        ("tortilla chips", "gluten"),
        # WordNet calls the Soviet Union Russia too, and Arabs are people.
        ("offices in Kyiv", "Russia"),
        ("offices in Cairo", "person"),
        ("brewed in the South of Germany", "North America"),
        ("herbal tea", "caffeine"),
        ("a tea towel", "caffeine"),
        ("roasted eggplant", "egg"),
        ("the cream, scheme and dream", "fish"),
        # People, and senses that are much rarer than the first.
        ("the human race", "animal"),
        ("a creature of the night", "animal"),
        ("two soldiers", "animal"),
        ("Cool it on a rack.", "meat"),
        ("trade with China", "island"),
        ("after Independence in 1960", "United States"),
        # A kind is not of the things of it.
        ("dairy", "cream"),
        ("a bag of dog food", "dog"),
    ],
)
def test_other_things_are_not(text, kind):
    assert claim(text, kind) == ABSENT


def test_a_longer_phrase_does_not_reach_over_punctuation():
    assert claim("Add coconut, milk and sugar.", "dairy") == ASSERTED
    assert claim("Add coconut milk and sugar.", "dairy") == ABSENT


@pytest.mark.parametrize(
    ("text", "is_country"),
    [
        ("They live in Jordan.", True),
        ("Jordan is dry.", True),
        ("a trip through jordan", False),  # no capital letter
        ("Jordan Peele made this film.", False),
        ("It was written by Jordan Peele.", False),
        ("the city of Michael Jordan", False),
        ("She eats turkey.", False),
        ("She lives in Turkey.", True),
    ],
)
def test_a_name_has_a_capital_letter_and_is_no_part_of_a_longer_name(text, is_country):
    assert (claim(text, "country") == ASSERTED) is is_country


def test_capital_letters_say_nothing_in_a_title():
    assert claim("CREAM OF MUSHROOM SOUP", "dairy") == ASSERTED
    assert claim("Lemon Ricotta Pancakes", "dairy") == ASSERTED
    assert claim("Lemon Ricotta Pancakes\nThey are light.", "dairy") == ASSERTED
    # Inside a sentence a noun with a capital letter is a name.
    assert claim("They named the dog Butter.", "dairy") == ABSENT


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        # Lists name these places too, without a capital letter.
        ("Weekend Trips to Lyon, France", "France", ASSERTED),
        ("Weekend Trips to Lyon, France", "Europe", ASSERTED),
        ("South Korea", "Asia", ASSERTED),
        ("Flats in London, United Kingdom", "Europe", ASSERTED),
        ("Rum from Barbados", "North America", ASSERTED),
        ("Made in China", "Asia", ASSERTED),
        ("Blue China Cups", "Asia", ABSENT),
        ("Turkey Sandwich", "Asia", ABSENT),
        ("Hotels In Turkey", "Asia", ASSERTED),
        ("Cranberries In Turkey Gravy", "meat", ASSERTED),  # it may be either
    ],
)
def test_a_title_that_names_a_place_is_of_it(text, kind, expected):
    assert claim(text, kind) == expected


@pytest.mark.parametrize("text", ["US", "in the US", "We went to LA.", "IN", "He is OK in MA."])
def test_an_abbreviation_of_two_letters_names_nothing(text):
    assert KINDS.tags(text)[:2] == (frozenset(), frozenset())


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("A dairy-free cake", "dairy", DENIED),
        ("Contains no nuts.", "nut", DENIED),
        ("Made without almonds.", "nut", DENIED),
        ("A nut-free bar with almonds on top", "nut", ASSERTED),
        ("No nuts, but cream.", "dairy", ASSERTED),
        # What is free of it is no thing of the kind.
        ("Alcohol-free sparkling Riesling", "alcohol", DENIED),
        ("non-alcoholic beer", "alcohol", DENIED),
        ("gluten and dairy free cheese", "dairy", DENIED),
        ("gluten and dairy free bread", "gluten", DENIED),
        ("Gluten-free bread, or bread of flour", "gluten", ASSERTED),
        ("Contains 50.0% alcohol", "alcohol", ASSERTED),
        ("Not good with cats or small animals.", "animal", DENIED),
        ("No nuts with cream.", "dairy", ASSERTED),
    ],
)
def test_what_a_text_negates_is_denied(text, kind, expected):
    assert claim(text, kind) == expected


@pytest.mark.parametrize("place", ["Germany", "Europe"])
def test_a_place_is_part_of_a_larger_one(place):
    assert claim("A cathedral in Cologne.", place) == ASSERTED
    assert claim("A tower in Ulm.", place) == ASSERTED  # of the list of cities
    assert claim("A tower in Lima.", place) == ABSENT
    assert claim("She wears cologne.", place) == ABSENT


def test_an_adjective_is_only_related_to_its_place():
    [[italy]] = KINDS.senses("Italy")
    asserted, *_ = KINDS.tags("An Italian song.")
    assert related(italy) in asserted
    assert italy not in asserted
    assert is_tag(italy)
    assert is_tag(related(italy))
    assert not is_tag("italy")


@pytest.mark.parametrize("noun", ["support", "action", "idea", "time", "", "xyzzy", "-"])
def test_abstract_nouns_and_unknown_words_have_no_senses(noun):
    assert KINDS.senses(noun) == []


def test_senses_of_one_class_are_one_and_others_are_apart():
    [dish_and_dough] = KINDS.senses("pasta")
    assert len(dish_and_dough) == 2
    bird, *others = KINDS.senses("turkey")
    [country] = KINDS.senses("Turkey")
    assert others
    assert country not in (bird, *others)


def test_a_list_of_members_is_of_each_sense():
    plant, food = KINDS.senses("soy")
    assert plant[-1] == food[-1]
    assert plant[-1] in KINDS.tags("teriyaki")[0]


def test_an_operand_is_split_into_phrases():
    assert [phrase for phrase, _ in KINDS.phrases("spicy peanut butter cookies")] == [
        "spicy",
        "peanut butter",
        "cookies",
    ]
    assert [bool(senses) for _, senses in KINDS.phrases("quickly peanut butter")] == [False, True]


def test_witnesses_are_the_words_of_the_text():
    [tags] = KINDS.senses("dairy")
    text = "Fold two yogurts into the cream, then more cream and coconut milk."
    assert KINDS.witnesses(text, tags) == ["yogurts", "cream"]
    assert KINDS.witnesses(text, []) == []


def test_a_users_members_extend_and_override():
    own = Kinds({"dairy": ["skyr"], "not dairy": ["cream soda"], "hot": ["chili", "habanero"]})
    assert claim("a cup of skyr", "dairy") == ABSENT
    assert claim("a cup of skyr", "dairy", own) == ASSERTED
    assert claim("cream", "dairy", own) == ASSERTED  # known ones stay
    assert claim("two habaneros", "hot", own) == ASSERTED  # a new kind
    assert claim("a cream soda", "dairy", own) == ABSENT
    # What a member has below it comes with it.
    assert claim("a dachshund", "friend", Kinds({"friend": ["dog"]})) == ASSERTED
    # A user's list is read after ours.
    assert claim("coconut milk", "dairy", Kinds({"dairy": ["coconut milk"]})) == ASSERTED


def test_the_digest_tells_lexicons_apart():
    digests = [Kinds(members).digest for members in ({}, {"a": ["b"]}, {"a": ["c"]}, None)]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3
    # The order in which a store writes them says nothing.
    first, second = Kinds({"b": ["x"], "a": ["y"]}), Kinds({"a": ["y"], "b": ["x"]})
    assert first.digest == second.digest
    assert (first.senses("a"), first.tags("x")) == (second.senses("a"), second.tags("x"))


def test_kinds_are_read_from_a_file(tmp_path):
    path = tmp_path / "kinds.txt"
    path.write_text("# ours\n\ndairy: skyr,  cream cheese ,\nnot dairy: oat milk  # no\ndairy: x\n")
    assert read_kinds(path) == {"dairy": ["skyr", "cream cheese", "x"], "not dairy": ["oat milk"]}


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "kinds.txt"
    path.write_bytes(b"dairy: skyr\xff")
    with pytest.raises(DataError, match="not UTF-8 text"):
        read_kinds(path)


@pytest.mark.parametrize("line", ["skyr", "dairy:", "dairy: ,", ": skyr", "-: skyr"])
def test_a_bad_line_is_refused_with_its_file_and_number(tmp_path, line):
    path = tmp_path / "kinds.txt"
    path.write_text(f"dairy: skyr\n{line}\n")
    with pytest.raises(ConfigError, match=rf"{path}:2: not a kind, as 'dairy: butter, cream' is"):
        read_kinds(path)


def test_a_users_word_counts_inside_a_longer_phrase():
    kinds = Kinds({"office machine": ["printer"]})
    for text in ("a laser printer", "Laser printers", "printer"):
        assert claim(text, "office machine", kinds) == ASSERTED
        assert claim(text, "printer", kinds) == ASSERTED
    assert claim("a laser", "office machine", kinds) == ABSENT
    # What is listed as something else stays that.
    for added in ({}, {"not spread": ["laser butter"]}):
        kinds = Kinds({"spread": ["butter"]} | added)
        assert claim("peanut butter", "spread", kinds) == ABSENT
        assert (claim("laser butters", "spread", kinds) == ABSENT) is bool(added)


def test_a_list_under_a_name_adds_to_what_the_name_means():
    [upper], [lower] = load_kinds().senses("Asia"), load_kinds().senses("asia")
    assert upper == lower
    for text in ("Oman", "Borneo", "the steppe of Central Asia"):
        assert not load_kinds().tags(f"A visit to {text}.")[0].isdisjoint(upper)
    assert load_kinds().tags("A visit to Peru.")[0].isdisjoint(upper)


def test_a_river_of_several_countries_is_of_none():
    [river], [country] = load_kinds().senses("river"), load_kinds().senses("Romania")
    tags, *_ = load_kinds().tags("A hotel on the Danube in Vienna.")
    assert not tags.isdisjoint(river)
    assert tags.isdisjoint(country)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("a spider", "insect"), ("a lion", "pet"), ("a tiger", "cat"), ("Peru", "USA")],
)
def test_a_longer_list_says_nothing_of_wider_kinds(text, kind):
    assert claim(text, kind) == ABSENT
