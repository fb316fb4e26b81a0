"""Queries that people type, over recipes, jobs, films, countries and packages; shipped model."""

from pathlib import Path

import pytest

from boolattn.search import Searcher, load_model
from boolattn.search.pipeline import FAR
from boolattn.stores.document_files import read_documents

CURRIES = ("butter", "chana", "palak")


@pytest.fixture(scope="module")
def everyday(tmp_path_factory):
    documents = read_documents(Path(__file__).with_name("everyday.csv"))
    folder = tmp_path_factory.mktemp("everyday") / "index"
    return Searcher.build(folder, documents, load_model("shipped"), model="shipped")


@pytest.mark.parametrize(
    ("query", "first", "never"),
    [
        ("curry without coconut", CURRIES, ("green", "massaman", "macaroons")),
        # The negated operand has the head noun of the positive one.
        ("curry NOT curry coconut", CURRIES, ("green", "massaman", "macaroons")),
        ("curry but not coconut curry", CURRIES, ("green", "massaman", "macaroons")),
        (
            "which nursing jobs are not in Germany?",
            ("nurse_zurich", "nurse_vienna", "nurse_oslo"),
            ("nurse_berlin", "nurse_munich"),
        ),
        # These advertisements and recipes say themselves what they lack.
        ("jobs in Leeds without driving licence", ("cleaner", "picker"), ("driver", "trucker")),
        ("nursing jobs NOT German required", ("nurse_oslo", "nurse_zurich"), ("nurse_berlin",)),
        ("desserts without nuts", ("sorbet", "macaroons", "tiramisu"), ("brownies", "baklava")),
        ("desserts that are nut-free", ("sorbet", "macaroons"), ("brownies", "baklava")),
        ("audio tools without mp3 support", ("opus", "flac"), ("lame", "sox")),
        ("science fiction films that are not horror", ("martian", "arrival"), ("alien",)),
        (
            "Southern Europe except Italy, Spain, and Greece",
            ("portugal", "croatia"),
            ("italy", "spain", "greece"),
        ),
        ("desserts without dairy", ("sorbet", "macaroons"), ("pudding", "tiramisu")),
    ],
)
def test_not_keeps_what_fits_and_drops_what_is_excluded(everyday, query, first, never):
    result = everyday.search(query, k=20)
    found = [hit.id for hit in result.hits]
    assert result.is_composed
    assert any(result.is_negated)
    assert set(found[: len(first) + 2]) >= set(first)
    assert set(found).isdisjoint(never)


def test_a_place_that_a_document_names_is_part_of_a_negated_one(everyday):
    # Malta is "south of Sicily".
    query = "Southern Europe except Italy, Spain, and Greece"
    result = everyday.search(query)
    assert ("malta", "Sicily is Italy", "Sicily") in {
        (document.id, document.why, document.word) for document in result.left_out
    }
    for options in ({"allow": ["sicily"]}, {"kinds": False}):
        found = [hit.id for hit in everyday.search(query, k=20, **options).hits]
        assert "malta" in found[:3]
        assert "italy" not in found


@pytest.fixture(scope="module")
def loans():
    texts = {
        "house": "A loan for a house. We ask for a deposit of ten percent.",
        "car": "Loans: a loan for a car, paid back in five years.",
        "student": "Students pay their loan back. No deposit is needed.",
        "long": "A loan for farms. No deposit is needed." + " The farm is valued each year." * 210,
        "cake": "Cake with apples.",
        "bike": "A bike for rent.",
        "card": "A card for the cash machine.",
    }
    assert len(texts["long"]) > 6000
    return Searcher.from_texts([{"id": name, "text": text} for name, text in texts.items()])


@pytest.mark.parametrize("k", [1, 2, 10])
@pytest.mark.parametrize("query", ["loan without deposit", "no deposit"])
def test_what_a_document_says_that_it_lacks_comes_first(loans, query, k):
    assert [hit.id for hit in loans.search(query, k=k).hits][:1] == ["student"]


def test_only_not_raises_it_and_not_in_a_long_text(loans):
    assert loans.search("loan").hits[0].id == "car"
    scores = {hit.id: hit.score for hit in loans.search("no deposit").hits}
    assert scores["student"] == pytest.approx(1, abs=0.01)
    assert scores["long"] <= 0
    assert "house" not in scores


def test_pages_hold_every_document_once_wherever_one_says_what_it_lacks():
    texts = {f"h{n}": f"A {'quiet' if n % 3 else 'loud'} hotel on hill {n}." for n in range(160)}
    texts |= {"none": "A quiet hotel. No dogs.", "dogs": "A quiet hotel. Dogs welcome."}
    searcher = Searcher.from_texts([{"id": n, "text": text} for n, text in texts.items()])
    for query in ("quiet hotels without dogs", "no dogs"):
        pages = [searcher.search(query, 20, offset=offset).hits for offset in range(0, 180, 20)]
        found = [hit.id for page in pages for hit in page]
        assert sorted(found) == sorted(texts.keys() - {"dogs"})
        assert found[0] == "none"
        for options in ({"k": 1}, {"k": 50}, {"facets": True}):
            assert searcher.search(query, **options).hits[0].id == "none"


