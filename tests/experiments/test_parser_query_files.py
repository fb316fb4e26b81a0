"""The command that writes a file of parser-training queries: sources, order, equal bytes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from boolattn.data.labelled_queries import read_labelled_queries
from experiments.parser_queries.__main__ import main
from experiments.parser_queries.generator import generate_queries
from experiments.parser_queries.natural import fill_natural, short_queries

SAMPLE = Path(__file__).parents[1] / "data" / "samples" / "quest-intro"
COUNTS = ["--generated", "200", "--sentences", "100", "--natural", "30", "--short", "20"]
#: The queries of published models must stay the same: a change of these bytes is a change of data.
FROZEN = "34fd7add76b761899402337f8c5fca124a820010f5fa0abfdd8e5dac34865143"


def test_sources_are_written_in_the_order_that_training_mixes_them(tmp_path, capsys):
    out = tmp_path / "queries.jsonl"
    chosen = ["--paraphrases", "quest-intro", "--data", str(SAMPLE), "--split", "train"]
    assert main(["--out", str(out), *COUNTS, *chosen]) == 0
    found = read_labelled_queries(out)
    assert list(found) == ["paraphrases", "generated", "sentences", "natural", "short"]
    assert found["generated"] == list(generate_queries(200, 0))
    assert found["natural"] == list(fill_natural(30, 0))
    assert found["short"] == list(short_queries(20, 0))
    assert len(found["sentences"]) == 100
    count = sum(map(len, found.values()))
    assert capsys.readouterr().out == f"{out}: {count} queries\n"


def test_the_bytes_of_a_seed_are_frozen(tmp_path):
    out = tmp_path / "queries.jsonl"
    assert main(["--out", str(out), *COUNTS, "--seed", "7"]) == 0
    assert sha256(out.read_bytes()).hexdigest() == FROZEN


def test_an_unknown_split_or_data_set_is_one_line(tmp_path, capsys):
    out = ["--out", str(tmp_path / "q.jsonl"), *COUNTS, "--paraphrases"]
    assert main([*out, "quest-intro", "--data", str(SAMPLE), "--split", "dev"]) == 2
    assert "quest-intro has no split 'dev'; it has train" in capsys.readouterr().err
    assert main([*out, "quset"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "q.jsonl").exists()
