"""Reliability curves and the fit of displayed probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.evaluation import figures
from boolattn.evaluation.reliability import fit_scale, reliability, reliability_by_sign


def test_the_curve_shows_overconfidence():
    found = reliability(np.full(100, 0.95), np.arange(100) < 60)
    assert found.count.tolist() == [100]
    assert found.error == pytest.approx(0.35)


def test_bins_include_both_ends():
    found = reliability(np.array([0.0, 1.0, 1.0]), np.array([0, 1, 0]))
    assert found.said.tolist() == [0, 1]
    assert found.found.tolist() == [0, 0.5]
    assert found.count.tolist() == [1, 2]


def test_curves_of_positive_and_negated_operands():
    probabilities = np.array([[0.9, 0.9, np.nan], [0.2, 0.2, 0.2]])
    is_true = np.array([[1, 0, 1], [0, 0, 1]], bool)
    found = reliability_by_sign(probabilities, is_true, np.array([False, True]))
    assert found["kept"]["count"] == [2]
    assert found["kept"]["error"] == pytest.approx(0.4)
    assert found["excluded"]["found"] == [0.33333]
    assert set(reliability_by_sign(probabilities, is_true, np.array([True, True]))) == {"excluded"}


def test_the_fit_recovers_a_scale_and_keeps_the_order():
    rng = np.random.default_rng(0)
    z = rng.normal(-2, 3, 40_000)
    is_true = rng.random(len(z)) < 1 / (1 + np.exp(-(0.7 * z - 1.8)))
    assert fit_scale(z, is_true) == pytest.approx((0.7, -1.8), abs=0.05)
    a, b = fit_scale(z, ~is_true)
    assert a == 0.01
    assert (1 / (1 + np.exp(-(a * z + b)))).mean() == pytest.approx((~is_true).mean(), abs=0.01)


def test_the_prior_bounds_the_slope_of_separable_values():
    a, b = fit_scale(np.array([-1.0, 1.0]), np.array([0, 1]))
    assert 1 <= a < 10
    assert abs(b) < 1


def test_the_fit_is_that_of_newtons_method():
    # Values of the implementation by hand that this one replaced.
    z = np.array([-3.0, -2, 2, 3])
    assert fit_scale(z, np.array([0, 0, 1, 1])) == pytest.approx((1.3526159989, 0), abs=1e-6)
    rng = np.random.default_rng(0)
    z = rng.normal(-3, 4, 1000)
    is_true = rng.random(1000) < 1 / (1 + np.exp(-(0.6 * z - 1.5)))
    assert fit_scale(z, is_true) == pytest.approx((0.44790307062, -1.38314717580), abs=1e-6)


def test_the_figure_has_one_line_per_curve():
    curve = {"said": [0.1, 0.9], "found": [0.2, 0.7], "count": [10, 5], "error": 0.1}
    found = {"kept": curve, "excluded": {**curve, "found": [0.0, 0.5]}}
    figure = figures.reliability_curves("title", {"seed 0": found, "seed 1": found})
    positive, negated, *_ = figure.axes
    for panel in (positive, negated):
        # With the diagonal.
        assert len(panel.lines) == 3
    assert list(positive.lines[1].get_xdata()) == [0.1, 0.9]
    assert list(negated.lines[1].get_ydata()) == [0.0, 0.5]
