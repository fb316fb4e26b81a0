"""The frozen test set of unseen wordings: its bytes, its forms, and that no training uses it."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import experiments
from boolattn.query.parsed_query import words
from experiments.parsing.queries import unseen_queries
from tests.parses import form, negated, positive

#: A test set that is changed after a look at results tests nothing: a new sum needs a new set.
FROZEN = "592bd1adbf358094b67cc4724fdbda54ac07facf354c14fe1d6b7ed10ca58a0c"


def test_file_is_frozen():
    source = files("experiments.parsing").joinpath("unseen_wordings.txt").read_bytes()
    assert sha256(source).hexdigest() == FROZEN


def test_all_forms_occur_in_taxa_and_in_other_domains():
    queries = unseen_queries()
    assert len(queries) == 484
    n_taxa = Counter(query.kind for query in queries if query.domain == "taxa")
    n_all = Counter(query.kind for query in queries)
    assert len(n_all) == 11
    assert all(2 * n_taxa[form] == n >= 22 for form, n in n_all.items())
    assert len({query.domain for query in queries}) > 10
    assert len({query.labelled.text.casefold() for query in queries}) == len(queries)


def test_every_operand_has_words_and_fits_its_form():
    for query in unseen_queries():
        text, parsed = query.labelled.text, query.labelled.parsed
        names = [name for name in query.kind.split("_") if len(name) == 1]
        n_operands = len(positive(parsed)) + len(negated(parsed))
        joiner = "or" if "_or" in query.kind else "and"
        assert n_operands == len(names) if names else n_operands in (1, 4, 5)
        assert (n_operands == 1) == (query.kind == "plain")
        assert len(negated(parsed)) == query.kind.count("not")
        assert len(positive(parsed)) == 1 or form(parsed)[2] == joiner
        assert all(words(text, spans).strip() for spans in parsed.operands)
        assert not set("<>\t") & set(text)


def test_only_evaluation_uses_them():
    root = Path(experiments.__file__).parents[1]
    users = {
        path.relative_to(root).as_posix()
        for part in ("src", "experiments")
        for path in (root / part).rglob("*.py")
        if re.search(r"unseen_queries|cue_word_names|unseen_wordings\.txt", path.read_text("utf-8"))
    }
    # titles.py reads the names only to leave them out.
    own = {"parser_queries/titles.py", "parsing/accuracy.py", "parsing/queries.py"}
    assert users == {f"experiments/{name}" for name in own}
