"""Elided operands."""

import pytest

from boolattn.logic.elision import elided_names, elided_tree
from boolattn.logic.tree import And, Atom, Not


@pytest.mark.parametrize(
    ("names", "elided"),
    [
        (["moths of Borneo", "moths of Sumatra"], ["moths of Borneo", "Sumatra"]),
        (["Moths of Borneo", "moths of the Congo"], ["Moths of Borneo", "Congo"]),
        (["films set in Spain", "1990s films"], ["films set in Spain", "1990s"]),
        (["mammals of Peru", "opossums"], ["mammals of Peru", "opossums"]),
        # Without words of its own a name stays.
        (["moths of Borneo", "moths"], ["moths of Borneo", "moths"]),
    ],
)
def test_words_of_the_first_operand_are_elided(names, elided):
    assert elided_names(names) == elided


def test_only_and_and_not_are_elided():
    names = ("moths of Borneo", "moths of Sumatra")
    assert elided_tree("_ that are not _", [*names]) == And(
        (Atom("moths of Borneo"), Not(Atom("Sumatra")))
    )
    assert elided_tree("_ that are also _", [*names]) == And(
        (Atom("moths of Borneo"), Atom("Sumatra"))
    )
    # All of Sumatra, beetles too, is another question.
    assert elided_tree("_ or _", [*names]) is None
    assert elided_tree("_", [names[0]]) is None
    # Nothing becomes shorter.
    assert elided_tree("_ that are not _", ["mammals of Peru", "opossums"]) is None
    # Not all operands are known.
    assert elided_tree("_ that are not _", [names[0]]) is None
    assert elided_tree("", [*names]) is None
