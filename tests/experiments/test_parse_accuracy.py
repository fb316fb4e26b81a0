"""Parse accuracy: structure, operand words, and names with a cue word."""

from __future__ import annotations

import pytest

from boolattn.evaluation.parsing import has_same_operands, word_f1
from boolattn.query.reading import Reading
from boolattn.query.tree import And, Atom, Not, Or
from experiments.parsing.accuracy import split_names, unseen_accuracy
from experiments.parsing.test_sets import FORMS, cue_word_names, unseen_queries


def read(text, tree, parsed):
    return Reading(text, text, tree, parsed)


def plain(texts):
    """Parse every text as one operand."""
    return [read(text, Atom(text), Atom(text)) for text in texts]


def test_split_names_are_counted_by_kind():
    none = split_names(plain)
    assert (none["n"], none["misread"]) == (len(cue_word_names()), 0)
    wrong = {cue_word_names()[0].query, cue_word_names()[-1].query}
    split = And((Atom("a"), Atom("b")))

    def some_wrong(texts):
        return [read(text, split if text in wrong else Atom(text), Atom(text)) for text in texts]

    found = split_names(some_wrong)
    assert found["misread"] == 2
    assert found["kinds"][cue_word_names()[0].kind]["misread"] >= 1
    assert sum(kind["n"] for kind in found["kinds"].values()) == len(cue_word_names())


def test_operands_must_have_the_same_signs():
    a, b, c = map(Atom, "abc")
    assert has_same_operands(And((a, b, Not(c))), And((b, Atom("A"), Not(c))))
    assert not has_same_operands(And((a, Not(b))), And((b, Not(a))))
    assert not has_same_operands(Or((a, b)), And((a, b)))


def test_word_f1_of_words_in_a_wrong_operand():
    right = And((Atom("red moths"), Not(Atom("moths of Java"))))
    assert word_f1(right, right) == 1
    # Of five words and four, three are in the right operand.
    found = word_f1(right, And((Atom("red"), Not(Atom("Moths, Java red")))))
    assert found == pytest.approx(2 * 3 / (5 + 4))
    assert word_f1(right, Or((Atom("ants"), Atom("bees")))) == 0
    # A positive operand is never matched with a negated one.
    assert word_f1(Atom("moths"), Not(Atom("moths"))) == 0


def test_unseen_wordings_are_judged_by_parse_and_by_scored_tree():
    queries = unseen_queries()
    n_plain = sum(query.form == "plain" for query in queries)
    none = unseen_accuracy(plain)
    assert none["n"] == len(queries)
    assert none["structure"] == none["obeyed"] == round(n_plain / len(queries), 4)
    assert none["words"] == 0
    assert "words" not in none["forms"]["plain"]
    trees = {q.labelled.text: q.labelled.parsed.tree(q.labelled.text) for q in queries}
    found = unseen_accuracy(lambda texts: [read(text, Atom(text), trees[text]) for text in texts])
    assert found["structure"] == found["words"] == found["word_f1"] == 1
    # All confidences are too low, so every query is scored as one operand.
    assert found["obeyed"] == none["obeyed"]
    assert found["domains"]["taxa"]["n"] + found["elsewhere"]["n"] == len(queries)
    assert set(found["forms"]) == set(FORMS)
