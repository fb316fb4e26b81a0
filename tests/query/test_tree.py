import pytest

from boolattn.errors import QueryError
from boolattn.query.syntax import TEMPLATES, template_operators, template_tree
from boolattn.query.tree import And, Atom, Everything, Not, Or, answers, signed_atoms

SETS = {"a": frozenset("1234"), "b": frozenset("3456"), "c": frozenset("46")}


@pytest.mark.parametrize(
    ("template", "expected", "operators"),
    [
        ("_", "1234", []),
        ("_ or _", "123456", ["or"]),
        ("_ or _ or _", "123456", ["or"]),
        ("_ that are also _", "34", ["and"]),
        ("_ that are also both _ and _", "4", ["and"]),
        ("_ that are not _", "12", ["not"]),
        ("_ that are also _ but not _", "3", ["and", "not"]),
    ],
)
def test_every_template_means_its_sets(template, expected, operators):
    operands = ["a", "b", "c"][: template.count("_")]
    assert "".join(sorted(answers(template_tree(template, operands), SETS))) == expected
    assert [operator.value for operator in template_operators(template)] == operators


def test_all_templates_are_tried_above():
    assert len(TEMPLATES) == 7


def test_nested_exclusion_keeps_what_it_excludes_from_the_exclusion():
    query = And((Atom("a"), Not(And((Atom("b"), Not(Atom("c")))))))
    assert "".join(sorted(answers(query, SETS))) == "124"
    assert [(atom.text, sign) for atom, sign in signed_atoms(query)] == [
        ("a", 1),
        ("b", -1),
        ("c", 1),
    ]


def test_a_query_that_only_excludes_needs_a_universe():
    with pytest.raises(QueryError, match="only negates"):
        answers(Not(Atom("a")), SETS)
    everything = frozenset("123456789")
    assert answers(Not(Atom("a")), SETS, everything) == frozenset("56789")
    assert answers(And((Not(Atom("a")), Not(Atom("b")))), SETS, everything) == frozenset("789")
    assert answers(Or((Atom("c"), Not(Atom("a")))), SETS, everything) == frozenset("456789")
    rest = And((Everything("everything"), Not(Atom("a"))))
    assert answers(rest, SETS, everything) == frozenset("56789")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: answers(Atom("z"), SETS), "no documents are known for the operand 'z'"),
        (lambda: template_tree("_ xor _", ["a", "b"]), "unknown template '_ xor _'"),
        (lambda: template_tree("_ or _", ["a"]), "takes 2 operands, got 1"),
    ],
)
def test_bad_queries_are_named(call, message):
    with pytest.raises(QueryError, match=message):
        call()
