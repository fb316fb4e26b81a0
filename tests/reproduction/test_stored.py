"""Tables of stored runs: spread over seeds, tests, and what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from boolattn.cli import app
from boolattn.errors import MissingDataError
from boolattn.evaluation.results import compare
from boolattn.evaluation.tables import short
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
    lines = (stored / "table4.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if "| ours |" in line]
    recall = {(row[0], row[-1].split(";")[0]): row[3] for row in rows}
    split, fixed = "all-MiniLM-L6-v2, QUEST-intro, generated validation", "fixed positives"
    means = [values(f"plain-{seed}", "generated_val").mean() for seed in (0, 42)]
    mean, deviation = (short(value) for value in (np.mean(means), np.std(means, ddof=1)))
    assert recall["plain towers", split] == f"{mean} ±{deviation}"
    # Seed 42 of plain towers has no partner.
    pair = [values(name, "generated_val") for name in ("plain-0", "plain-fixed-0")]
    assert compare(*pair).p_value < 0.001
    assert recall[f"plain towers, {fixed}", split] == f"{short(pair[1].mean())} ‡"
    pair = [values(name, "val") for name in ("plain-0", "plain-fixed-0")]
    assert compare(*pair).p_value > 0.05
    written = recall[f"plain towers, {fixed}", "all-MiniLM-L6-v2, QUEST-intro, validation"]
    assert written == short(pair[1].mean())
    assert f"plain towers, {fixed} (none) against plain towers (none)." in text
    assert "† p < .05, ‡ p < .001 (paired randomisation test over queries" in text
    assert "Not run: quest-intro minilm plain-bm25 0; quest-intro minilm plain-fixed 42" in text
    assert "quest-intro minilm plain 1234." in text


def test_what_is_not_stored_is_named(stored):
    with pytest.raises(MissingDataError, match="no run of table3 in quest-intro/minilm"):
        show(stored, "table3")
    assert not (stored / "table3.md").exists()
