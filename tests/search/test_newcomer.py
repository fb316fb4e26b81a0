"""What somebody tries first, with a file of things in rooms; shipped model."""

from __future__ import annotations

import csv
import io
import re

import pytest

from boolattn import BoolattnError
from boolattn.search import Searcher
from boolattn.search.pipeline import NOTHING_FITS

INVENTORY = """id,text,room,price,bought,condition
1,Dell Latitude laptop,Office Munich,1350,2022-03-14,good
2,MacBook Pro laptop,Office Hamburg,2400,2021-06-01,good
3,Lenovo laptop; keys do not work,Office Munich,1190,2020-11-20,broken
4,HP LaserJet: laser printer,Office Hamburg,420,2019-02-02,good
5,Canon inkjet printer,Office Munich,120,2022-09-09,broken
6,Bosch dishwasher,Kitchen Munich,640,2018-05-05,broken
7,Toaster,Kitchen Hamburg,35,2021-03-03,broken
8,Brother laser printer,Basement Munich,230,2023-01-01,good
"""


def rows():
    for row in csv.DictReader(io.StringIO(INVENTORY)):
        yield row | {"price": int(row["price"])}


@pytest.fixture(scope="module")
def searcher():
    return Searcher.from_texts(rows())


def ids(result):
    return {hit.id for hit in result}


@pytest.mark.parametrize("words", [True, False])
def test_what_is_left_out_does_not_depend_on_k(words):
    searcher = Searcher.from_texts(rows(), words=words)
    lists = [searcher.search("printers but no laser printer", k).left_out for k in (1, 3, 8)]
    assert lists[0] == lists[1] == lists[2]
    # Both; without a title by the beginning of its text. It has one of the operand's words more.
    assert {(document.title, document.why) for document in lists[0]} == {
        ("HP LaserJet: laser printer", "it mentions 'laser'"),
        ("Brother laser printer", "it mentions 'laser'"),
    }


def test_the_excluded_thing_itself_is_named_first():
    texts = [
        {"id": str(n), "text": f"A tool that compresses files, number {n}."} for n in range(60)
    ]
    texts += [{"id": "all", "text": "Unpacks archives of zip, bzip2 and many other tools."}]
    texts += [{"id": "itself", "title": "bzip2", "text": "A compression tool."}]
    result = Searcher.from_texts(texts).search("compression tools not bzip2", 3)
    assert result.left_out[0].id == "itself"
    assert result.notes == ()  # "bzip" is no word that is misspelt


def test_a_reason_names_the_words_that_the_document_has(searcher):
    result = searcher.search('things NOT "broken things in Hamburg"')
    assert [document.why for document in result.left_out] == ["it mentions 'broken' and 'Hamburg'"]


def test_not_in_a_place_excludes(searcher):
    result = searcher.search("broken things, not in the kitchen", 3)
    assert result.is_negated == (False, True)
    assert ids(result).isdisjoint("67")
    assert {"3", "5"} < ids(result)


def test_words_of_the_metadata_count_as_words_of_the_query(searcher):
    assert searcher.search("broken things in Hamburg").warnings == ()
    assert searcher.search("xyzzy plugh").warnings == (NOTHING_FITS,)


def test_a_field_says_what_somebody_has_done():
    books = [
        {"id": "a", "text": "A novel about whales, a good read.", "Read?": "no"},
        {"id": "b", "text": "A novel about a voyage.", "Read?": "yes", "year": 1980},
        {"id": "c", "text": "A novel about a war.", "Read?": ""},
    ]
    searcher = Searcher.from_texts(books)
    assert ids(searcher.search("novels I have not read")) == {"a", "c"}
    assert ids(searcher.search("novels that I haven't read yet")) == {"a", "c"}
    result = searcher.search("novels I have read")
    assert (ids(result), result.tree_text) == ({"b"}, 'novels AND "Read?"=yes')
    result = searcher.search("novels we read before 1990")
    assert result.tree_text == 'novels AND "Read?"=yes AND year<1990'
    # Yes and no are no topics.
    assert all("yes" not in example.text for example in searcher.examples)


def test_numbers_need_no_unit_where_one_field_has_them(searcher):
    result = searcher.search("laptop under 1400 in Munich")
    assert result.tree_text == "laptop in Munich AND price<1400"
    assert [hit.id for hit in result][:2] == ["1", "3"]
    assert ids(searcher.search("bought in 2022")) == set("15")
    # What meets a condition fits, though no document has the word.
    result = searcher.search("gadgets bought in 2022")
    assert (ids(result), result.warnings) == (set("15"), ())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("laptop before March 2021", "3"),
        ("things bought in November 2020", "3"),
        ("printers from 2022 on", "58"),
        ("printers not from 2022", "48"),
        ("laptops that were not bought in 2022", "23"),
    ],
)
def test_dates_are_read_in_words(searcher, query, expected):
    result = searcher.search(query)
    assert {hit.id for hit in result.hits[: len(expected)]} == set(expected)
    assert result.warnings == ()  # "not" was read


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 3}, "search has no 'top_k'; the number of results is k, as in k=10"),
        ({"limit": 3}, "search has no 'limit'; the number of results is k"),
        ({"filters": ["room=Munich"]}, "filters are by field, as {'price': {'lt': 9}}, not"),
    ],
)
def test_an_error_says_what_to_write(searcher, options, message):
    with pytest.raises(BoolattnError, match=re.escape(message)):
        searcher.search("laptop", **options)


def test_a_value_that_is_only_contained_is_told_how_to_be_found(searcher):
    [warning] = searcher.search("laptop", filters={"Room": "munich"}).warnings
    assert warning.endswith("; room~munich finds values that contain it")
    [warning] = searcher.search("laptop", filters={"room": "Paris"}).warnings
    assert "~" not in warning


def test_everything_lists_all_in_their_order(searcher):
    for query in ("everything", "all"):
        pages = [searcher.search(query, 3, offset=offset) for offset in (0, 3, 6)]
        assert [hit.id for page in pages for hit in page] == list("12345678")
        assert all(page.warnings == page.notes == () for page in pages)


def test_numbers_of_a_small_file_are_ranges(searcher):
    facets = {facet.field: facet for facet in searcher.facets}
    assert (facets["price"].low, facets["price"].high) == (35, 2400)
    assert not facets["price"].is_date
    assert (facets["bought"].low, facets["bought"].high) == (2018, 2023)
    assert facets["bought"].is_date
    assert facets["condition"].low is None


def test_a_mapping_without_text_is_shown():
    with pytest.raises(BoolattnError, match=r"no text under 'text': .*summary.*; rename"):
        Searcher.from_texts([{"summary": "A book."}])
