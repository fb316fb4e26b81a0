"""The command that writes a file of parser-training queries: sources, order, equal bytes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from boolattn.data.labelled_queries import read_labelled_queries
from experiments.parser_queries.__main__ import main
from experiments.parser_queries.generator import generate_queries
from experiments.parser_queries.held_out import BANNED
from experiments.parser_queries.natural import fill_natural, short_queries
from experiments.parser_queries.structures import everyday_queries

SAMPLE = Path(__file__).parents[1] / "data" / "samples" / "quest-intro"
SIZES = {"generated": 200, "sentences": 100, "natural": 30, "short": 20, "nested": 120}
SIZES |= {
    "joining": 80,
    "long": 80,
    "stories": 80,
    "plots": 80,
    "negation": 80,
    "questions": 80,
    "titles": 80,
    "about_titles": 80,
    "documents": 80,
}
COUNTS = [
    word
    for name, size in (SIZES | {"everyday": 40, "refilled": 60, "around": 50}).items()
    for word in (f"--{name.replace('_', '-')}", str(size))
]
CORPUS = ["--texts", str(SAMPLE / "corpus.jsonl")]
#: The queries of published models must stay the same: a change of these bytes is a change of data.
FROZEN = {  # by number of queries in everyday words, which came later
    0: "24d04fa07fe3bd28f5bb0e0a9d4ac4e5b83caa655e80b1f01caafc3afba343d7",
    40: "7cfa04a81d9bb9a967dca3becbd76e952b28d5ad9233e39d12bda36f9c0dfcff",
}


def test_every_source_has_what_its_name_says(tmp_path, capsys):
    out = tmp_path / "queries.jsonl"
    assert main(["--out", str(out), *COUNTS, *CORPUS]) == 0
    found = read_labelled_queries(out)
    made = {*SIZES, "everyday", "refilled", "around"}
    assert made == {n for n in found if "held_out" not in n}
    assert not [q for n, own in found.items() if n in SIZES for q in own if BANNED.search(q.text)]
    for name in ("questions", "titles", "documents", "plots"):
        assert all(query.parsed.is_plain for query in found[name])
    depths = {gap.level for query in found["nested"] for gap in query.parsed.gaps}
    assert depths == {1, 2, 3}
    assert all(any(query.parsed.is_negated) for query in found["negation"])
    assert len(found["refilled"]) == 60
    assert found["generated"] == list(generate_queries(200, 0))
    assert found["natural"] == list(fill_natural(30, 0))
    assert found["short"] == list(short_queries(20, 0))
    assert found["everyday"] == list(everyday_queries(40, 0))
    assert 90 < len(found["sentences"]) <= 100
    count = sum(map(len, found.values()))
    assert capsys.readouterr().out == f"{out}: {count:,} queries\n"


@pytest.mark.parametrize("n", FROZEN)
def test_the_bytes_of_a_seed_are_frozen(tmp_path, n):
    out = tmp_path / "queries.jsonl"
    assert main(["--out", str(out), *COUNTS, "--everyday", str(n), "--seed", "7"]) == 0
    assert sha256(out.read_bytes()).hexdigest() == FROZEN[n]


def test_a_missing_file_is_one_line(tmp_path, capsys):
    out = tmp_path / "q.jsonl"
    assert main(["--out", str(out), *COUNTS, "--queries", f"x={tmp_path / 'no.jsonl'}"]) == 2
    assert "no.jsonl" in capsys.readouterr().err
    assert not out.exists()
