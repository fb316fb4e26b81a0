"""Plain queries over an index: numbers, exclusions alone and titles, with the shipped parser."""

from __future__ import annotations

import pytest

from boolattn.query.tree import atoms
from boolattn.search import Document, Searcher
from tests.search import word_model

TITLES = ("Birds before 1990", "Everything but Moths", "No Moths")


@pytest.fixture(scope="module")
def searcher(retriever):
    titled = [Document(id=title, title=title, text="old birds") for title in TITLES]
    return Searcher.from_texts([*word_model.corpus(), *titled], retriever)


def ids(result):
    return [hit.id for hit in result.hits]


@pytest.mark.parametrize(
    ("query", "options", "tree"),
    [
        ("moths before 1990", {}, "moths AND year<1990"),
        ("moths before 1990 of Borneo", {}, "moths of Borneo AND year<1990"),
        ("moths before 1990 but not Borneo", {}, "moths NOT Borneo AND year<1990"),
        ("moths of the 1980s", {}, "moths AND year>=1980 AND year<=1989"),
        ("before 1990", {}, "everything AND year<1990"),
        ("no moths, before 1990", {}, "everything NOT moths AND year<1990"),
        ("before 1990", {"negative": ["moths"]}, "everything NOT moths AND year<1990"),
        ("before 1990", {"positive": ["moths"]}, "everything AND moths AND year<1990"),
    ],
)
def test_a_number_is_a_condition(searcher, query, options, tree):
    result = searcher.search(query, k=30, **options)
    assert result.tree_text == tree
    assert result.hits
    assert all(hit.metadata["year"] < 1990 for hit in result.hits)
    assert result.total == 8
    phrase = next(p for p in ("before 1990", "of the 1980s") if p in query)
    [note] = result.notes
    assert note.startswith(f"{phrase!r} was read as year")
    assert note.endswith("; between quotes it is text")
    # The characters of each operand, where they are known.
    for atom, spans in zip(atoms(result.tree), result.spans, strict=True):
        words = " ".join(query[start:end].strip() for start, end in spans)
        assert words in ("", atom.text, phrase)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("birds before 1990", {}),  # a document has this title
        ('moths "before 1990"', {}),
        ("moths before 1990", {"compose": False}),
        ("moths before 1990", {"mode": "explicit"}),
        ("moths under 30 minutes", {}),  # no field fits
    ],
)
def test_a_number_stays_text(searcher, query, options):
    result = searcher.search(query, **options)
    assert (result.total, result.notes) == (len(searcher), ())
    assert len(list(atoms(result.tree))) == 1


@pytest.mark.parametrize("query", ["without moths", "i dont want moths", "NOT moths", "-moths"])
def test_an_exclusion_alone_finds_everything_else(searcher, query):
    result = searcher.search(query, k=100)
    assert result.tree_text == "everything NOT moths"
    without = {document.id for document in word_model.corpus() if "moths" not in document.text}
    # One title says itself that there are none.
    assert set(ids(result)) == without | {"Birds before 1990", "No Moths"}
    assert result.total == len(searcher)
    pages = [searcher.search(query, k=8, offset=offset) for offset in (0, 8, 16)]
    assert [name for page in pages for name in ids(page)] == ids(result)
    assert {page.total for page in pages} == {len(searcher)}


def test_each_alternative_of_an_exclusion_alone_counts(searcher):
    result = searcher.search("Borneo OR NOT moths", k=100)
    assert result.tree_text == "everything AND (Borneo OR (NOT moths))"
    # Moths of Borneo are asked for, so that moths alone leave nothing out.
    assert len(result.hits) == len(searcher)
    ranks = {name: rank for rank, name in enumerate(ids(result))}
    assert max(ranks["moths-borneo"], ranks["birds-peru"]) < ranks["moths-peru"]


@pytest.mark.parametrize(
    ("query", "tree"),
    [
        ("everything but moths", "everything but moths"),
        ("no moths", "no moths"),
        ("everything but birds", "everything NOT birds"),  # no document's title
        ("no birds", "everything NOT birds"),
    ],
)
def test_a_title_is_no_exclusion(searcher, query, tree):
    result = searcher.search(query)
    assert result.tree_text == tree
    reason = "" if "NOT" in tree else "a document has this title"
    assert result.why_one_vector == reason


def test_a_number_stays_text_where_no_document_has_the_field(searcher):
    other = Searcher.from_texts(["moths", "birds before 1980"], searcher.encoder)
    assert other.search("moths before 1990").tree_text == "moths before 1990"
