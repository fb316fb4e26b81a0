"""The command that writes a file of parser-training queries: sources, order, equal bytes."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from boolattn.data.sentences import read_labelled_queries
from experiments.parser_queries.__main__ import main
from experiments.parser_queries.generator import generate_queries
from experiments.parser_queries.natural import fill_natural, short_queries
from experiments.parser_queries.stories import letter_queries
from experiments.parser_queries.structures import everyday_queries
from experiments.parser_queries.wordings import BANNED

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
#: The sources that may hold the words of held-out wordings.
EXEMPT = {"everyday": 40, "letters": 60, "passages": 30, "listed": 40, "typed": 40, "spoken": 40}


def counts(sizes):
    return [w for name, n in sizes.items() for w in (f"--{name.replace('_', '-')}", str(n))]


COUNTS = counts(SIZES | EXEMPT | {"refilled": 60, "around": 50})
CORPUS = ["--texts", str(SAMPLE / "corpus.jsonl")]
#: The queries of published models must stay the same: a change of these bytes is a change of data.
FROZEN = {  # by what came later than the first parser
    (): "24d04fa07fe3bd28f5bb0e0a9d4ac4e5b83caa655e80b1f01caafc3afba343d7",
    ("everyday",): "7cfa04a81d9bb9a967dca3becbd76e952b28d5ad9233e39d12bda36f9c0dfcff",
    (
        "everyday",
        "letters",
        "passages",
        "listed",
    ): "5771874f690b121ca8bedd584f593cbdb2545f0b223ac175318fb819e9b755e6",
}


def test_every_source_has_what_its_name_says(tmp_path, capsys):
    out, more = tmp_path / "queries.jsonl", tmp_path / "more.jsonl"
    rows = [{"title": f"Town {n}", "text": f"The court of {n} never met."} for n in range(200)]
    more.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(["--out", str(out), *COUNTS, *CORPUS, "--texts", str(more)]) == 0
    found = read_labelled_queries(out)
    made = {*SIZES, *EXEMPT, "refilled", "around"}
    assert made == {n for n in found if "held_out" not in n}
    assert not [q for n, own in found.items() if n in SIZES for q in own if BANNED.search(q.text)]
    for name in ("questions", "titles", "documents", "plots", "passages"):
        assert all(query.parsed.is_plain for query in found[name])
    depths = {gap.level for query in found["nested"] for gap in query.parsed.gaps}
    assert depths == {1, 2, 3}
    assert all(any(query.parsed.is_negated) for query in found["negation"])
    assert len(found["refilled"]) == 60
    assert found["generated"] == list(generate_queries(200, 0))
    assert found["natural"] == list(fill_natural(30, 0))
    assert found["short"] == list(short_queries(20, 0))
    assert found["everyday"] == list(everyday_queries(40, 0))
    assert found["listed"] == list(everyday_queries(40, 0, "listed"))
    for name in EXEMPT:
        assert any(BANNED.search(query.text) for query in found[name])
    letters = found["letters"] + found["held_out:letters"]
    assert any(query.parsed.is_plain for query in letters)
    assert not all(query.parsed.is_plain for query in letters)
    assert 90 < len(found["sentences"]) <= 100
    count = sum(map(len, found.values()))
    assert capsys.readouterr().out == f"{out}: {count:,} queries\n"


@pytest.mark.parametrize("later", FROZEN)
def test_the_bytes_of_a_seed_are_frozen(tmp_path, later):
    out = tmp_path / "queries.jsonl"
    without = counts({name: 0 for name in EXEMPT if name not in later})
    assert main(["--out", str(out), *COUNTS, *without, "--seed", "7"]) == 0
    assert sha256(out.read_bytes()).hexdigest() == FROZEN[later]


def test_held_out_letters_have_other_sentences():
    """A sentence may come twice, but none is in both parts."""
    split = re.compile(r"(?<=[.?!]) ")
    own, other = (
        {one for q in letter_queries(400, 0, held_out=part) for one in split.split(q.text.lower())}
        for part in (False, True)
    )
    assert not {one for one in own & other if len(one) > 40}


def test_passages_stand_around_requests():
    passage = "The court never met again, and its rules were dropped."
    found = [q for q in letter_queries(60, 0, [passage]) if passage in q.text]
    assert found
    for query in found:
        named = {at for own in query.parsed.operands for span in own for at in range(*span)}
        start = query.text.index(passage)
        assert not named & set(range(start, start + len(passage)))


def test_a_missing_file_is_one_line(tmp_path, capsys):
    out = tmp_path / "q.jsonl"
    assert main(["--out", str(out), *COUNTS, "--queries", f"x={tmp_path / 'no.jsonl'}"]) == 2
    assert "no.jsonl" in capsys.readouterr().err
    assert not out.exists()
