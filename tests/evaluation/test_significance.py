from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from boolattn.errors import ConfigError
from boolattn.evaluation.results import compare


def exact_p_value(difference) -> float:
    """Try all signs."""
    sums = [np.dot(signs, difference) for signs in product((-1, 1), repeat=len(difference))]
    return float(np.mean(np.abs(sums) >= abs(sum(difference)) - 1e-9))


@pytest.mark.parametrize("values", [[0.1, 0.2, 0.3, -0.1, 0.25, 0.1], [0.5, -0.5, 0.1, 0, -0.1, 0]])
def test_p_value_is_that_of_all_signs(values):
    difference = np.array(values)
    p_value = compare(np.zeros(6), difference).p_value
    assert p_value == pytest.approx(exact_p_value(difference), abs=0.01)


def test_a_system_does_not_differ_from_itself():
    values = np.random.default_rng(0).random(50)
    result = compare(values, values)
    assert (result.p_value, result.difference, result.low, result.high) == (1, 0, 0, 0)


def test_a_constant_gain_has_the_smallest_p_value():
    values = np.linspace(0, 0.5, 40)
    result = compare(values, values + 0.1)
    assert result.p_value == pytest.approx(1 / 10_001)
    assert (result.low, result.high) == (pytest.approx(0.1), pytest.approx(0.1))
    assert result.difference == pytest.approx(0.1)


def test_the_interval_of_many_queries_is_the_normal_one():
    difference = np.random.default_rng(3).normal(0.02, 0.1, 900)
    result = compare(np.zeros(900), difference)
    half = 1.96 * difference.std(ddof=1) / 30
    assert (result.low, result.high) == (
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


def test_draws_depend_on_the_seed_alone():
    rng = np.random.default_rng(1)
    first = rng.random(30)
    second = first + rng.normal(0.03, 0.1, 30)
    results = [compare(first, second, seed=seed) for seed in (0, 0, 1)]
    assert results[0] == results[1] != results[2]


def test_one_query_has_an_interval_of_one_value():
    result = compare(np.array([0.25]), np.array([0.5]))
    assert (result.low, result.high, result.p_value) == (0.25, 0.25, 1)