def test_what_a_document_lacks_undoes_no_other_exclusion():
    cakes = {
        "plain": "A sponge cake with lemon.",
        "both": "A carrot cake. No nuts. Very expensive, 90 euros.",
        "nuts": "A carrot cake with nuts.",
        "tart": "A tart of apples.",
        "not": "An almond cake that is not nut-free.",
    }
    searcher = Searcher.from_texts([{"id": n, "text": text} for n, text in cakes.items()])
    assert searcher.search("cake without nuts").hits[0].id == "both"
    result = searcher.search("cake without nuts", negative=["expensive"])
    assert {left.id for left in result.left_out} == {"nuts", "both", "not"}
    assert result.hits[0].id == "plain"


def test_a_small_collection_has_few_documents_that_fit(everyday):
    result = everyday.search("curry without coconut", k=20)
    assert {hit.id for hit in result.hits if hit.fits} == set(CURRIES)
    # Every pasta has nuts or eggs.
    result = everyday.search("pasta without nuts or eggs")
    assert {hit.verdict for hit in result.hits} == {"doubtful"}
    assert result.warnings == (FAR,)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("everything NOT film", {}),
        ("everything except films", {}),
        ("anything that is not a film", {}),
        ("everything", {"negative": ["film"]}),
        ("everything NOT film", {"hybrid": False}),
    ],
)
def test_everything_is_all_documents_and_not_a_word(everyday, query, options):
    films = {hit.id for hit in everyday.search("film", k=9).hits}
    found = [hit.id for hit in everyday.search(query, k=60, **options).hits]
    assert set(found).isdisjoint(films)
    assert len(found) == len(everyday) - len(films) == 44
    found = everyday.search(query, k=60, strict_not=False, **options).hits
    assert {hit.id for hit in found[-len(films) :]} == films
    assert all(hit.fits for hit in found)


def test_what_says_itself_that_it_lacks_a_negated_operand_does_not_match_it(everyday):
    for query, name in (
        ("desserts without nuts", "sorbet"),
        ("jobs in Leeds NOT driving", "picker"),
    ):
        [hit] = [hit for hit in everyday.search(query).hits if hit.id == name]
        assert (hit.verdict, max(hit.exceeds)) == ("kept", 0)
        [hit] = [hit for hit in everyday.search(query, strict_not=False).hits if hit.id == name]
        assert max(hit.exceeds) > 0


@pytest.mark.parametrize(
    ("query", "options", "note"),
    [
        ("Come and See", {}, "'and' is no operator here: it was read as one phrase"),
        ("curry without coconut", {"compose": False}, "'without' is no operator here: composition"),
        ("(curry not coconut) AND rice", {}, "'not' is no operator here: in explicit syntax only"),
        ("Butter chicken or not", {}, "'or'"),
    ],
)
def test_a_cue_word_that_is_not_obeyed_is_never_invisible(everyday, query, options, note):
    [warning] = everyday.search(query, **options).warnings
    assert warning.startswith(note)


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("no jobs in Leeds", {"cleaner", "picker", "driver", "trucker"}),
        ("everything except jobs in Leeds", {"cleaner", "picker", "driver", "trucker"}),
        ("no american films", {"private"}),
    ],
)
def test_of_what_alone_is_excluded_the_place_counts(everyday, query, places):
    hits = {hit.id for hit in everyday.search(query, k=60).hits}
    assert hits.isdisjoint(places)
    assert {"chef", "nurse_oslo", "alien"} <= hits


def test_queries_in_threads_are_answered_as_each_alone(everyday, monkeypatch):
    monkeypatch.setattr("boolattn.search.searcher.default_threads", lambda: 3)
    queries = ["curry", "curry without coconut", "jobs in Leeds", "film", "desserts not with nuts"]
    together = everyday.search_many(queries, k=4)
    alone = [everyday.search(query, k=4) for query in queries]
    assert [result.query for result in together] == queries
    for batched, single in zip(together, alone, strict=True):
        assert [hit.id for hit in batched.hits] == [hit.id for hit in single.hits]
        assert [hit.verdict for hit in batched.hits] == [hit.verdict for hit in single.hits]


def test_hybrid_search_and_strict_not_are_used_where_they_can_be(everyday):
    plain, negated = everyday.search_many(["curry", "curry without coconut"])
    assert (plain.hybrid, plain.strict_not) == (True, False)
    assert plain.why_one_vector == "no and / or / not found"
    assert (negated.hybrid, negated.strict_not, negated.warnings) == (True, True, ())
    found = everyday.search("curry without coconut", k=60, strict_not=False, hybrid=False)
    assert (found.hybrid, found.strict_not, len(found.hits)) == (False, False, len(everyday))
