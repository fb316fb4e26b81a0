"""Composition in log space, on numpy and on torch: values, extremes, gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from boolattn.composition.arrays import log1mexp
from boolattn.composition.calibration import Calibration
from boolattn.composition.scores import compose, compose_batch, with_negation_margin
from boolattn.encoder.calibration import TrainableCalibration
from boolattn.errors import QueryError
from boolattn.logic.structure import in_words, operand_signs
from boolattn.logic.tree import And, Atom, Not, Or, atoms

A, B, C, D = map(Atom, "abcd")


def _truth(query, chances):
    """Probability of a tree of independent operands, by counting every case."""
    names = ("a", "b", "c")

    def holds(node, case):
        match node:
            case Atom(text):
                return case[text]
            case Not(part):
                return not holds(part, case)
            case And(parts):
                return all(holds(part, case) for part in parts)
            case Or(parts):
                return any(holds(part, case) for part in parts)

    total = 0.0
    for number in range(8):
        case = {name: bool(number >> place & 1) for place, name in enumerate(names)}
        weight = math.prod(chances[n] if is_in else 1 - chances[n] for n, is_in in case.items())
        total += weight * holds(query, case)
    return total


TREES = (
    A,
    Or((A, B)),
    Or((A, B, C)),
    And((A, B)),
    And((A, B, C)),
    And((A, Not(B))),
    And((A, B, Not(C))),
    And((Or((A, B)), Not(C))),
    And((A, Not(Or((B, C))))),
    And((A, Not(And((B, Not(C)))))),
    Not(A),
)


@pytest.mark.parametrize("array", [np.array, torch.tensor])
@pytest.mark.parametrize("tree", TREES, ids=in_words)
def test_compose_is_the_probability_of_independent_operands(tree, array):
    chances = {"a": 0.7, "b": 0.2, "c": 0.9}
    logits = array([[math.log(chances[x.text] / (1 - chances[x.text]))] for x in atoms(tree)])
    found = math.exp(compose(tree, logits).item())
    assert found == pytest.approx(_truth(tree, chances), abs=1e-6)


@pytest.mark.parametrize("tree", TREES, ids=in_words)
def test_numpy_and_torch_compose_alike(tree):
    z = np.random.default_rng(0).normal(0, 5, (len(list(atoms(tree))), 50)).astype(np.float32)
    own = compose(tree, with_negation_margin(tree, z, 0.3))
    other = compose(tree, with_negation_margin(tree, torch.from_numpy(z), 0.3))
    assert own.dtype == np.float32
    np.testing.assert_allclose(own, other.numpy(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tree", TREES, ids=in_words)
def test_scores_and_gradients_stay_finite_at_both_ends(tree):
    n_operands = len(list(atoms(tree)))
    for extreme in (-1000.0, -100.0, 0.0, 100.0, 1000.0):
        logits = torch.full((n_operands, 3), extreme, requires_grad=True)
        scores = compose(tree, logits)
        scores.sum().backward()
        assert torch.isfinite(scores).all()
        assert torch.isfinite(logits.grad).all()


def test_log1mexp_keeps_small_differences():
    x = torch.tensor([-1e-5, -0.5, -0.7, -20.0], dtype=torch.float64)
    assert torch.allclose(log1mexp(x), torch.log1p(-torch.exp(x)), atol=1e-9)


def test_a_batch_scores_as_its_trees_do():
    z = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    positive = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    negated = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool)
    is_or = torch.tensor([False, True, False, True])
    trees = [And((A, B)), Or((A, B)), And((A, Not(B))), And((Or((A, B)), Not(C)))]
    for margin in (0.0, 0.7):
        found = compose_batch(z, positive, negated, is_or, margin)
        for row, (tree, n) in enumerate(zip(trees, (2, 2, 2, 3), strict=True)):
            own = with_negation_margin(tree, z[row, :n], margin)
            assert torch.allclose(found[row], compose(tree, own), atol=1e-5)


def test_the_margin_reduces_only_negated_operands_beside_a_positive_one():
    z = torch.tensor([[4.0], [2.0], [3.0], [1.0]])
    tree = And((Or((A, B)), Not(Or((C, D)))))
    assert with_negation_margin(tree, z, 0.5).flatten().tolist() == [4, 2, 1, -1]
    for alone in (
        Or((A, And((B, C)), D)),
        Or((And((A, B)), Not(C), D)),
        And((Not(A), Not(B), Not(C), Not(D))),
    ):
        assert torch.equal(with_negation_margin(alone, z, 0.5), z)
    nested = Or((And((A, Not(B))), And((C, Not(D)))))
    assert with_negation_margin(nested, z, 1.0).flatten().tolist() == [4, -2, 3, -2]
    assert torch.equal(with_negation_margin(tree, z, 0.0), z)


def test_a_query_without_a_positive_operand_has_a_gradient():
    z = torch.randn(1, 2, 3, requires_grad=True)
    none, both = torch.zeros(1, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    compose_batch(z, none, both, torch.tensor([False]), 0.5).sum().backward()
    assert z.grad.isfinite().all()
    assert (z.grad != 0).all()


def test_a_negated_document_is_ranked_lower():
    positive, negated = compose(And((A, Not(B))), torch.tensor([[3.0, 3.0], [-3.0, 3.0]]))
    assert positive > negated


def test_a_wrong_number_of_operands_is_refused():
    with pytest.raises(QueryError, match="2 operands, but 1 were scored"):
        compose(And((A, B)), torch.zeros(1, 1))


def test_signs_of_a_double_negation():
    assert list(operand_signs(And((A, Not(And((B, Not(C)))))))) == [1, -1, 1]


def test_the_untrained_module_has_the_values_of_the_untrained_calibration():
    own, module = Calibration.untrained(3), TrainableCalibration(3).arrays()
    for name in Calibration.__dataclass_fields__:
        np.testing.assert_allclose(getattr(own, name), getattr(module, name), rtol=1e-6)


def test_calibration_is_monotone_and_offsets_negated_operands():
    calibration = TrainableCalibration(2)
    vectors = torch.zeros(2, 2)
    with torch.no_grad():
        calibration.negation_offset.fill_(0.1)
    logits = calibration.values().logits(
        torch.tensor([[0.1, 0.9], [0.1, 0.9]]), vectors, torch.tensor([0.0, 1.0])
    )
    assert (logits[:, 1] > logits[:, 0]).all()
    assert torch.allclose(logits[1] - logits[0], torch.tensor(1.5), atol=1e-5)


def test_the_weight_of_the_whole_query_vector_depends_on_the_operator():
    calibration = TrainableCalibration(2)
    with torch.no_grad():
        calibration.whole_query.copy_(torch.tensor([2.0, 1.0, -5.0]))
    one = torch.ones(1)
    by_and, by_or, by_not, by_both = (
        float(calibration.values().whole_query_term(one, torch.tensor(used)).detach())
        for used in ([1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [1.0, 0, 1.0])
    )
    assert by_and > by_or > by_not > 0
    assert by_both == by_not
    assert float(calibration.values().whole_query_term(one, torch.zeros(3)).detach()) == 0


def test_displayed_probabilities_of_negated_operands_have_their_own_scale():
    calibration = TrainableCalibration(4)
    logits = torch.tensor([[-1.0, 2.0], [-1.0, 2.0]])
    is_negated = torch.tensor([False, True])
    torch.testing.assert_close(calibration.values().displayed(logits, is_negated), logits.sigmoid())
    calibration.display_scale.copy_(torch.tensor([[1.0, 0.0], [0.5, -3.0]]))
    shown = calibration.values().displayed(logits, is_negated)
    torch.testing.assert_close(shown[0], logits[0].sigmoid())
    assert torch.allclose(shown[1], (0.5 * logits[1] - 3).sigmoid())
