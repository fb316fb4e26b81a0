"""Parse accuracy: structure, operand words, and names with a cue word."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from boolattn.evaluation.parsing import accuracy, word_f1
from boolattn.evaluation.tables import short
from boolattn.query.tree import And, Atom, Not, Or
from experiments.parsing.accuracy import measure
from experiments.parsing.queries import cue_word_names, unseen_queries


def cells(table, name):
    [line] = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_shares_and_errors_by_group():
    names = [name.labelled for name in cue_word_names()]
    unseen = [query.labelled for query in unseen_queries()]
    composed = [query for query in unseen if not query.parsed.is_plain]
    groups = {"names": names, "composed": composed, "all": [*names, *unseen]}
    n_names, n_all = len(names), len(names) + len(unseen)
    n_plain = n_all - len(composed)
    none = measure(groups, lambda texts: [Atom(text) for text in texts])
    # Every query is one operand: names and plain queries are right, the others left whole.
    assert cells(none, "names")[1:6] == [str(n_names), "1.000", "–", "–", "1.000"]
    assert cells(none, "composed")[2:8] == [".000", ".000", ANY, "–", "0", str(len(composed))]
    assert cells(none, "all")[2] == short(n_plain / n_all)
    trees = {query.text: query.parsed.tree(query.text) for query in (*names, *unseen)}
    right = measure(groups, lambda texts: [trees[text] for text in texts])
    assert cells(right, "all")[2:] == ["1.000"] * 4 + ["0"] * 5
    wrong = {names[0].text, names[-1].text}
    split = And((Atom("a"), Atom("b")))

    def some_wrong(texts):
        return [split if text in wrong else trees[text] for text in texts]

    table = measure(groups, some_wrong, shows_errors=True)
    assert cells(table, "names")[6] == "2"
    assert cells(table, "names")[5] == cells(table, "names")[2] == short(1 - 2 / n_names)
    # An error of two groups is shown once.
    assert sum(line.startswith("taken apart: ") for line in table.splitlines()) == 2


def test_operands_must_have_the_same_signs():
    a, b, c = map(Atom, "abc")
    same = (And((a, b, Not(c))), And((b, Atom("A"), Not(c))))
    assert accuracy([same])["operands"] == 1
    other = [(And((a, Not(b))), And((b, Not(a)))), (Or((a, b)), And((a, b)))]
    assert accuracy(other)["operands"] == 0


def test_word_f1_of_words_in_a_wrong_operand():
    right = And((Atom("red moths"), Not(Atom("moths of Java"))))
    assert word_f1(right, right) == 1
    # Of five words and four, three are in the right operand.
    found = word_f1(right, And((Atom("red"), Not(Atom("Moths, Java red")))))
    assert found == pytest.approx(2 * 3 / (5 + 4))
    assert word_f1(right, Or((Atom("ants"), Atom("bees")))) == 0
    # A positive operand is never matched with a negated one.
    assert word_f1(Atom("moths"), Not(Atom("moths"))) == 0
