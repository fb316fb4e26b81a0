import pytest

from boolattn.query.forms import read_negated_form
from boolattn.query.syntax import unparse


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("gluten-free bread", "NOT gluten AND bread"),
        ("desserts that are nut-free?", "desserts NOT nut"),
        ("Jobs in York, no experience needed", "Jobs in York NOT experience"),
        ("jobs with no driving licence required.", "jobs NOT driving licence"),
        ("anything but country music", "anything NOT country music"),
        ("Show me everything except for horror films!", "everything NOT horror films"),
    ],
)
def test_known_forms_are_read(text, tree):
    assert unparse(read_negated_form(text).tree(text)) == tree


@pytest.mark.parametrize(
    "text",
    [
        "duty-free shops",
        "hands-free",
        "free bread",
        "no experience needed",
        "bread",
        "bread, no nuts",
        "Everything But the Girl",
        "anything goes",
    ],
)
def test_others_are_left_alone(text):
    assert read_negated_form(text) is None
