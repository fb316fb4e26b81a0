"""Facets and example queries of an index."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from boolattn.query.tree import atoms, operators_of
from boolattn.search import Document, Searcher
from boolattn.search.overview import FacetValue
from boolattn.stores.analysis import terms_of
from boolattn.stores.filters import parse_filters

KINDS = ("curry", "soup", "salad")
CUISINES = ("Thai", "Greek", "French", "Indian")


def recipes() -> list[Document]:
    """Recipes; those with coconut milk are curries, and every second curry has it."""
    found = []
    for n in range(48):
        kind, cuisine = KINDS[n % 3], CUISINES[n // 3 % 4]
        extra = "coconut milk" if kind == "curry" and n % 2 else "olive oil"
        text = f"The {kind} is cooked with {extra} and served warm. More {extra} helps the {kind}."
        metadata = {
            "cuisine": cuisine,
            "tags": ["warm", "warm", kind],
            "number": n,
            "is_mild": n % 4 == 0,
            "note": "x" * 70 if n % 2 else "y" * 70,
            "a<b": kind,
            "same": 1,
        }
        found.append(Document(id=f"r{n}", text=text, title=f"{cuisine} {kind}", metadata=metadata))
    return found


@pytest.fixture(scope="module")
def searcher(retriever, tmp_path_factory):
    folder = tmp_path_factory.mktemp("overview") / "index"
    return Searcher.build(folder, recipes(), retriever, segment_size=20)


def test_facets_count_the_documents_that_their_filters_select(searcher):
    facets = {facet.field: facet for facet in searcher.facets}
    # Not: one value, a value for each document, long texts, a name that filters cannot express.
    assert set(facets) == {"cuisine", "is_mild", "number", "tags"}
    # Of many numbers there is the range.
    assert facets["number"].values == ()
    assert (facets["number"].low, facets["number"].high) == (0, 47)
    assert FacetValue("Thai", 12, "cuisine=Thai") in facets["cuisine"].values
    assert facets["cuisine"].documents == 48
    assert {(v.value, v.documents) for v in facets["tags"].values} == {
        ("warm", 48),
        *((k, 16) for k in KINDS),
    }
    assert {v.filter for v in facets["is_mild"].values} == {"is_mild=true", "is_mild=false"}
    for facet in searcher.facets:
        for v in facet.values:
            assert searcher.search("curry", filters=parse_filters([v.filter])).total == v.documents


def test_examples_have_results_and_each_operator(searcher):
    examples = searcher.examples
    operators = [[operator.value for operator in operators_of(one.tree)] for one in examples]
    assert operators == [[], ["not"], ["and"], ["or"]]
    assert examples[0].text in KINDS
    held = [set(terms_of(f"{d.title} {d.text}")) for d in recipes()]

    def having(text):
        return {n for n, own in enumerate(held) if own.issuperset(terms_of(text))}

    (a, b), (c, d), (e, f) = ([having(x.text) for x in atoms(one.tree)] for one in examples[1:])
    assert a - b
    assert a & b
    assert c & d
    assert e
    assert f
    assert searcher.examples is examples


def test_an_index_that_changes_is_described_again(retriever, folder):
    searcher = Searcher.build(folder, recipes()[:24], retriever)
    before, examples = searcher.facets, searcher.examples
    searcher.delete([f"r{n}" for n in range(0, 24, 3)])  # every curry
    assert searcher.facets != before
    assert {f.field: f for f in searcher.facets}["cuisine"].documents == 16
    assert "curry" in str(examples)
    assert "curry" not in str(searcher.examples)
    searcher.delete([document.id for document in recipes()[:24] if "curry" not in document.title])
    assert (searcher.facets, searcher.examples) == ((), ())


def test_a_reader_that_stays_the_same_is_described_again_when_its_size_changes(retriever):
    class Live:
        n_documents, n_read = 1, 0

        def count(self, _where):
            return self.n_documents

        def fields(self):
            self.n_read += 1
            return {}

        def sample(self, _n):
            return []

    live, searcher = Live(), Searcher.from_texts(["moths"], retriever)
    searcher.store = SimpleNamespace(reading=lambda: nullcontext(live))
    for n_documents in (1, 2):
        live.n_documents = n_documents
        for _ in range(2):
            assert (searcher.facets, searcher.examples) == ((), ())
        assert live.n_read == 2 * n_documents  # examples need them, too
    searcher._n_changes += 1
    assert searcher.facets == ()
    assert live.n_read == 5


def test_facets_of_a_result_count_what_is_not_left_out(shared):
    everything = shared.search("moths OR beetles OR orchids OR birds", k=3, facets=True)
    [places] = [facet for facet in everything.facets if facet.field == "place"]
    assert places.is_exact
    assert {v.value: v.documents for v in places.values}["Peru"] == 4
    result = shared.search("moths NOT Peru", k=3, facets=True)
    [places] = [facet for facet in result.facets if facet.field == "place"]
    assert "Peru" not in {v.value for v in places.values}
    filtered = shared.search("moths", k=3, facets=True, filters={"place": ["Peru", "Java"]})
    [places] = [facet for facet in filtered.facets if facet.field == "place"]
    assert {v.value for v in places.values} == {"Peru", "Java"}
    assert shared.search("moths", k=3).facets == ()
