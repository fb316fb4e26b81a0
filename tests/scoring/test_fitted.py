"""Composed scores: what must change a ranking, and what must not."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boolattn.query.syntax import parse
from boolattn.query.tree import (
    And,
    Atom,
    Clause,
    Not,
    Or,
    answers,
    atoms,
    clauses,
    conjunctions,
    n_clauses,
)
from boolattn.scoring.exact import SHORTLIST
from boolattn.scoring.fitted import fit

SEEDS = st.integers(0, 10_000)
TREES = [
    "a NOT b",
    "a AND b NOT c",
    "a OR b",
    "(a OR b) NOT c",
    "a AND b",
    "(a AND b) OR (c NOT d)",
]


def random(tree, seed, n=300):
    """Similarities of the vectors that a tree needs to ``n`` documents."""
    n_vectors = len(list(atoms(tree))) + len(conjunctions(clauses(tree)))
    return np.random.default_rng(seed).normal(0.5, 0.1, (n_vectors, n)).astype(np.float32)


def scores(text, similarities):
    return fit(parse(text), similarities).score(similarities)


@given(SEEDS, st.recursive(st.sampled_from("abcd").map(Atom), lambda inner: st.one_of(
    inner.map(Not), st.lists(inner, min_size=2, max_size=3).map(tuple).map(And),
    st.lists(inner, min_size=2, max_size=3).map(tuple).map(Or)), max_leaves=7))  # fmt: skip
def test_the_clauses_of_a_tree_mean_the_same(seed, tree):
    universe = frozenset(map(str, range(30)))
    rng = np.random.default_rng(seed)
    postings = {name: frozenset(rng.choice(sorted(universe), 12)) for name in "abcd"}
    names = [atom.text for atom in atoms(tree)]
    found = frozenset()
    for positive, negated, _ in clauses(tree):
        own = universe.intersection(*(postings[names[place]] for place in positive))
        found |= own.difference(*(postings[names[place]] for place in negated))
    assert found == answers(tree, postings, universe)
    assert len(clauses(tree)) <= n_clauses(tree)


def test_clauses_of_a_nested_tree():
    tree = parse("a AND (b OR (c NOT d))")
    assert clauses(tree) == (Clause((0, 1), ()), Clause((0, 2), (3,)))
    assert conjunctions(clauses(tree)) == ((0, 1), (0, 2))


@given(SEEDS, st.sampled_from(TREES), st.floats(0.5, 2), st.floats(-0.3, 0.3))
def test_the_scale_and_level_of_similarities_change_nothing(seed, text, scale, shift):
    similarities = random(parse(text), seed)
    np.testing.assert_allclose(
        scores(text, scale * similarities + shift), scores(text, similarities), atol=2e-3
    )


@given(SEEDS, st.integers(0, 1), st.floats(0.5, 1.5), st.floats(-0.3, 0.3))
def test_an_operand_of_another_level_counts_the_same(seed, place, scale, shift):
    """Of OR and NOT; under AND a wide spread counts more."""
    for text in ("a OR b", "a NOT b"):
        similarities = random(parse(text), seed)
        other = similarities.copy()
        other[place] = scale * other[place] + shift
        np.testing.assert_allclose(scores(text, other), scores(text, similarities), atol=2e-3)


@given(SEEDS, st.sampled_from(TREES))
def test_the_order_of_documents_changes_nothing(seed, text):
    similarities = random(parse(text), seed)
    order = np.random.default_rng(seed).permutation(similarities.shape[1])
    np.testing.assert_allclose(
        scores(text, similarities[:, order]), scores(text, similarities)[order], atol=1e-4
    )


@given(SEEDS)
def test_and_and_or_are_commutative(seed):
    similarities = random(parse("a AND b"), seed)
    swapped = similarities[[1, 0, 2]]
    np.testing.assert_allclose(scores("a AND b", similarities), scores("a AND b", swapped))
    np.testing.assert_allclose(
        scores("a OR b", similarities[:2]), scores("a OR b", swapped[:2]), atol=1e-5
    )


@given(SEEDS)
def test_not_never_promotes_a_document_that_is_below_the_floor(seed):
    similarities = random(parse("a NOT b"), seed)
    fitted = fit(parse("a NOT b"), similarities)
    found = fitted.score(similarities)
    is_above = fitted.positive(similarities) > fitted.common.floor
    assert is_above.any()
    assert not is_above.all()
    assert found[is_above].min() > found[~is_above].max()


@given(SEEDS)
def test_not_only_lowers(seed):
    similarities = random(parse("a NOT b"), seed)
    assert (scores("a NOT b", similarities) <= scores("a OR a", similarities) + 1e-5).all()


def test_not_lowers_what_matches_the_negated_operand_and_leaves_the_rest():
    similarities = 0.3 * random(parse("a NOT b"), 0)
    similarities[0, :40] += 0.4  # these fit
    similarities[1, :10] += 0.4  # and of these the first are to be excluded
    found = scores("a NOT b", similarities)
    assert found[:10].max() < found[10:40].min()
    assert found[:10].min() > np.median(found[40:])


def test_what_both_operands_share_does_not_count():
    """ "moths of Borneo NOT moths of Sumatra": a moth is not excluded for being a moth."""
    similarities = random(parse("a NOT b"), 1)
    similarities[1] += 0.8 * similarities[0]
    fitted = fit(parse("a NOT b"), similarities)
    best = np.argsort(-similarities[0])[:20]
    # The best documents are no more similar to the rest of b than the others.
    assert abs(fitted.common.standing(similarities, _z(fitted, similarities))[0, best].mean()) < 0.6
    similarities[1] = similarities[0]
    assert fit(parse("a NOT b"), similarities).skipped == (1,)


def _z(fitted, similarities):
    return fitted.clauses[0].z(similarities)


def test_or_lets_a_narrow_and_a_wide_set_in_alike():
    rng = np.random.default_rng(0)
    similarities = rng.normal(0.3, 0.03, (2, 500)).astype(np.float32)
    similarities[0, :20] += 0.5
    similarities[1, 20:40] += 0.2
    best = np.argsort(-scores("a OR b", similarities))[:40]
    assert set(best) == set(range(40))
    # An operand that tells nothing apart does not.
    similarities[1] = 0.3 + 1e-5 * rng.random(500)
    assert set(np.argsort(-scores("a OR b", similarities))[:20]) == set(range(20))


def test_the_weakest_operand_counts_under_and():
    similarities = random(parse("a AND b"), 0)
    similarities[2] = 0.5
    similarities[:2, :2] = [[0.6, 0.9], [0.6, 0.3]]
    found = scores("a AND b", similarities)
    assert found[0] > found[1]


@pytest.mark.parametrize("text", TREES)
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_few_documents_have_scores(text, n):
    similarities = random(parse(text), 0, n)
    for own in (similarities, np.zeros_like(similarities), np.ones_like(similarities)):
        fitted = fit(parse(text), own)
        assert np.isfinite(fitted.score(own)).all()
        assert fitted.ranks(own).min() == 1


def test_a_query_with_only_negated_operands_prefers_what_they_do_not_match():
    similarities = random(Not(Atom("a")), 0)
    fitted = fit(Not(Atom("a")), similarities)
    found = fitted.score(similarities)
    order = np.argsort(similarities[0])
    assert (np.diff(found[order]) <= 1e-6).all()
    assert fitted.fits(similarities).all()
    word = np.random.default_rng(1).normal(0.5, 0.1, similarities.shape).astype(np.float32)
    with_word = np.concatenate([word, similarities])
    np.testing.assert_array_equal(scores("everything NOT a", with_word), found)
    assert clauses(parse("(everything NOT a) OR b")) == (Clause((), (1,)), Clause((2,), ()))


@pytest.mark.parametrize(
    ("values", "n_fitting"),
    [
        ([0.8, 0.7, 0.45, 0.38, 0.35, 0.3, 0.2], 3),
        ([0.8, 0.7], 2),
        ([0.8, 0.3], 1),
        ([0.8], 1),
        ([0.8, 0.8], 2),
        ([-0.5, -0.6, -0.8], 2),
        ([0.0, 0.0], 2),
    ],
)
@pytest.mark.parametrize("text", ["a^4 NOT b", "a NOT b"])
def test_less_than_half_of_the_best_does_not_fit(values, n_fitting, text):
    other = np.random.default_rng(0).normal(0, 0.1, len(values))
    similarities = np.array([values, other], np.float32)
    fits = fit(parse(text), similarities).fits(similarities)
    assert fits.tolist() == [True] * n_fitting + [False] * (len(values) - n_fitting)


def test_other_documents_are_scored_as_those_compared():
    similarities = random(parse("a AND b NOT c"), 0)
    fitted = fit(parse("a AND b NOT c"), similarities)
    np.testing.assert_array_equal(
        fitted.score(similarities)[7:9], fitted.score(similarities[:, 7:9])
    )


def test_evidence_has_ranks_and_shares():
    similarities = random(parse("a NOT b"), 0)
    fitted = fit(parse("a NOT b"), similarities)
    exceeds = fitted.exceeds(similarities)
    order = np.argsort(-similarities[0])
    assert fitted.ranks(similarities)[0, order].tolist() == [min(r + 1, 76) for r in range(300)]
    assert SHORTLIST > 75  # a quarter of 300
    assert (exceeds[0] == 0).all()
    high = np.argsort(exceeds[1])
    assert similarities[1, high[-30:]].mean() > similarities[1, high[:30]].mean() + 0.1
    assert all(a <= b for a, b in pairwise(exceeds[1, high]))


def test_a_document_does_not_exceed_itself_by_rounding():
    similarities = np.array([[0.8, 0.79], [0.3, 0.6], [0.8, 0.79]], np.float32)
    fitted = fit(And((Atom("moths"), Not(Atom("Java")))), similarities)
    for factor in (1 - 2e-7, 1, 1 + 2e-7):
        exceeds = fitted.exceeds(similarities * np.float32(factor))
        assert exceeds[1].tolist() == [0, 1]
