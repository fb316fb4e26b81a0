"""The retriever: one vector for a plain query, operands for a Boolean one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder import build_towers, query_encoder
from boolattn.encoder.retriever import Retriever
from boolattn.errors import MissingDataError
from boolattn.plugin.attach import plugin_of
from boolattn.query.operators import Operator
from boolattn.query.parsed_query import ParsedQuery
from boolattn.query.syntax import parse
from boolattn.query.tree import And, Atom, Not, Or
from boolattn.scoring.exact import rank_plans
from tests.parses import KnownParses, flat

NOT_TEXT, PLAIN_TEXT = "moths of Borneo but not Sumatra", "moths of Borneo"
PARSES = {
    NOT_TEXT: flat((((0, 15),),), (((0, 8), (24, 31)),)),
    PLAIN_TEXT: ParsedQuery((((0, 15),),)),
}


@pytest.fixture(params=["plain", "boolattn"])
def towers(request, tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="lexicon", rank=4) if request.param == "boolattn" else None
    return build_towers(tiny_encoder(), config, tokenizer=tokenizer, query_length=32)


@pytest.fixture
def retriever(towers):
    return Retriever(towers, KnownParses(PARSES))


def test_a_query_without_operators_is_the_plain_vector_bit_for_bit(retriever):
    [plan] = retriever.plan([PLAIN_TEXT])
    assert not plan.is_composed
    assert plan.atoms == (PLAIN_TEXT,)
    expected = retriever.towers.encode_query([PLAIN_TEXT])
    assert (plan.vectors == expected).all()
    similarities = np.array([[0.3, 0.1]], np.float32)
    assert (retriever.score(plan, similarities) == similarities[0]).all()


def test_queries_are_encoded_with_folded_weights_and_training_is_not(tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="lexicon", rank=4)
    towers = build_towers(tiny_encoder(initializer_range=0.3), config, tokenizer=tokenizer).eval()
    texts = [NOT_TEXT, PLAIN_TEXT]
    before = towers.encode_query(texts)
    retriever = Retriever(towers)
    plugin = plugin_of(query_encoder(towers))
    assert (retriever.encode_queries([PLAIN_TEXT]) == towers.encode_query([PLAIN_TEXT])).all()
    assert plugin._folded is None  # no expert was open
    np.testing.assert_allclose(retriever.encode_queries(texts), before, atol=2e-5)
    assert plugin._folded is not None
    towers.train()
    assert plugin._folded is None
    with torch.no_grad():
        plugin.layers["0"].bias.outer_bias.add_(5.0)
    after = Retriever(towers).encode_queries(texts)
    assert (after[1] == before[1]).all()
    assert np.abs(after[0] - before[0]).max() > 1e-4


def test_operands_are_parsed_encoded_separately_and_composed(retriever):
    plans = retriever.plan([NOT_TEXT, PLAIN_TEXT])
    plan = plans[0]
    tree = And((Atom("moths of Borneo"), Not(Atom("moths of Sumatra"))))
    assert plan.is_composed
    assert plan.tree == plan.parsed == tree
    assert plan.operators == (Operator.NOT,)
    assert plan.is_negated == (False, True)
    assert [NOT_TEXT[a:b] for spans in plan.spans for a, b in spans] == [
        "moths of Borneo",
        "moths of",
        "Sumatra",
    ]
    separate = retriever.encode_operands(plan.atoms)
    assert np.allclose(plan.operand_vectors, separate, atol=1e-6)
    # Similarity to the negated operand lowers the score, to the positive one raises it.
    similarities = np.random.default_rng(0).random((2, 40)).astype(np.float32)
    similarities[:, :3] = [[0.5, 0.9, 0.5], [0.5, 0.5, 0.9]]
    base, up, down = retriever.score(plan, similarities)[:3]
    assert up > base > down
    assert not plans[1].is_composed


def test_an_uncertain_parse_is_not_used_and_still_reported(towers):
    uncertain = Retriever(towers, KnownParses(PARSES, confidence=0.2))
    [plan] = uncertain.plan([NOT_TEXT])
    assert not plan.is_composed
    assert (plan.vectors == towers.encode_query([NOT_TEXT])).all()
    assert isinstance(plan.parsed, And)
    assert plan.confidence < uncertain.threshold
    assert plan.fallback.startswith("the parser's confidence is 0.")
    uncertain.threshold = 0.0
    assert uncertain.plan([NOT_TEXT])[0].is_composed


def test_each_conjunction_of_positive_operands_has_a_vector(retriever):
    both = And((Atom("moths"), Atom("Borneo")))
    typed = "moths that Borneo has"
    joined, less = retriever.plan_trees([both, And((*both.parts, Not(Atom("Java"))))], [typed, "x"])
    encoded = retriever.encode_operands(["moths and Borneo"])[0]
    assert np.allclose(less.vectors[-1], encoded, atol=1e-6)
    # Where it is the whole query, the text as typed has the same weight.
    assert (joined.plain == retriever.encode_queries([typed])[0]).all()
    assert np.allclose(joined.vectors[-1], (encoded + joined.plain) / 2, atol=1e-6)
    assert not np.allclose(joined.vectors[-1], encoded, atol=1e-3)
    # AND is distributed over OR: each alternative has its own.
    [nested] = retriever.plan_trees([parse("moths AND (Borneo OR Java)")])
    expected = retriever.encode_operands(["moths and Borneo", "moths and Java"])
    assert np.allclose(nested.vectors[3:], expected, atol=1e-6)
    [either] = retriever.plan_trees([parse("moths OR Borneo")])
    assert len(either.vectors) == 2


def test_a_tree_of_too_many_alternatives_is_one_vector(retriever):
    text = " AND ".join(f"(a{i} OR b{i})" for i in range(5))
    [plan] = retriever.plan_trees([parse(text)])
    assert (plan.is_composed, len(plan.vectors)) == (False, 1)
    assert plan.fallback == "it has 32 alternatives, more than 16"
    [plan] = retriever.plan_trees([parse(" OR ".join(f"a{i}" for i in range(40)))])
    assert plan.is_composed


def test_explicit_and_parsed_trees_have_the_same_scores(retriever):
    [parsed] = retriever.plan([NOT_TEXT])
    [given] = retriever.plan_trees([parsed.tree])
    similarities = np.random.default_rng(0).random((2, 7)).astype(np.float32)
    assert np.allclose(given.operand_vectors, parsed.operand_vectors, atol=1e-6)
    assert np.allclose(
        retriever.score(parsed, similarities), retriever.score(given, similarities), atol=1e-5
    )


def test_operands_are_encoded_with_closed_gates(towers):
    retriever = Retriever(towers)
    [bare] = retriever.plan_trees([Or((Atom("films and books"), Atom("birds")))])
    closed = retriever.encode_operands(["films and books"])[0]
    assert np.allclose(bare.operand_vectors[0], closed, atol=1e-6)


@pytest.mark.parametrize("is_torch", [True, False])
def test_ranking_a_corpus_agrees_with_scoring_it(retriever, is_torch):
    documents = torch.nn.functional.normalize(
        torch.randn(40, 32, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    a, b, c, d = map(Atom, ("moths", "Borneo", "birds", "films"))
    trees = [And((a, b)), And((c, d)), Or((a, c)), And((a, Or((b, d)), Not(c))), And((a, Not(b)))]
    plans = retriever.plan([PLAIN_TEXT, NOT_TEXT]) + retriever.plan_trees(trees)
    own = documents if is_torch else documents.numpy()
    rows, scores = rank_plans(plans, own, 40)
    for plan, row, score in zip(plans, rows, scores, strict=True):
        every = retriever.score(plan, plan.vectors @ documents.numpy().T)
        assert np.allclose(every[row], score, atol=1e-4)
        assert (np.diff(score) <= 1e-6).all()
        assert sorted(row.tolist()) == list(range(40))


def test_empty_and_single_trees(retriever):
    assert retriever.plan([]) == []
    assert retriever.plan_trees([]) == []
    [plan] = retriever.plan_trees([Atom("moths")])
    assert not plan.is_composed
    assert plan.vectors.shape == (1, 32)


def test_a_saved_model_has_the_same_vectors_and_any_parser(towers, tmp_path):
    first = Retriever(towers)
    assert not first.has_parser
    first.save(tmp_path / "model")
    second = Retriever.load(tmp_path / "model", parser=None)
    assert second.fingerprint == first.fingerprint
    assert not second.plan([NOT_TEXT])[0].is_composed
    parser = KnownParses(PARSES)
    parser.threshold = 0.25
    third = Retriever.load(tmp_path / "model", parser=parser)
    assert third.threshold == 0.25
    assert third.plan([NOT_TEXT])[0].is_composed
    plain = SentenceTransformer(str(tmp_path / "model"))
    assert (plain.encode_query([PLAIN_TEXT]) == towers.encode_query([PLAIN_TEXT])).all()
    with pytest.raises(MissingDataError, match="holds no model"):
        Retriever.load(tmp_path, parser=None)
