"""Lexical evidence: BM25+ scores of an operand's words."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.data.records import Document
from boolattn.query.plan import Plan
from boolattn.query.tree import Atom
from boolattn.search.lexical import Lexical, write_lexical
from boolattn.search.lexical_evidence import LexicalEvidence

TEXTS = (
    "A moth.",
    "Moth, moth, moth and moth: a long text about every moth of the island, and nothing else.",
    "A moth of Borneo.",
    "A whale.",
)


@pytest.fixture
def lexical(tmp_path):
    documents = [Document(id=str(row), text=text) for row, text in enumerate(TEXTS)]
    write_lexical(tmp_path / "words", enumerate(documents))
    return Lexical(tmp_path / "words")


def scores(found):
    return dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True))


def test_having_a_word_counts_more_than_repeating_it(lexical):
    bm25, more = (scores(lexical.search(["moth", "borneo"], 4, delta=delta)) for delta in (0, 2))
    assert sorted(bm25) == sorted(more) == [0, 1, 2]
    # The same for the two documents that have one word, more for the one that has both.
    added = [more[row] - bm25[row] for row in range(3)]
    assert added[0] == pytest.approx(added[1])
    assert added[2] > 2 * added[0]
    assert bm25[0] != bm25[1]


def test_documents_beyond_the_limit_are_no_worse_than_the_last(lexical):
    tree, vector = Atom("moths of Borneo"), np.ones(4, np.float32)
    plan = Plan(tree.text, tree, (tree.text,), (), vector[None], vector, False, 1.0, tree)
    [every] = LexicalEvidence.of(lexical, plan, 4, None).found
    assert every.scores.min() > 0
    # Of three documents with the words two are known: the third may have as much as the second.
    [two] = LexicalEvidence.of(lexical, plan, 2, None).found
    assert scores(two)[2] > 0
    assert sorted(scores(two).values())[0] == 0
