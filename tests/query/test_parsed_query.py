"""Trees of operands in text order, and what joins neighbours."""

from __future__ import annotations

import pytest

from boolattn.query.syntax import parse
from experiments.labels import label_tree

TEXT = "a b c d e"
SPANS = [((at, at + 1),) for at in range(0, 9, 2)]


@pytest.mark.parametrize(
    ("formula", "structure"),
    [
        ("0", "_"),
        ("0 AND 1", "_ AND _"),
        ("1 OR 0", "_ OR _"),
        ("(0 OR 1) AND NOT 2", "(_ OR _) NOT _"),
        ("0 AND NOT (1 OR 2)", "_ NOT _ NOT _"),
        ("0 AND NOT (1 AND 2)", "_ AND ((NOT _) OR (NOT _))"),
        ("0 AND NOT (1 AND NOT 2)", "_ AND ((NOT _) OR _)"),
        ("(0 AND NOT 1) OR (2 AND NOT 3)", "(_ NOT _) OR (_ NOT _)"),
        ("0 AND (1 OR (2 AND 3))", "_ AND (_ OR (_ AND _))"),
        ("(0 AND 1) AND (2 AND 3)", "_ AND _ AND _ AND _"),
    ],
)
def test_a_tree_is_kept_by_its_gaps(formula, structure):
    tree = parse(formula)
    n = 1 + max(int(sign) for sign in formula if sign.isdigit())
    labelled = label_tree(TEXT, tree, SPANS[:n])
    assert labelled.parsed.structure == structure
    assert labelled.parsed.is_plain == (n == 1)
    assert len(labelled.parsed.gaps) == n - 1


def test_the_tree_has_the_words_of_the_text():
    labelled = label_tree(TEXT, parse("(1 OR 0) AND NOT 2"), SPANS[:3])
    assert labelled.parsed.tree(TEXT) == parse("(a OR b) NOT c")


@pytest.mark.parametrize(
    ("formula", "n"),
    [
        ("(0 OR 2) AND 1", 3),  # another operand in between
        ("(0 AND 2) OR (1 AND 3)", 4),
        ("0 AND (1 OR (2 AND (3 OR 4)))", 5),  # four levels
    ],
)
def test_what_gaps_cannot_say_is_no_label(formula, n):
    assert label_tree(TEXT, parse(formula), SPANS[:n]) is None


def test_operands_without_words_or_with_the_same_are_no_label():
    assert label_tree(TEXT, parse("0 AND 1"), [SPANS[0], ()]) is None
    assert label_tree(TEXT, parse("0 AND 1"), [SPANS[0], SPANS[0]]) is None
