"""Query modes: the trees of each, and the plain vectors they share."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.data.records import Operand, Query
from boolattn.encoder import build_towers
from boolattn.encoder.retriever import Retriever
from boolattn.evaluation.parsing import structure
from boolattn.logic.tree import And, Atom, Not, Or
from boolattn.training.corpus import Corpus
from boolattn.training.preset_files import make_preset
from experiments.query_modes import (
    ComposedRanker,
    elided_explicit_tree,
    explicit_tree,
    oracle_tree,
)
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


def test_oracle_operands_are_the_querys_words_and_explicit_ones_their_names():
    words = And((Atom("moths of borneo"), Not(Atom("moths of sumatra"))))
    assert oracle_tree(QUERY) == words
    assert explicit_tree(QUERY) == And((Atom("borneo moths"), Not(Atom("sumatra moths"))))
    assert elided_explicit_tree(QUERY) == And((Atom("borneo moths"), Not(Atom("sumatra"))))


@pytest.mark.parametrize("tree_of", [oracle_tree, explicit_tree, elided_explicit_tree])
def test_a_query_without_annotated_operands_is_one_operand(tree_of):
    assert tree_of(Query(id="q", text=TEXT, gold=frozenset())) == Atom(TEXT)


def test_structures():
    a, b, c = map(Atom, "abc")
    assert structure(a) == "_"
    assert structure(Or((a, b))) == "or(_,_)"
    assert structure(And((Or((a, b)), Not(c)))) == "and(not(_),or(_,_))"
    assert structure(And((Not(b), a, Not(c)))) == "and(_,not(_),not(_))"


@pytest.fixture
def ranker(tiny_encoder, tokenizer):
    from boolattn.data.records import Dataset

    documents, queries = make_queries()
    towers = build_towers(tiny_encoder("bert"), tokenizer=tokenizer)
    dataset = Dataset(name="tiny", documents=documents, splits={"test": tuple(queries)})
    preset = make_preset("tiny", {"model": {"use_plugin": False}})
    return ComposedRanker(Retriever(towers), Corpus(dataset, tokenizer, 32), preset)


def test_without_a_parser_the_plain_vector_is_used(ranker):
    queries = ranker.corpus.dataset.splits["test"]
    plain, _ = ranker.rank("plain_text", queries, 10)
    parsed, values = ranker.rank("parsed", queries, 10)
    np.testing.assert_allclose(parsed.scores, plain.scores, atol=1e-5)
    assert values["composed"].sum() == 0
    # Queries of one operand are correct without a parser.
    is_single = np.array([query.template == "_" for query in queries])
    assert (values["structure"] == is_single).all()


def test_oracle_operands_change_the_ranking_and_keep_the_whole_query(ranker):
    queries = [q for q in ranker.corpus.dataset.splits["test"] if q.template != "_"]
    plans = ranker.plans("oracle_operands", queries)
    own = ranker.retriever.plan([query.text for query in queries])
    for plan, whole in zip(plans, own, strict=True):
        assert plan.is_composed
        assert plan.text == whole.text
        np.testing.assert_allclose(plan.plain, whole.plain, atol=1e-6)
    oracle, plain = (
        ranker.rank(mode, queries, 48)[0].rows for mode in ("oracle_operands", "plain_text")
    )
    assert (oracle != plain).any()


def test_explicit_modes_have_their_own_trees(ranker):
    queries = [q for q in ranker.corpus.dataset.splits["test"] if q.template == "_ that are not _"]
    modes = {"explicit_syntax": explicit_tree, "explicit_syntax_elided": elided_explicit_tree}
    for mode, tree_of in modes.items():
        assert [plan.tree for plan in ranker.plans(mode, queries)] == [*map(tree_of, queries)]


def test_one_vector_changes_composed_queries_only(ranker, monkeypatch):
    queries = list(ranker.corpus.dataset.splits["test"])
    trees = {query.text: oracle_tree(query) for query in queries}
    retriever = ranker.retriever

    def plan(self, texts):
        return retriever.plan_trees([trees[text] for text in texts], texts)

    monkeypatch.setattr(Retriever, "plan", plan)
    usual, other = (ranker.rank(one, queries, 48)[0] for one in ("parsed", "one_vector"))
    is_plain = np.array([query.template == "_" for query in queries])
    assert (usual.rows[is_plain] == other.rows[is_plain]).all()
    assert (usual.rows[~is_plain] != other.rows[~is_plain]).any()
