"""Values of the metadata that a query names; shipped model."""

from __future__ import annotations

import pytest

from boolattn.kinds.lexicon import load_kinds
from boolattn.query.tree import Atom
from boolattn.search import Searcher
from boolattn.search.evidence import LexicalEvidence
from boolattn.search.exclusion import Exclusion
from boolattn.stores.analysis import land_tags, value_tags
from boolattn.stores.filters import Filter

#: Their texts say nothing of the values, or the opposite.
HOTELS = (
    {"id": "adler", "text": "Rooms with a view of the river.", "city": "Hamburg", "pool": "no"},
    {"id": "lake", "text": "Quiet house, sauna and bicycles.", "city": "Berlin", "pool": "yes"},
    {"id": "inn", "text": "Trains to Hamburg every hour.", "city": "Berlin", "pets_allowed": True},
    {"id": "villa", "text": "A garden and home-made cakes.", "city": "Munich", "pool": True},
    {"id": "bar", "text": "Bar, conference hall.", "city": "New York", "pets_allowed": False},
    {"id": "den", "text": "A den.", "tags": ["wood elf", "cheap"], "note": "Hamburg " * 10},
)


@pytest.fixture(scope="module")
def searcher():
    return Searcher.from_texts(HOTELS)


def ids(searcher, query, n, **options):
    return {hit.id for hit in searcher.search(query, n, **options).hits}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Hamburg", {"adler"}),  # not the one whose text names it
        ("hotel in new york", {"bar"}),
        ("with pool", {"lake", "villa"}),
        ("pets allowed", {"inn"}),
        ("wood elves", {"den"}),
        ("berlin or munich", {"lake", "inn", "villa"}),
        ("pool in Munich", {"villa"}),
    ],
)
def test_a_document_with_the_value_ranks_first(searcher, query, expected):
    assert ids(searcher, query, len(expected)) == expected
    assert ids(searcher, query, len(expected), kinds=False) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("in Germany", {"adler", "lake", "inn", "villa"}),
        ("germany", {"adler", "lake", "inn", "villa"}),
        ("the United States", {"bar"}),
    ],
)
def test_a_value_inside_a_place_that_is_asked_for_ranks_first(searcher, query, expected):
    # A text that names the place need not be in it.
    guide = {
        "id": "guide",
        "text": "Houses in Germany and the United States. " * 3,
        "city": "Paris",
    }
    towns = Searcher.from_texts([*HOTELS, guide], searcher.encoder)
    assert ids(towns, query, len(expected)) == expected
    assert ids(towns, query, len(expected), kinds=False) != expected


def test_a_place_counts_once_beside_a_category():
    rows = (("hb", "hotel", "Berlin"), ("mb", "museum", "Berlin"), ("hm", "hotel", "Munich"))
    text = "Near the hotel quarter, with a view of the river."
    houses = [{"id": name, "text": text, "category": c, "city": city} for name, c, city in rows]
    towns = Searcher.from_texts(houses)
    for query in ("hotels in Berlin", "hotel Berlin"):
        assert [hit.id for hit in towns.search(query, 1).hits] == ["hb"]
    for value in ("worldwide except France", "Paris Hilton", "Nancy Drew"):
        assert [*land_tags(value, load_kinds())] == []
    around, kinds = {*land_tags("Berlin", load_kinds())}, load_kinds()
    assert around.isdisjoint(*kinds.senses("Berlin"))
    assert not around.isdisjoint(*kinds.senses("Germany"))
    assert [*land_tags("Lyon, France", kinds)]


def test_a_noun_of_places_names_none(searcher):
    with searcher.store.reading() as reader:
        for words, is_name in (("countries", False), ("germany", True)):
            tree = Atom(words)
            [terms] = Exclusion(tree, reader).terms()
            assert any(term.startswith("=#") for term in terms) is is_name


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("without pool", {"adler", "inn", "bar", "den"}),
        ("not cheap", {"adler", "lake", "inn", "villa", "bar"}),
    ],
)
def test_a_document_with_an_excluded_value_is_left_out(searcher, query, expected):
    assert ids(searcher, query, 9) == expected


def test_values_count_as_words_do(searcher):
    plain = [hit.score for hit in searcher.search("Hamburg", 9, hybrid=False).hits]
    bare = Searcher.from_texts([{"id": row["id"], "text": row["text"]} for row in HOTELS])
    without = [hit.score for hit in bare.search("Hamburg", 9, hybrid=False).hits]
    assert plain == pytest.approx(without)
    assert ids(bare, "Hamburg", 1) == {"inn"}


@pytest.mark.parametrize(("most", "expected"), [(2, 0), (3, 2)])
def test_a_value_of_more_documents_than_are_listed_says_nothing(searcher, most, expected):
    with searcher.store.reading() as reader:
        reader.max_word_hits = most
        _, named = LexicalEvidence.of(reader, [value_tags("Berlin")], Filter()).answers
        assert len(named.rows) == expected


def test_a_text_may_name_its_words_and_pairs_of_them():
    pairs = ["=red wood", "=wood elf"]
    assert value_tags("a red wood elf") == ["=red", "=wood", "=elf", *pairs, "=red wood elf"]
    assert value_tags("The") == []


