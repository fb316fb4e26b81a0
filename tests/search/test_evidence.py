"""Lexical evidence: BM25+ scores of an operand's words."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.encoders.callables import CallableEncoder
from boolattn.scoring.exact import Ranked, shortlist_spread
from boolattn.search import Searcher
from boolattn.search.candidates import NOTHING
from boolattn.search.evidence import LexicalEvidence
from boolattn.stores.analysis import operand_terms
from boolattn.stores.filters import Filter
from boolattn.stores.local import words

TEXTS = (
    "A moth.",
    "Moth, moth, moth and moth: a long text about every moth of the island, and nothing else.",
    "A moth of Borneo.",
    "A whale.",
)
ENCODER = CallableEncoder(lambda texts: np.ones((len(texts), 4)))


@pytest.fixture
def reader():
    searcher = Searcher.from_texts(TEXTS, ENCODER, parser=None)
    with searcher.store.reading() as snapshot:
        yield snapshot


def scores(ranked):
    return dict(zip(ranked.rows.tolist(), ranked.scores.tolist(), strict=True))


def test_having_a_word_counts_more_than_repeating_it(reader, monkeypatch):
    def with_delta(delta):
        monkeypatch.setattr(words, "DELTA", delta)
        return scores(*reader.words([["moth", "borneo"]], 4, Filter()))

    bm25, more = with_delta(0), with_delta(2)
    assert sorted(bm25) == sorted(more) == [0, 1, 2]
    # The same for the two documents that have one word, more for the one that has both.
    added = [more[row] - bm25[row] for row in range(3)]
    assert added[0] == pytest.approx(added[1])
    assert added[2] > 2 * added[0]
    assert bm25[0] != bm25[1]


def test_documents_beyond_the_limit_are_no_worse_than_the_last(reader):
    terms = [operand_terms("moths of Borneo")]
    reader.max_word_hits = 4
    [every, _] = LexicalEvidence.of(reader, terms, Filter()).answers
    assert len(every.rows) == 3
    assert every.scores.min() > 0
    # Of three documents with the words two are known: the third may have as much as the second.
    reader.max_word_hits = 2
    [two, _] = LexicalEvidence.of(reader, terms, Filter()).answers
    assert scores(two)[2] > 0
    assert sorted(scores(two).values())[0] == 0


@pytest.mark.parametrize(("error", "is_used"), [(0.0, False), (1e-4, False), (1.0, True)])
def test_equal_scores_say_nothing_whatever_their_rounding(error, is_used):
    keys = np.arange(300)
    scores = (2 + error * np.linspace(0, 1, 300)).astype(np.float32)
    similarities = np.linspace(0, 1, 300, dtype=np.float32)[None]
    evidence = LexicalEvidence((Ranked(keys, scores), NOTHING))
    fitted, added = evidence.fit(keys, similarities)
    assert bool(fitted.factors[0]) == is_used
    assert np.array_equal(added, similarities) != is_used


def test_of_nearly_equal_scores_at_most_ten_spreads_count():
    keys = np.arange(300)
    similarities = np.linspace(0, 1, 300, dtype=np.float32)[None]
    scores = (8 + np.linspace(0, 0.01, 200)).astype(np.float32)
    evidence = LexicalEvidence((Ranked(keys[:200], scores), NOTHING))
    _, added = evidence.fit(keys, similarities)
    most = (added - similarities).max() / shortlist_spread(similarities[0])
    assert most == pytest.approx(10, rel=1e-3)
