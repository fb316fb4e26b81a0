from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.evaluation.benchmark import Judgements
from boolattn.evaluation.results import Results, average, compare_results, results_of
from tests.evaluation.conftest import ROWS

NAN = float("nan")


@pytest.fixture
def results(queries) -> Results:
    values = {"recall@20": np.array([0.5, 1, 0]), "leak": np.array([NAN, 1 / 3, NAN])}
    return results_of(
        Judgements.of(queries, ROWS),
        values,
        system="some",
        dataset="tiny",
        split="test",
        gate="own",
        seed=0,
        details={"command": "boolattn evaluate"},
    )


def test_means_leave_undefined_values_out(results):
    assert len(results.queries) == 3
    assert results.means == {"recall@20": pytest.approx(0.5), "leak": pytest.approx(1 / 3)}


def test_groups(results):
    groups = results.by("operator")
    assert [(name, len(group)) for name, group in groups.items()] == [
        ("none", 1),
        ("and", 1),
        ("not", 1),
    ]
    assert list(results.by("template")) == ["_", "_ that are also _", "_ that are not _"]
    domains = results.by("domain")
    assert domains["animals"].means["recall@20"] == pytest.approx(0.75)
    assert np.isnan(domains["plants"].means["leak"])
    assert list(results.by("wording")) == ["seen"]
    assert results.only("domain", "plants").means["recall@20"] == 0


def test_a_query_without_a_template_is_grouped_by_its_operators(results):
    unnamed = replace(results, queries=tuple(replace(q, template="") for q in results.queries))
    assert list(unnamed.by("template")) == ["unknown", "not", "and"]


def test_an_unknown_group_is_refused(results):
    with pytest.raises(ConfigError, match="unknown grouping 'colour'; there are template"):
        results.by("colour")
    with pytest.raises(ConfigError, match="no query of domain 'films'"):
        results.only("domain", "films")


def test_results_are_read_back_from_their_file(results, tmp_path):
    path = tmp_path / "results.json"
    results.save(path)
    again = Results.load(path)
    assert again.queries == results.queries
    assert (again.system, again.gate, again.seed) == ("some", "own", 0)
    for name, values in results.values.items():
        np.testing.assert_allclose(again.values[name], values, atol=5e-6)
    plain = json.loads(path.read_text())
    assert plain["overall"] == {"n": 3, "recall@20": 0.5, "leak": 0.33333}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "results.json:1: not JSON"),
        ("[]", "a JSON object is expected"),
        ("", "has no results in format"),
        ('{"format": "boolattn-results-1"}', "is damaged"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path, text, complaint):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(DataError, match=complaint):
        Results.load(path)
    with pytest.raises(MissingDataError, match="no file"):
        Results.load(tmp_path / "none.json")


def test_average_over_seeds(results):
    other = replace(
        results,
        values={"recall@20": np.array([1.0, 1, 1]), "leak": np.array([NAN, 1, NAN])},
        seed=1,
    )
    joined = average([results, other])
    np.testing.assert_allclose(joined.values["recall@20"], [0.75, 1, 0.5])
    np.testing.assert_allclose(joined.values["leak"], [NAN, 2 / 3, NAN])


def test_comparison_of_two_systems(results):
    better = replace(results, system="other", values={**results.values, "recall@20": np.ones(3)})
    compared = compare_results(results, better)
    assert compared["recall@20"].difference == pytest.approx(0.5)
    assert compared["leak"].n == 1
    assert list(compare_results(results, better, metrics=["leak"])) == ["leak"]
    with pytest.raises(
        ConfigError, match="not both results have mrr@10; both have recall@20, leak"
    ):
        compare_results(results, better, metrics=["mrr@10"])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"split": "unseen"}, "split 'test' and 'unseen' are not comparable"),
        ({"n_documents": 9}, "n_documents 10 and 9"),
    ],
)
def test_results_that_are_not_comparable_are_refused(results, change, complaint):
    with pytest.raises(ConfigError, match=complaint):
        compare_results(results, replace(results, **change))


def test_results_of_different_queries_are_refused(results):
    with pytest.raises(ConfigError, match="have different queries: 3 and 1"):
        compare_results(results, results.only("domain", "plants"))
