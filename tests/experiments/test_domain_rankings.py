"""The table of all systems on the domains benchmark."""

from __future__ import annotations

import shutil

from boolattn.evaluation.results import Results
from experiments import domains
from experiments.shipped_plugin import measure_model
from tests.evaluation.test_domains import folder, run

__all__ = ["folder"]


def test_systems_are_laid_out_and_compared(folder, tmp_path):
    out = tmp_path / "out"
    arguments = ("--on", "domains", "--data", folder, "--split", "validation", "--out", out)
    run("evaluate", "bm25", *arguments)
    run("evaluate", "minilm", *arguments, "--hybrid", "--strict-not")
    leaks = {}
    for path in out.glob("*.json"):
        results = Results.load(path)
        leaks[results.system, results.details["way"]] = results.means["leak"]
    assert leaks["BM25", ""] == 1
    assert leaks["minilm", "hybrid, strict NOT"] == 0
    domains.main(["--out", str(out), "--against", "BM25"])
    page = (out / "table.md").read_text(encoding="utf-8")
    assert "| minilm, hybrid, strict NOT | " in page
    assert "differences to BM25, over all queries" in page
    assert "| minilm, hybrid, strict NOT | NOT | leak | -1.000 | " in page
    assert (out / "validation.png").is_file()


def test_the_shipped_plug_in_is_measured_beside_the_bare_encoder(folder):
    for queries in folder.glob("*/validation.jsonl"):
        shutil.copy(queries, queries.with_name("validation_unseen.jsonl"))
    rows = list(measure_model("minilm", "validation", folder))
    assert [row[:3] for row in rows[:3]] == [
        ["minilm", "validation", "bare encoder"],
        ["minilm", "validation", "BoolAttn"],
        ["minilm", "validation", "BoolAttn, cues shuffled"],
    ]
    assert "(p " in rows[1][3]
    assert "(p " not in rows[0][3]