WINES = (
    {"id": "bordeaux", "text": "Tannic.", "tags": ["red", "dry"]},
    {"id": "port", "text": "From the Douro.", "tags": ["red", "sweet"]},
    {"id": "chablis", "text": "Flinty.", "tags": ["white", "dry"]},
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("no red wines", {"bordeaux", "port"}),
        ("no sweet red wines", {"port"}),  # both values
        ("wines, no red ones", {"bordeaux", "port"}),
    ],
)
def test_of_an_exclusion_alone_the_values_count(query, expected):
    result = Searcher.from_texts(WINES).search(query, 9)
    assert {document.id for document in result.left_out} == expected
    assert {hit.id for hit in result.hits} == {row["id"] for row in WINES} - expected
    assert all(document.why.startswith("it mentions '") for document in result.left_out)


def test_no_pool_in_berlin_leaves_out_no_place():
    result = Searcher.from_texts(HOTELS).search("no pool in berlin", 9)
    assert [document.id for document in result.left_out] == ["lake"]


@pytest.mark.parametrize(
    ("query", "notes"),
    [
        ("white under 15", ["'under 15' fits alcohol and price, so it is text; name one of them"]),
        (
            "white, price under 15",
            ["'price under 15' was read as price<15; between quotes it is text"],
        ),
        ("top 10 wines", []),
        ("wines over 25", ["'over 25' was read as price>25; between quotes it is text"]),
    ],
)
def test_a_number_that_two_fields_fit_is_named(query, notes):
    rows = [{"text": "Wine.", "price": price, "alcohol": price / 2} for price in (8, 20, 30)]
    assert [*Searcher.from_texts(rows).search(query).notes] == notes


def test_a_false_field_denies_what_its_name_is():
    rows = [
        {"id": "trench", "title": "Trench coat", "text": "Of cotton.", "waterproof": "no"},
        {"id": "boots", "title": "Boots", "text": "Of rubber.", "waterproof": True},
    ]
    searcher = Searcher.from_texts(rows, kinds={"waterproof": ["trench coat"]})
    assert [document.id for document in searcher.search("not waterproof").left_out] == ["boots"]
    bare = Searcher.from_texts(
        [rows[0] | {"waterproof": ""}], kinds={"waterproof": ["trench coat"]}
    )
    assert [document.id for document in bare.search("not waterproof").left_out] == ["trench"]


def test_a_vegan_jacket_excludes_no_honey():
    clothes = Searcher.from_texts(["A vegan jacket.", "Boots of leather.", "A wool skirt."])
    assert str(clothes.search("vegan jacket").tree_text) == "vegan jacket"
    food = Searcher.from_texts(["Vegan soup of beans.", "Chicken soup.", "Cake with butter."])
    assert "NOT meat" in food.search("vegan soup").tree_text


def test_a_place_is_no_name_of_the_things():
    rows = [
        {"id": "nurse", "text": "A nurse for a ward in Leeds.", "kind": "job"},
        {"id": "cook", "text": "A cook in Hull.", "kind": "job"},
    ]
    result = Searcher.from_texts(rows).search("no jobs leeds")
    assert "cook" in {hit.id for hit in result.hits}


def test_a_field_that_is_true_is_a_word_of_the_query(searcher):
    result = searcher.search("with pool", 2)
    assert all(map(result.has_words, result.hits))
    assert not result.warnings


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("cat no long coat", {"tom"}),
        ("cat w/o long hair", {"tom"}),
        ("accident free", {"tom", "rex"}),
        ("no accident", {"tom", "rex"}),
        ("untrained", {"leo"}),
        ("cat, not untrained", {"tom"}),
    ],
)
def test_values_exclude_beside_what_is_wanted(query, expected):
    pets = [
        {"id": "tom", "text": "Tom is a cat.", "trained": True, "accident_free": "yes"},
        {
            "id": "leo",
            "text": "Leo is a cat.",
            "coat": "long",
            "trained": "no",
            "accident_free": "no",
        },
        {"id": "rex", "text": "Rex is a dog.", "coat": "short", "trained": True},
    ]
    assert ids(Searcher.from_texts(pets), query, len(expected)) == expected


def test_it_in_capitals_is_a_word_and_no_pronoun():
    searcher = Searcher.from_texts(
        [
            {"id": "support", "title": "IT support in a school", "text": "Forgotten passwords."},
            {"id": "coder", "title": "Programmer", "text": "Remote.", "department": "IT"},
            {"id": "nurse", "title": "Nurse", "text": "Night shifts. It pays well."},
            {"id": "poster", "title": "Cook", "text": "LOVE IT OR LEAVE"},
        ]
    )
    result = searcher.search("no IT")
    assert {hit.id for hit in result.hits} == {"nurse", "poster"}
    assert {left.why for left in result.left_out} == {"it mentions 'IT'"}
    assert ids(searcher, "IT jobs", 2) == {"support", "coder"}
    assert ids(searcher, "shifts but not it", 4) >= {"support", "nurse"}
