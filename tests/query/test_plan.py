"""Plans: one vector for a plain query, operands for a Boolean one."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.encoder.towers import build_towers
from boolattn.query.parsed_query import ParsedQuery
from boolattn.query.plan import plan_queries
from boolattn.query.reading import QueryReader
from boolattn.query.syntax import parse
from boolattn.query.tree import And, Atom, Not, Operator, Or, operators_of
from tests.exact_ranking import score
from tests.parses import KnownParses, flat, read_trees

NOT_TEXT, PLAIN_TEXT = "moths of Borneo but not Sumatra", "moths of Borneo"
PARSES = {
    NOT_TEXT: flat((((0, 15),),), (((0, 8), (24, 31)),)),
    PLAIN_TEXT: ParsedQuery((((0, 15),),)),
}


@pytest.fixture(params=["plain", "boolattn"])
def encoder(request, tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="lexicon", rank=4) if request.param == "boolattn" else None
    towers = build_towers(tiny_encoder(), config, tokenizer=tokenizer, query_length=32)
    return TorchEncoder(towers)


def plan_texts(encoder, *texts, confidence=1.0, **options):
    parser = KnownParses(PARSES, confidence)
    return plan_queries([*map(QueryReader(parser, **options).read, texts)], encoder)


def plan_trees(encoder, *trees):
    return plan_queries(read_trees(trees), encoder)


def test_a_query_without_operators_is_the_plain_vector_bit_for_bit(encoder):
    [plan] = plan_texts(encoder, PLAIN_TEXT)
    assert not plan.is_composed
    assert plan.atoms == (PLAIN_TEXT,)
    expected = encoder.towers.encode_query([PLAIN_TEXT])
    assert (plan.vectors == expected).all()
    similarities = np.array([[0.3, 0.1]], np.float32)
    assert (score(plan, similarities) == similarities[0]).all()


def test_operands_are_parsed_encoded_separately_and_composed(encoder):
    plan, plain = plan_texts(encoder, NOT_TEXT, PLAIN_TEXT)
    tree = And((Atom("moths of Borneo"), Not(Atom("moths of Sumatra"))))
    assert plan.is_composed
    assert plan.tree == plan.parsed == tree
    assert operators_of(plan.tree) == (Operator.NOT,)
    assert plan.is_negated == (False, True)
    assert [NOT_TEXT[a:b] for spans in plan.spans for a, b in spans] == [
        "moths of Borneo",
        "moths of",
        "Sumatra",
    ]
    separate = encoder.encode_operands(plan.atoms)
    assert np.allclose(plan.vectors[: len(plan.atoms)], separate, atol=1e-6)
    # Similarity to the negated operand lowers the score, to the positive one raises it.
    similarities = np.random.default_rng(0).random((2, 40)).astype(np.float32)
    similarities[:, :3] = [[0.5, 0.9, 0.5], [0.5, 0.5, 0.9]]
    base, up, down = score(plan, similarities)[:3]
    assert up > base > down
    assert not plain.is_composed


def test_an_uncertain_parse_is_not_used_and_still_reported(encoder):
    [plan] = plan_texts(encoder, NOT_TEXT, confidence=0.2)
    assert not plan.is_composed
    assert (plan.vectors == encoder.towers.encode_query([NOT_TEXT])).all()
    assert isinstance(plan.parsed, And)
    assert plan.confidence == 0.2
    assert plan.fallback == "the parser's confidence is 0.20, below 0.5"


def test_without_a_parser_plain_text_is_one_operand(encoder):
    [plan] = plan_queries([QueryReader(None).read(NOT_TEXT)], encoder)
    assert (plan.is_composed, plan.tree) == (False, Atom(NOT_TEXT))
    assert plan.fallback == "the model has no query parser"


def test_each_conjunction_of_positive_operands_has_a_vector(encoder):
    both = And((Atom("moths"), Atom("Borneo")))
    typed = "moths that Borneo has"
    trees = [both, And((*both.parts, Not(Atom("Java"))))]
    joined, less = plan_queries(read_trees(trees, [typed, "x"]), encoder)
    encoded = encoder.encode_operands(["moths and Borneo"])[0]
    assert np.allclose(less.vectors[-1], encoded, atol=1e-6)
    # Where it is the whole query, the text as typed has the same weight.
    assert (joined.plain == encoder.encode_queries([typed])[0]).all()
    assert np.allclose(joined.vectors[-1], (encoded + joined.plain) / 2, atol=1e-6)
    assert not np.allclose(joined.vectors[-1], encoded, atol=1e-3)
    # AND is distributed over OR: each alternative has its own.
    nested, either = plan_trees(
        encoder, parse("moths AND (Borneo OR Java)"), parse("moths OR Borneo")
    )
    expected = encoder.encode_operands(["moths and Borneo", "moths and Java"])
    assert np.allclose(nested.vectors[3:], expected, atol=1e-6)
    assert len(either.vectors) == 2


@pytest.mark.parametrize(
    ("query", "is_encoded"),
    [
        ("moths NOT Java", False),
        ("moths OR Java", False),
        ("(moths AND Borneo) OR Java", False),
        ("moths", True),
        ("moths AND Java", True),
        ("moths AND year > 3", False),
        (f"{'moths of Borneo ' * 4} NOT Java", True),
    ],
)
def test_the_whole_query_is_encoded_only_where_it_counts(encoder, monkeypatch, query, is_encoded):
    encoded, encode = [], encoder.encode_queries
    monkeypatch.setattr(
        encoder, "encode_queries", lambda texts: encoded.extend(texts) or encode(texts)
    )
    readings = read_trees([parse(query)], [query])
    plan_queries(readings, encoder)
    assert encoded.count(query) == is_encoded


def test_a_tree_of_too_many_alternatives_is_one_vector(encoder):
    text = " AND ".join(f"(a{i} OR b{i})" for i in range(5))
    [plan] = plan_trees(encoder, parse(text))
    assert (plan.is_composed, len(plan.vectors)) == (False, 1)
    assert plan.fallback == "it has 32 alternatives, more than 16"
    [plan] = plan_trees(encoder, parse(" OR ".join(f"a{i}" for i in range(40))))
    assert plan.is_composed


def test_explicit_and_parsed_trees_have_the_same_scores(encoder):
    [parsed] = plan_texts(encoder, NOT_TEXT)
    [explicit] = plan_trees(encoder, parsed.tree)
    similarities = np.random.default_rng(0).random((2, 7)).astype(np.float32)
    assert np.allclose(
        explicit.vectors[: len(explicit.atoms)], parsed.vectors[: len(parsed.atoms)], atol=1e-6
    )
    assert np.allclose(score(parsed, similarities), score(explicit, similarities), atol=1e-5)


def test_operands_are_encoded_with_closed_gates(encoder):
    [plan] = plan_trees(encoder, Or((Atom("films and books"), Atom("birds"))))
    closed = encoder.encode_operands(["films and books"])[0]
    assert np.allclose(plan.vectors[: len(plan.atoms)][0], closed, atol=1e-6)


def test_empty_and_single_trees(encoder):
    assert plan_texts(encoder) == plan_trees(encoder) == []
    [plan] = plan_trees(encoder, Atom("moths"))
    assert not plan.is_composed
    assert plan.vectors.shape == (1, 32)
