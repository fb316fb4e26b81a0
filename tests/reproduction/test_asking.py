"""Ways of asking: the trees that are told, and what stays the query's own."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.data.records import Operand, Query
from boolattn.encoder import build_towers
from boolattn.encoder.retriever import Retriever
from boolattn.logic.tree import And, Atom, Not, Or
from boolattn.reproduction.asking import (
    Asker,
    bare_explicit_tree,
    explicit_tree,
    given_tree,
    shape,
)
from boolattn.training.corpus import Corpus
from boolattn.training.preset_files import make_preset
from tests.reproduction.tiny import make_queries

TEXT = "moths of borneo but not sumatra"
QUERY = Query(
    id="q",
    text=TEXT,
    gold=frozenset({"d0"}),
    template="_ that are not _",
    operands=(
        Operand("borneo moths", ((0, 15),)),
        Operand("sumatra moths", ((0, 8), (24, 31))),
    ),
)


def test_given_operands_are_the_querys_words_and_explicit_ones_their_names():
    words = And((Atom("moths of borneo"), Not(Atom("moths of sumatra"))))
    assert given_tree(QUERY) == words
    assert explicit_tree(QUERY) == And((Atom("borneo moths"), Not(Atom("sumatra moths"))))
    # Who types it barely does not say the moths again.
    assert bare_explicit_tree(QUERY) == And((Atom("borneo moths"), Not(Atom("sumatra"))))


@pytest.mark.parametrize("tree_of", [given_tree, explicit_tree, bare_explicit_tree])
def test_a_query_whose_operands_nobody_knows_is_one_operand(tree_of):
    assert tree_of(Query(id="q", text=TEXT, gold=frozenset())) == Atom(TEXT)


def test_shapes():
    a, b, c = map(Atom, "abc")
    assert shape(a) == (1, 0, "and")
    assert shape(Or((a, b))) == (2, 0, "or")
    assert shape(And((Or((a, b)), Not(c)))) == (2, 1, "or")
    assert shape(And((a, Not(b), Not(c)))) == (1, 2, "and")


@pytest.fixture
def asker(tiny_encoder, tokenizer):
    from boolattn.data.records import Dataset

    documents, queries = make_queries()
    towers = build_towers(tiny_encoder("bert"), tokenizer=tokenizer)
    dataset = Dataset(name="tiny", documents=documents, splits={"test": tuple(queries)})
    preset = make_preset("tiny", {"model": {"use_plugin": False}})
    return Asker(Retriever(towers), Corpus(dataset, tokenizer, 32), preset)


def test_without_a_reader_reading_is_the_plain_vector(asker):
    queries = asker.corpus.dataset.splits["test"]
    plain = asker.ask("own", queries, 10)
    read = asker.ask("read", queries, 10)
    np.testing.assert_allclose(read.ranking.scores, plain.ranking.scores, atol=1e-5)
    assert read.values["composed"].sum() == 0
    # The single categories are read right by nobody's merit.
    is_single = np.array([query.template == "_" for query in queries])
    assert (read.values["structure"] == is_single).all()


def test_given_operands_change_the_ranking_and_keep_the_whole_query(asker):
    queries = [q for q in asker.corpus.dataset.splits["test"] if q.template != "_"]
    plans = asker._plans("given", queries)
    own = asker.retriever.plan([query.text for query in queries])
    for plan, whole in zip(plans, own, strict=True):
        assert plan.is_composed
        assert plan.text == whole.text
        np.testing.assert_allclose(plan.plain, whole.plain, atol=1e-6)
    given, plain = (asker.ask(how, queries, 48).ranking.rows for how in ("given", "own"))
    assert (given != plain).any()


def test_each_way_to_type_a_query_asks_its_own_trees(asker):
    queries = [q for q in asker.corpus.dataset.splits["test"] if q.template == "_ that are not _"]
    for how, tree_of in (("explicit", explicit_tree), ("bare", bare_explicit_tree)):
        assert [plan.tree for plan in asker._plans(how, queries)] == [*map(tree_of, queries)]


@pytest.mark.parametrize("how", ["typed", "single"])
def test_other_ways_to_compose_change_what_is_composed_and_nothing_else(asker, how, monkeypatch):
    queries = list(asker.corpus.dataset.splits["test"])
    trees = {query.text: given_tree(query) for query in queries}
    retriever = asker.retriever

    def read(self, texts):
        return retriever.plan_trees([trees[text] for text in texts], texts)

    monkeypatch.setattr(Retriever, "plan", read)
    usual, other = (asker.ask(way, queries, 48).ranking for way in ("read", how))
    is_plain = np.array([query.template == "_" for query in queries])
    assert (usual.rows[is_plain] == other.rows[is_plain]).all()
    assert (usual.rows[~is_plain] != other.rows[~is_plain]).any()
