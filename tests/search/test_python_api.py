"""What a newcomer writes in Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

import boolattn
from boolattn.errors import ConfigError, DataError
from boolattn.search import Document, Searcher
from tests.search import word_model
from tests.stores.arrays import ArrayCollection


@pytest.fixture
def searcher():
    return Searcher.from_texts(["moths Java", "ants Peru"], word_model.retriever())


def test_add_takes_what_from_texts_takes(searcher):
    searcher.add(["moths Borneo"])
    searcher.add([{"text": "birds Java", "title": "Birds", "year": 1990}])
    searcher.delete(["1"])
    searcher.add(["birds Peru"])
    assert {n: searcher.document(n).text for n in ("0", "1", "2", "3")} == {
        "0": "moths Java",
        "1": "birds Peru",
        "2": "moths Borneo",
        "3": "birds Java",
    }
    assert searcher.document("3").metadata == {"year": 1990}
    with pytest.raises(DataError, match="a list of texts, not str"):
        searcher.add("moths")


def test_update_replaces_documents(searcher):
    with pytest.raises(DataError):
        searcher.add([{"id": "0", "text": "birds"}])
    searcher.update([{"id": "0", "text": "birds"}])
    assert searcher.document("0").text == "birds"
    assert len(searcher) == 2


def test_a_result_is_a_sequence(searcher):
    searcher.add([{"text": "moths <b>Peru</b>", "title": "A & B"}])
    result = searcher.search("moths NOT Java")
    assert [hit.id for hit in result] == ["2", "1"]
    assert (len(result), result[0]) == (2, result.hits[0])
    assert bool(searcher.search("moths", min_score=2.0))
    assert list(searcher.search("moths", min_score=2.0)) == []


def test_nothing_fits_where_no_word_and_no_meaning_does():
    searcher = Searcher.from_texts(["A soup of beans.", "Bread with butter."])
    [warning] = searcher.search("xyzzy plugh").warnings
    assert warning.startswith("nothing fits well")
    assert len(searcher.search("xyzzy plugh", min_score=0.3)) == 0
    for query in ("bean soup", "NOT bread"):
        assert "nothing fits" not in str(searcher.search(query).warnings)
        assert len(searcher.search(query, min_score=0.3)) > 0


def test_dir_lists_what_is_public():
    assert dir(boolattn) == sorted(boolattn.__all__)
    assert all(getattr(boolattn, name) is not None for name in dir(boolattn))
    assert boolattn.Document is Document


def test_a_missing_extra_is_one_line():
    code = "import sys; sys.modules['torch'] = None\nimport boolattn; boolattn.attach"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "boolattn.attach needs torch; pip install 'boolattn[attach]'"
    )


def test_documents_are_found_by_the_vectors_that_are_given():
    rows = [{"id": "a", "text": "first"}, {"id": "b", "text": "second"}]

    def embed(texts):
        return [[1.0, 0.0] if text == "left" else [0.0, 1.0] for text in texts]

    searcher = Searcher.from_texts(rows, embed, parser=None, encode=[[0.0, 3.0], [2.0, 0.0]])
    assert [searcher.search(text, 1)[0].id for text in ("left", "right")] == ["b", "a"]
    assert searcher.search("left", 1)[0].score == pytest.approx(1)  # they are normalised


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 0.0]], "only 1 vectors for 2"),
        ([[1.0, 0.0]] * 3, "3 vectors for 2 documents"),
        ([[1.0], [0.0]], "dimension|length|shape"),
        ([1.0, 0.0], "with two dimensions, got shape"),
        (3, "with two dimensions, got shape"),
        ([[1j, 0]] * 2, "numbers with two dimensions, .* of type complex"),
        ([[1.0, 0.0], [1e300, 0.0]], "document 1 is not finite in float32"),
        ([[1e30, 0.0]] * 2, "document 0 is not finite in float32"),
        ([["a", "b"]], "must be an array of numbers"),
        ([[float("nan"), 0.0]] * 2, "document 0 is not finite"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(vectors, message):
    with pytest.raises(DataError, match=message):
        Searcher.from_texts(["a", "b"], lambda texts: [[1.0, 0.0]] * len(texts), encode=vectors)


def test_known_vectors_are_of_whole_documents(tmp_path):
    for setting in ({"resume": True}, {"passages": 10}):
        with pytest.raises(ConfigError, match="whole documents"):
            Searcher.build(tmp_path / "index", ["a"], encode=[[1.0]], **setting)


def test_a_temporary_index_is_saved(searcher, tmp_path):
    searcher.save(tmp_path / "insects")
    opened = Searcher.open(tmp_path / "insects", word_model.retriever())
    assert [hit.id for hit in opened.search("moths", 1)] == ["0"]
    opened.add(["moths Peru"])  # it is a store of its own
    assert (len(opened), len(searcher)) == (3, 2)
    with pytest.raises(boolattn.BoolattnError, match="insects"):
        searcher.save(tmp_path / "insects")
    vectors = word_model.retriever().encode_documents(["moths"])
    foreign = Searcher(ArrayCollection(vectors, [{"text": "moths"}]), searcher.encoder)
    with pytest.raises(ConfigError, match="no folder"):
        foreign.save(tmp_path / "other")
