from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from boolattn.errors import ConfigError
from boolattn.evaluation.significance import bootstrap_interval, compare, randomisation_test


def exact_p(difference) -> float:
    """Throw every sign there is."""
    sums = [np.dot(signs, difference) for signs in product((-1, 1), repeat=len(difference))]
    return float(np.mean(np.abs(sums) >= abs(sum(difference)) - 1e-9))


@pytest.mark.parametrize("values", [[0.1, 0.2, 0.3, -0.1, 0.25, 0.1], [0.5, -0.5, 0.1, 0, -0.1, 0]])
def test_p_is_that_of_all_signs(values):
    difference = np.array(values)
    found = randomisation_test(np.zeros(6), difference, n_draws=40_000)
    assert found == pytest.approx(exact_p(difference), abs=0.01)


def test_the_same_system_twice_is_no_difference():
    values = np.random.default_rng(0).random(50)
    result = compare(values, values)
    assert (result.p_value, result.difference, result.low, result.high) == (1, 0, 0, 0)


def test_a_constant_gain_is_as_sure_as_the_draws_allow():
    values = np.linspace(0, 0.5, 40)
    result = compare(values, values + 0.1, n_draws=999)
    assert result.p_value == pytest.approx(1 / 1000)
    assert (result.low, result.high) == (pytest.approx(0.1), pytest.approx(0.1))
    assert result.difference == pytest.approx(0.1)


def test_the_interval_is_that_of_the_normal_law_for_many_queries():
    difference = np.random.default_rng(3).normal(0.02, 0.1, 900)
    low, high = bootstrap_interval(np.zeros(900), difference)
    half = 1.96 * difference.std(ddof=1) / 30
    assert (low, high) == (
        pytest.approx(difference.mean() - half, abs=5e-4),
        pytest.approx(difference.mean() + half, abs=5e-4),
    )


def test_queries_without_a_value_are_left_out():
    first = np.array([0.2, np.nan, 0.4, 0.9])
    second = np.array([0.4, 0.1, 0.6, np.nan])
    result = compare(first, second)
    assert (result.n, result.first, result.second) == (2, pytest.approx(0.3), pytest.approx(0.5))


def test_nothing_to_compare_is_refused():
    with pytest.raises(ConfigError, match="no query has a value of both"):
        compare(np.array([np.nan]), np.array([1.0]))
    with pytest.raises(ConfigError, match="one value a query each"):
        compare(np.zeros(2), np.zeros(3))
    with pytest.raises(ConfigError, match="between 0 and 1"):
        bootstrap_interval(np.zeros(2), np.ones(2), confidence=95)
