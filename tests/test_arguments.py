"""Arguments of another type, all over the public API: one line, never an error from deep inside."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import numpy as np
import pytest

import boolattn
from boolattn import BoolAttnConfig, BoolattnError, BooleanRetriever, Retriever, Searcher
from boolattn.data.records import Document
from tests.search import word_model

ODD = [None, 3, 1.5, float("nan"), b"moths", ["moths", 3], {"text": 3}, np.zeros(3), object()]
FIELDS = [field.name for field in dataclasses.fields(BoolAttnConfig)]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arguments") / "index"
    return Searcher.build(
        folder, [Document(id="a", text="moths of Borneo")], word_model.retriever()
    )


def document(name, value):
    return Document(**({"id": "b", "text": "moths of Java"} | {name: value}))


CALLS = {
    "search, documents": lambda _, odd: boolattn.search([odd], "moths"),
    "add": lambda searcher, odd: searcher.add(odd),
    "add one": lambda searcher, odd: searcher.add([odd]),
    "document id": lambda searcher, odd: searcher.add([document("id", odd)]),
    "document text": lambda searcher, odd: searcher.add([document("text", odd)]),
    "document title": lambda searcher, odd: searcher.add([document("title", odd)]),
    "delete": lambda searcher, odd: searcher.delete([odd]),
    "store": lambda _, odd: BooleanRetriever(odd, lambda texts: texts),
    "retriever": lambda _, odd: Retriever(odd),
    "detach": lambda _, odd: boolattn.detach(odd),
    "explain": lambda _, odd: boolattn.explain(odd, None, "moths"),
    "save": lambda _, odd: boolattn.save(odd, "nowhere"),
}


@pytest.mark.parametrize("call", CALLS)
def test_another_type_is_one_line(searcher, call):
    for odd in ODD:
        with pytest.raises(BoolattnError) as caught:
            CALLS[call](searcher, odd)
        assert "\n" not in str(caught.value)
    assert [hit.id for hit in searcher.search("moths").hits] == ["a"]


@pytest.mark.parametrize("name", FIELDS)
def test_settings_of_the_plugin(name):
    for odd in ODD:
        with suppress(BoolattnError):  # None, 3 and 1.5 suit some of them
            BoolAttnConfig(**{name: odd})
    with pytest.raises(BoolattnError, match=name):
        BoolAttnConfig(**{name: object()})
