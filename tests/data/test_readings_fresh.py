"""The queries nobody here wrote: frozen, read as they are marked, and far from all training."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

import boolattn
from boolattn.data.readings_fresh import FORMS, fresh_queries, read_fresh
from boolattn.errors import DataError
from boolattn.logic.parsed_query import words

#: A test set that is mended after a look at results tests nothing: only a new set may have a new
#: sum, and with it a new name.
FROZEN = "592bd1adbf358094b67cc4724fdbda54ac07facf354c14fe1d6b7ed10ca58a0c"


def test_the_file_is_the_one_that_was_written():
    source = files("boolattn.data").joinpath("fresh.txt").read_bytes()
    assert sha256(source).hexdigest() == FROZEN


def test_all_forms_are_there_in_taxa_and_elsewhere():
    queries = fresh_queries()
    assert len(queries) == 484
    assert {query.form for query in queries} == set(FORMS)
    n_taxa = Counter(query.form for query in queries if query.domain == "taxa")
    n_all = Counter(query.form for query in queries)
    assert all(2 * n_taxa[form] == n_all[form] >= 22 for form in FORMS)
    assert len({query.domain for query in queries}) > 10
    assert len({query.marked.text.casefold() for query in queries}) == len(queries)


def test_every_operand_has_words_and_they_are_of_the_form():
    for query in fresh_queries():
        text, reading = query.marked.text, query.marked.parsed
        form = FORMS[query.form]
        assert len(reading.negated) == form.n_excluded
        assert len(reading.positive) + form.n_excluded in form.n_operands
        assert all(words(text, spans).strip() for spans in (*reading.positive, *reading.negated))
        assert not set("<>\t") & set(text)


def test_marks_become_spans():
    line = "a_and_b_not_c\ttaxa\t<01|moths> <0|of Borneo> and <1|that fly>, not <2|hawk moths>"
    [one] = read_fresh(["# a remark", "", line])
    assert one.marked.text == "moths of Borneo and that fly, not hawk moths"
    reading = one.marked.parsed
    told = [words(one.marked.text, spans) for spans in (*reading.positive, *reading.negated)]
    assert told == ["moths of Borneo", "moths that fly", "hawk moths"]
    assert reading.form == (2, 1, "and")
    # Operands are numbered as their writer thought of them, and read as they stand.
    [turned] = read_fresh(["a_or_b\tx\t<1|ants> or <0|bees>"])
    assert turned.marked.parsed.positive == (((0, 4),), ((8, 12),))
    assert turned.marked.parsed.form == (2, 0, "or")


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
def test_a_line_that_does_not_fit_is_refused_with_its_number(line):
    with pytest.raises(DataError, match=r"^sample:2: "):
        read_fresh(["# remark", line], "sample")


def test_nothing_that_trains_knows_of_them():
    root = Path(boolattn.__file__).parent
    users = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "readings_fresh" in path.read_text("utf-8") or "fresh.txt" in path.read_text("utf-8")
    }
    assert users == {"data/readings_fresh.py", "evaluation/parse_accuracy.py"}
