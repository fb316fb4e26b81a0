"""Trees of given operands, and the structure of a tree."""

from __future__ import annotations

from dataclasses import replace

from boolattn.data.records import Operand, Query
from boolattn.evaluation.parsing import structure
from boolattn.query.tree import And, Atom, Not, Or
from experiments.domains.composition import oracle_tree

TEXT = "moths of borneo but not sumatra"
QUERY = Query(
    id="q",
    text=TEXT,
    gold=frozenset({"d0"}),
    template="_ that are not _",
    operands=(
        Operand("borneo moths", ((0, 15),)),
        Operand("sumatra moths", ((0, 8), (24, 31))),
    ),
)


def test_oracle_operands_are_the_querys_words_or_else_their_names():
    words = And((Atom("moths of borneo"), Not(Atom("moths of sumatra"))))
    assert oracle_tree(QUERY) == words
    unmarked = replace(QUERY, operands=(Operand("borneo moths", ()), Operand("sumatra moths", ())))
    names = And((Atom("borneo moths"), Not(Atom("sumatra moths"))))
    assert oracle_tree(unmarked) == names
    assert oracle_tree(Query(id="q", text=TEXT, gold=frozenset())) == Atom(TEXT)


def test_structures():
    a, b, c = map(Atom, "abc")
    assert structure(a) == "_"
    assert structure(Or((a, b))) == "or(_,_)"
    assert structure(And((Or((a, b)), Not(c)))) == "and(not(_),or(_,_))"
    assert structure(And((Not(b), a, Not(c)))) == "and(_,not(_),not(_))"
