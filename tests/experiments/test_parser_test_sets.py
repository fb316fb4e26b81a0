"""The frozen test set of unseen wordings: its bytes, its forms, and that no training uses it."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

import experiments
from boolattn.errors import DataError
from boolattn.query.parsed_query import words
from experiments.parsing.test_sets import FORMS, parse_unseen, unseen_queries
from tests.parses import form, negated, positive

#: A test set that is changed after a look at results tests nothing: a new sum needs a new set.
FROZEN = "592bd1adbf358094b67cc4724fdbda54ac07facf354c14fe1d6b7ed10ca58a0c"


def test_file_is_frozen():
    source = files("experiments.parsing").joinpath("unseen_wordings.txt").read_bytes()
    assert sha256(source).hexdigest() == FROZEN


def test_all_forms_occur_in_taxa_and_in_other_domains():
    queries = unseen_queries()
    assert len(queries) == 484
    assert {query.form for query in queries} == set(FORMS)
    n_taxa = Counter(query.form for query in queries if query.domain == "taxa")
    n_all = Counter(query.form for query in queries)
    assert all(2 * n_taxa[form] == n_all[form] >= 22 for form in FORMS)
    assert len({query.domain for query in queries}) > 10
    assert len({query.labelled.text.casefold() for query in queries}) == len(queries)


def test_every_operand_has_words_and_fits_its_form():
    for query in unseen_queries():
        text, parsed = query.labelled.text, query.labelled.parsed
        form = FORMS[query.form]
        assert len(negated(parsed)) == form.n_negated
        assert len(positive(parsed)) + form.n_negated in form.n_operands
        assert all(words(text, spans).strip() for spans in parsed.operands)
        assert not set("<>\t") & set(text)


def test_labels_become_spans():
    line = "a_and_b_not_c\ttaxa\t<01|moths> <0|of Borneo> and <1|that fly>, not <2|hawk moths>"
    [one] = parse_unseen(["# a remark", "", line])
    assert one.labelled.text == "moths of Borneo and that fly, not hawk moths"
    parsed = one.labelled.parsed
    operands = [words(one.labelled.text, spans) for spans in parsed.operands]
    assert operands == ["moths of Borneo", "moths that fly", "hawk moths"]
    assert form(parsed) == (2, 1, "and")
    # Operands are sorted by position, whatever their numbers.
    [turned] = parse_unseen(["a_or_b\tx\t<1|ants> or <0|bees>"])
    assert positive(turned.labelled.parsed) == (((0, 4),), ((8, 12),))
    assert form(turned.labelled.parsed) == (2, 0, "or")


@pytest.mark.parametrize(
    "line",
    [
        "a_or_b\ttaxa",
        "either\ttaxa\t<0|ants> or <1|bees>",
        "a_or_b\ttaxa\t<0|ants> or bees",
        "a_or_b\ttaxa\t<0|ants> or <2|bees>",
        "a_or_b\ttaxa\t<0|ants> or <1|bees",
        "plain\ttaxa\tants",
    ],
)
def test_a_wrong_line_is_named_by_its_number(line):
    with pytest.raises(DataError, match=r"^sample:2: "):
        parse_unseen(["# remark", line], "sample")


def test_only_evaluation_uses_them():
    root = Path(experiments.__file__).parents[1]
    users = {
        path.relative_to(root).as_posix()
        for part in ("src", "experiments")
        for path in (root / part).rglob("*.py")
        if re.search(r"test_sets|unseen_wordings\.txt", path.read_text("utf-8"))
    }
    # titles.py reads the names only to leave them out.
    own = {"parser_queries/titles.py", "parsing/accuracy.py", "parsing/test_sets.py"}
    assert users == {f"experiments/{name}" for name in own}
