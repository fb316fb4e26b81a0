"""Exact search: the best documents of each query among all."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.errors import DataError
from boolattn.scoring import exact
from boolattn.scoring.exact import exact_search, top_k


def test_the_block_size_does_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    queries, documents = (rng.normal(size=(n, 8)).astype(np.float32) for n in (7, 50))
    expected = np.argsort(-(queries @ documents.T), axis=1)[:, :20]
    for block in (1 << 23, 150, 1):
        monkeypatch.setattr(exact, "_BLOCK", block)
        hits = exact_search(queries, documents, 20)
        np.testing.assert_array_equal(hits.rows, expected)
        assert (np.diff(hits.scores) <= 0).all()


def test_equal_scores_are_ordered_by_row():
    documents = np.array([[1.0], [2.0], [1.0], [2.0], [1.0]], np.float32)
    assert exact_search(np.ones((1, 1)), documents, 5).rows.tolist() == [[1, 3, 0, 2, 4]]


def test_a_depth_beyond_the_corpus_and_no_queries():
    documents = np.ones((3, 2), np.float32)
    assert exact_search(np.ones((1, 2)), documents, 10).rows.shape == (1, 3)
    assert exact_search(np.ones((0, 2)), documents, 10).rows.shape == (0, 3)


def test_nan_scores_are_refused():
    with pytest.raises(DataError, match="NaN"):
        exact_search(np.full((1, 2), np.nan), np.ones((3, 2), np.float32), 2)


def test_the_first_page_is_the_beginning_of_every_longer_one():
    """Many documents have the same score, also where the page ends."""
    scores = np.random.default_rng(0).integers(0, 5, (2, 300)).astype(np.float32)
    longest = top_k(scores, 300).rows
    assert longest.tolist() == np.argsort(-scores, axis=1, kind="stable").tolist()
    for k in (1, 10, 60, 61, 299):
        assert top_k(scores, k).rows.tolist() == longest[:, :k].tolist()
