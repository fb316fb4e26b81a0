"""The command line of the experiments: training of two steps, and files."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boolattn.evaluation.tables import short
from boolattn.reproduction.runs import Run, RunKey, registry
from experiments.__main__ import main

RUNS = Path(__file__).parents[2] / "docs/results/runs/quest-intro"


def arguments(files, systems, *more, verb="run"):
    return [
        verb,
        "--systems",
        systems,
        "--on",
        "beir",
        "--data",
        str(files / "data"),
        "--preset",
        str(files / "tiny.toml"),
        "--encoder",
        f"minilm={files / 'encoder'}",
        "--seeds",
        "0",
        "--out",
        str(files / "out"),
        "--threads",
        "1",
        *more,
    ]


def test_systems_are_trained_measured_and_reused(files, capsys):
    systems = "plain,corrected-lexicon,corrected-no-heads,as-is"
    assert main(arguments(files, systems)) == 0
    table = capsys.readouterr().out
    for words in (
        "| plain towers | none |",
        "| BoolAttn corrected | oracle, trained with lexicon |",
    ):
        assert words in table
    folder = files / "out" / "runs"
    plain = Run.load(folder / "beir/minilm/plain-0.jsonl.xz")
    [row] = plain.results
    assert len(row.values["r_precision"]) == len(row.queries)
    has_excluded = np.array(["not" in query.operators for query in row.queries])
    assert np.isnan(row.values["leak"][~has_excluded]).all()
    assert plain.details["settings"]["train"]["max_steps"] == 2
    assert str(files) not in plain.details["command"]
    assert not list((files / "out/work/models").glob("*"))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.xz")}
    assert main(arguments(files, systems)) == 0
    assert capsys.readouterr().out == table
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*.xz")}
    assert main(arguments(files, "plain", "--set", "train.max_steps=3")) == 2
    assert "train.max_steps = 2, not 3" in capsys.readouterr().err


def test_the_cause_of_a_failed_run_is_told(files, capsys):
    more = ("--set", "model.document_length=4000")
    assert main(arguments(files, "plain", *more)) == 0
    error = capsys.readouterr().err
    assert "FAILED beir minilm plain 0" in error
    assert "takes at most 600 tokens" in error
    assert main(arguments(files, "plain")) == 0
    assert "plain towers" in capsys.readouterr().out


def test_an_unknown_name_is_refused_with_the_known_ones(files, capsys):
    assert main(arguments(files, "plan")) == 2
    assert "no system 'plan'; there are plain, plain-fixed" in capsys.readouterr().err


def test_seeds_must_be_numbers(files, capsys):
    assert main([*arguments(files, "plain"), "--seeds", "one"]) == 2
    assert "seeds are whole numbers separated by commas, got 'one'" in capsys.readouterr().err


@pytest.fixture
def stored(tmp_path):
    """Runs of two systems with two seeds, as they are in the repository, on 143 queries."""
    folder = tmp_path / "results/runs"
    for name in ("plain-0", "plain-42", "corrected-frozen-0", "corrected-frozen-42"):
        run = Run.load(RUNS / f"minilm/{name}.jsonl.xz")
        results = [results for results in run.results if results.split == "val"]
        replace(run, results=results).save(folder)
    return folder


def results_of(stored, system):
    paths = (stored / f"quest-intro/minilm/{system}-{seed}.jsonl.xz" for seed in (0, 42))
    return [result for path in paths for result in Run.load(path).results]


def test_the_report_compares_with_plain_towers(stored, tmp_path, capsys):
    out, label = tmp_path / "page", registry().systems["corrected-frozen"].label
    report = ["report", str(stored.parent), "--out", str(out)]
    assert main(report) == 0
    page = (out / "tables.md").read_text()
    assert f"| {label} | learned | 2 | ." in page
    row = rf"{re.escape(label)} \| learned \| validation \| ([+-])(\S+) \[\S+, \S+\] p \S+"
    [shown] = re.findall(row, page)
    corrected, plain = (
        np.mean([result.means["r_precision"] for result in results_of(stored, name)])
        for name in ("corrected-frozen", "plain")
    )
    assert shown == ("+" if corrected >= plain else "-", short(abs(corrected - plain)))
    # Against another line the difference has the other sign.
    assert main([*report, "--against", "corrected-frozen,plain_text"]) == 0
    page = (out / "tables.md").read_text()
    [other] = re.findall(r"plain towers \| none \| validation \| ([+-])(\S+) \[", page)
    assert shown[1] == other[1]
    assert shown[0] != other[0] or shown[1] == ".000"
    assert "Compared with corrected-frozen, plain_text:" in page
    for wrong in ("plain", "plain,nothing", "plain,plain_text,more"):
        assert main([*report, "--against", wrong]) == 2
        assert f"no finished run of {wrong!r}" in capsys.readouterr().err
    assert main(["report", str(out), "--out", str(out)]) == 2
    assert "no finished run below" in capsys.readouterr().err


def test_a_run_of_a_system_that_left_the_code_is_refused(stored, tmp_path, capsys):
    plain = Run.load(stored / "quest-intro/minilm/plain-0.jsonl.xz")
    replace(plain, key=RunKey("quest-intro", "minilm", "composed", 0)).save(stored)
    assert main(["report", str(stored.parent), "--out", str(tmp_path)]) == 2
    assert "no system 'composed'; there are plain" in capsys.readouterr().err


def test_bm25_has_no_encoder_and_stands_in_the_table_of_each(files, capsys):
    assert main(arguments(files, "plain,bm25")) == 0
    table = capsys.readouterr().out
    assert (files / "out/runs/beir/none/bm25-0.jsonl.xz").is_file()
    assert table.index("| BM25 | none |") < table.index("| plain towers | none |")


@pytest.mark.slow
def test_two_commands_share_the_runs(files):
    command = [sys.executable, "-m", "experiments", *arguments(files, "plain,plain-fixed")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as other:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert other.returncode == 0
    assert "plain towers" in done.stdout
    assert "FAILED" not in done.stderr
    names = {path.name for path in (files / "out/runs/beir/minilm").glob("*.xz")}
    assert names == {"plain-0.jsonl.xz", "plain-fixed-0.jsonl.xz"}


@pytest.mark.slow
def test_no_optional_package_is_needed():
    code = (
        "import sys, importlib.machinery as machinery\n"
        "lacking = ('zstandard', 'typer', 'rich', 'datasets', 'matplotlib', 'marisa_trie',\n"
        "           'tantivy', 'faiss')\n"
        "own = machinery.PathFinder.find_spec\n"
        "def find(name, path=None, target=None):\n"
        "    return None if name.split('.')[0] in lacking else own(name, path, target)\n"
        "machinery.PathFinder.find_spec = find\n"
        "import experiments.report\n"
        "import boolattn.reproduction.execution, experiments.parsing.accuracy\n"
        "sys.exit(bool(set(lacking) & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
