"""The experiments over the domains benchmark: every way of ranking."""

from __future__ import annotations

import sys

import pytest

from boolattn.evaluation.results import Results
from experiments.domains import __main__ as domains
from tests.evaluation.test_domains import folder

__all__ = ["folder"]


@pytest.fixture
def run(monkeypatch, folder, tmp_path):
    def call(main, *arguments):
        data = ["--data", str(folder), "--vectors", str(tmp_path / "vectors")]
        monkeypatch.setattr(sys, "argv", ["program", *arguments, *data, "--split", "validation"])
        main()

    return call


def test_ways_are_ranked_and_laid_out(run, tmp_path):
    out = tmp_path / "out"
    ways = ["--way", "one vector", "--way", "hybrid, strict NOT"]
    models = ["--model", "bm25", "--model", "minilm"]
    run(domains.main, "rank", "--out", str(out), *models, *ways)
    names = {"bm25.lexical", "minilm.one-vector", "minilm.hybrid-strict-NOT"}
    assert {path.name for path in out.glob("*.json")} == {f"validation.{n}.json" for n in names}
    assert {path.name for path in (tmp_path / "vectors").iterdir()} == {
        "minilm-malware.npy",
        "minilm-cellbiology.npy",
    }
    leaks = {
        name: Results.load(out / f"validation.{name}.json").overall.means["leak"] for name in names
    }
    assert leaks["bm25.lexical"] == 1
    assert leaks["minilm.hybrid-strict-NOT"] == 0
    run(domains.main, "table", "--out", str(out))
    assert "| minilm, hybrid, strict NOT | " in (out / "table.md").read_text(encoding="utf-8")
