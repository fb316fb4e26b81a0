"""Tables of stored runs: spread over seeds, tests, and what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from boolattn.cli import app
from boolattn.errors import MissingDataError
from boolattn.evaluation.results import compare
from boolattn.reproduction.runs import Run

RUNS = Path(__file__).parents[2] / "docs/results/runs/quest-intro"
STORED = ("plain-0", "plain-42", "plain-fixed-0")


@pytest.fixture
def stored(tmp_path):
    """Three runs of Table 4 with MiniLM, as they are in the repository."""
    home = tmp_path / "runs/quest-intro/minilm"
    home.mkdir(parents=True)
    for name in STORED:
        shutil.copy(RUNS / f"minilm/{name}.jsonl.xz", home)
    return tmp_path


def show(folder, table, *more):
    options = (
        "--preset",
        "minilm-quest-intro",
        "--stored",
        folder / "runs",
        "--out",
        folder,
        *more,
    )
    arguments = ["reproduce", table, *map(str, options)]
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def values(name, split, metric="recall@100"):
    [row] = [r for r in Run.load(RUNS / f"minilm/{name}.jsonl.xz").results if r.split == split]
    return row.values[metric]


def test_rows_have_spread_and_a_test_over_common_seeds(stored):
    text = show(stored, "table4")
    rows = json.loads((stored / "table4.json").read_text())["rows"]
    ours = {(row["label"], row["note"].split(";")[0]): row for row in rows if row["who"] == "ours"}
    split = "all-MiniLM-L6-v2, QUEST-intro, generated validation"
    plain, fixed = (ours[name, split] for name in ("plain towers", "plain towers, fixed positives"))
    means = [values(f"plain-{seed}", "generated_val").mean() for seed in (0, 42)]
    assert plain["values"]["recall@100"] == pytest.approx(np.mean(means), abs=1e-4)
    assert plain["spread"]["recall@100"] == pytest.approx(np.std(means, ddof=1), abs=1e-4)
    assert fixed["spread"] == plain["p_values"] == {}
    # Seed 42 of plain towers has no partner.
    pair = (values(name, "generated_val") for name in ("plain-0", "plain-fixed-0"))
    assert fixed["p_values"]["recall@100"] == compare(*pair).p_value < 0.001
    written = ours["plain towers, fixed positives", "all-MiniLM-L6-v2, QUEST-intro, validation"]
    pair = (values(name, "val") for name in ("plain-0", "plain-fixed-0"))
    assert written["p_values"]["recall@100"] == compare(*pair).p_value > 0.05
    assert fixed["tested"] == "plain towers, fixed positives (none) against plain towers (none)"
    shown = f".{round(1000 * fixed['values']['recall@100'])} ‡"
    assert f"| {shown} |" in text
    assert "† p < .05, ‡ p < .001 (paired randomisation test over queries" in text
    assert "Not run: plain-bm25 (seed 0, 42, 1234); plain-fixed (seed 42, 1234)" in text
    assert "plain (seed 1234)." in text


def test_what_is_not_stored_is_named(stored):
    with pytest.raises(MissingDataError, match="no run of table3 in quest-intro/minilm"):
        show(stored, "table3")
    assert not (stored / "table3.json").exists()
