"""Operands said as barely as people type them."""

import pytest

from boolattn.data.records import Operand, Query
from boolattn.logic.elision import elided_names, elided_tree
from boolattn.logic.tree import And, Atom, Not


@pytest.mark.parametrize(
    ("names", "bare"),
    [
        (["moths of Borneo", "moths of Sumatra"], ["moths of Borneo", "Sumatra"]),
        (["Moths of Borneo", "moths of the Congo"], ["Moths of Borneo", "Congo"]),
        (["films set in Spain", "1990s films"], ["films set in Spain", "1990s"]),
        (["mammals of Peru", "opossums"], ["mammals of Peru", "opossums"]),
        # Nothing of its own: it stays whole.
        (["moths of Borneo", "moths"], ["moths of Borneo", "moths"]),
    ],
)
def test_what_the_first_says_is_not_said_again(names, bare):
    assert elided_names(names) == bare


def _query(template, *names):
    operands = tuple(Operand(name) for name in names)
    return Query(
        id="q", text=" ".join(names), template=template, operands=operands, gold=frozenset()
    )


def test_only_what_is_joined_or_excluded_is_said_barely():
    names = ("moths of Borneo", "moths of Sumatra")
    assert elided_tree(_query("_ that are not _", *names)) == And(
        (Atom("moths of Borneo"), Not(Atom("Sumatra")))
    )
    assert elided_tree(_query("_ that are also _", *names)) == And(
        (Atom("moths of Borneo"), Atom("Sumatra"))
    )
    # All of Sumatra, beetles too, is another question.
    assert elided_tree(_query("_ or _", *names)) is None
    assert elided_tree(_query("_", names[0])) is None
    # Nothing becomes shorter.
    assert elided_tree(_query("_ that are not _", "mammals of Peru", "opossums")) is None
    # Not all operands are known.
    assert elided_tree(_query("_ that are not _", names[0])) is None
    assert elided_tree(_query("", *names)) is None
