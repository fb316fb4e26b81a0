"""``boolattn evaluate`` and ``compare``: tables on stdout, files, one line for an error."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from boolattn import BoolAttnConfig
from boolattn.cli import app
from boolattn.data.beir import write_beir
from boolattn.data.records import Document, Query
from boolattn.encoder.towers import build_towers, save_towers
from boolattn.errors import BoolattnError, ConfigError, DataError, MissingDataError
from boolattn.evaluation import tables
from boolattn.evaluation.results import Results
from boolattn.query.tree import Operator

PLACES = ("Borneo", "Sumatra", "Peru", "Iceland")
KINDS = ("moth", "orchid", "beetle")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve documents, each a kind in a place, and two kinds of queries."""
    documents = [
        Document(id=f"{kind} {place}", text=f"The {kind} is found in {place}.", title=kind)
        for kind in KINDS
        for place in PLACES
    ]
    plain = [
        Query(
            id=f"p-{kind}",
            text=f"{kind}s",
            template="_",
            gold=frozenset(f"{kind} {place}" for place in PLACES),
            domain="plants" if kind == "orchid" else "animals",
        )
        for kind in KINDS
    ]
    excluding = [
        Query(
            id=f"n-{kind}",
            text=f"{kind}s but not of Peru",
            template="_ that are not _",
            operators=(Operator.NOT,),
            gold=frozenset(f"{kind} {place}" for place in PLACES if place != "Peru"),
            excluded=frozenset({f"{kind} Peru"}),
            domain="plants" if kind == "orchid" else "animals",
        )
        for kind in KINDS
    ]
    path = tmp_path_factory.mktemp("data") / "tiny"
    write_beir(path, documents, {"test": [*plain, *excluding]})
    return path


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def evaluate(model, folder, out, *more):
    return run("evaluate", model, "--on", "beir", "--data", folder, "--out", out, *more)


def test_bm25_and_its_run_are_compared(folder, tmp_path):
    result = evaluate("bm25", folder, tmp_path)
    assert "BM25 on tiny, test: 6 queries, 12 documents" in result.stdout
    for row in ("all", "_ that are not _", "operator: not", "domain: plants"):
        assert f"\n{row} " in result.stdout
    assert "results:" not in result.stdout
    results = Results.load(tmp_path / "BM25-tiny-test.json")
    # The four documents with the word come first, and the excluded one with them.
    assert results.means["recall@20"] == 1
    assert results.by("template")["_"].means["r_precision"] == 1
    assert results.means["leak"] == 1

    shutil.copy(tmp_path / "BM25-tiny-test.run.gz", tmp_path / "again.run.gz")
    evaluate(tmp_path / "again.run.gz", folder, tmp_path)
    again = Results.load(tmp_path / "again-tiny-test.json")
    for name, values in results.values.items():
        assert again.values[name].tolist() == pytest.approx(values.tolist(), nan_ok=True)

    paths = [tmp_path / f"{name}-tiny-test.json" for name in ("BM25", "again")]
    compared = json.loads(run("compare", *paths, "--json").stdout)
    assert (compared["first"], compared["second"]) == ("BM25", "again")
    assert compared["metrics"]["leak"]["p_value"] == 1
    table = run("compare", *paths, "--by", "domain", "--metric", "leak").stdout
    assert [line.split()[:2] for line in table.splitlines() if " leak " in line] == [
        ["animals", "leak"],
        ["plants", "leak"],
    ]
    seeds = run("compare", f"{paths[0]},{paths[1]}", paths[0], "--figure", tmp_path / "both.png")
    assert "+0.0000" in seeds.stdout
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_minilm_composed_and_as_one_vector(folder, tmp_path):
    more = ("--metric", "recall@4", "--metric", "leak")
    # The shipped parser serves any encoder.
    evaluate("minilm", folder, tmp_path, *more)
    composed = Results.load(tmp_path / "minilm-composed-tiny-test.json")
    assert composed.means["leak"] == 0
    evaluate("minilm", folder, tmp_path, *more, "--no-compose")
    results = Results.load(tmp_path / "minilm-one-vector-tiny-test.json")
    assert (results.system, results.gate) == ("minilm", "")
    assert results.means["recall@4"] > 0.8
    # One vector cannot exclude.
    assert results.means["leak"] > 0.5


def test_a_model_with_its_own_gate_and_with_oracle_labels(
    folder, tmp_path, tiny_encoder, tokenizer
):
    for gate in ("lexicon", "label"):
        towers = build_towers(
            tiny_encoder(), BoolAttnConfig(gate=gate, rank=4), tokenizer=tokenizer
        )
        save_towers(towers, tmp_path / gate)
    output = evaluate(tmp_path / "lexicon", folder, tmp_path, "--no-compose").stdout
    assert "lexicon, one vector, gate: lexicon on tiny" in output
    # A training ends in RUN/model; results have the run's name.
    shutil.copytree(tmp_path / "lexicon", tmp_path / "run-7/model")
    (tmp_path / "run-7/run.json").write_text("{}")
    evaluate(tmp_path / "run-7/model", folder, tmp_path, "--no-compose")
    assert Results.load(tmp_path / "run-7-one-vector-lexicon-tiny-test.json").system == "run-7"
    output = evaluate(tmp_path / "label", folder, tmp_path, "--no-compose")
    assert "gate stays closed" in output.stderr
    evaluate(tmp_path / "label", folder, tmp_path, "--gate", "label", "--no-compose")
    closed, open_ = (
        Results.load(tmp_path / f"label-one-vector-{gate}-tiny-test.json")
        for gate in ("closed", "label")
    )
    assert (closed.gate, open_.gate) == ("closed", "label")


def test_a_model_with_composed_scores(folder, tmp_path, tiny_encoder, tokenizer):
    towers = build_towers(
        tiny_encoder(), BoolAttnConfig(gate="lexicon", rank=4), tokenizer=tokenizer
    )
    save_towers(towers, tmp_path / "some")
    assert "some, composed, gate: lexicon" in evaluate(tmp_path / "some", folder, tmp_path).stdout
    output = evaluate(tmp_path / "some", folder, tmp_path, "--no-compose").stdout
    assert "some, one vector, gate: lexicon" in output
    with pytest.raises(ConfigError, match="--no-compose"):
        evaluate(tmp_path / "some", folder, tmp_path, "--gate", "label")


def test_hybrid_search_and_strict_not(folder, tmp_path):
    kinds = {
        "composed": [],
        "hybrid": ["--hybrid"],
        "strict-NOT": ["--strict-not"],
        "hybrid-strict-NOT": ["--hybrid", "--strict-not"],
    }
    ranked, missing = [], []
    for kind, options in kinds.items():
        result = evaluate("minilm", folder, tmp_path, *options)
        with gzip.open(tmp_path / f"minilm-{kind}-tiny-test.run.gz", "rt") as lines:
            ranked.append([line.split()[:3] for line in lines])
        missing.append(6 * 12 - len(ranked[-1]))
        assert ("strict NOT" in result.stdout) == ("--strict-not" in options)
    # Three queries exclude a place, which three documents name.
    assert missing == [0, 0, 9, 9]
    assert ranked[0] != ranked[1]


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (["bm25", "--strict-not"], ConfigError, "strict NOT needs a model that parses"),
        (["bm25", "--hybrid"], ConfigError, "hybrid search needs a model that parses"),
        (
            ["minilm", "--strict-not", "--no-compose"],
            ConfigError,
            "strict NOT needs a model that parses",
        ),
        (["bm25", "--on", "nowhere"], ConfigError, "no data set 'nowhere'; there are taxa"),
        (["bm25", "--on", "sentences"], ConfigError, "sentences has no queries"),
        (["bm25", "--split", "dev"], ConfigError, "no split 'dev'; it has test"),
        (["bm25", "--metric", "map"], ConfigError, "unknown metric 'map'"),
        (["bm25", "--gate", "label"], ConfigError, "bm25 has no gate"),
        (["minilm", "--gate", "label", "--no-compose"], ConfigError, "has no BoolAttn"),
        (["no/such/model"], MissingDataError, "there is no model at"),
        (["no/such.run"], MissingDataError, "no file no/such.run"),
    ],
)
def test_an_error_is_one_line(folder, tmp_path, arguments, error, complaint):
    more = ["--out", tmp_path] + ([] if "--on" in arguments else ["--on", "beir", "--data", folder])
    with pytest.raises(error, match=complaint) as caught:
        run("evaluate", *arguments, *more)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, BoolattnError)


def test_missing_results_of_a_run_are_reported(folder, tmp_path):
    path = tmp_path / "short.run"
    path.write_text("p-moth Q0 moth%20Peru 1 1.0 x\n")
    output = evaluate(path, folder, tmp_path).stderr
    assert "5 of 6 queries of test have no results" in output
    assert "no query of test has more than 1 results, and metrics use up to 12" in output
    path.write_text("p-moth Q0 whale 1 1.0 x\n")
    with pytest.raises(DataError, match="no document 'whale' among 12"):
        evaluate(path, folder, tmp_path)


def test_a_figure_of_a_metric_that_was_not_measured_is_refused(folder, tmp_path):
    evaluate("bm25", folder, tmp_path, "--metric", "leak")
    results = Results.load(tmp_path / "BM25-tiny-test.json")
    with pytest.raises(ConfigError, match="the results of BM25 have no recall@100"):
        tables.template_figure([results])
    axes = tables.template_figure([results, results], "leak").axes[0]
    # Two systems, two templates; nothing is excluded by the first.
    assert len(axes.patches) == 4
    assert [label.get_text() for label in axes.get_xticklabels()] == ["_", "_ that are\nnot\xa0_"]


def test_metrics_need_no_torch():
    code = (
        "import sys, boolattn.evaluation.metrics, boolattn.evaluation.results, "
        "boolattn.evaluation.ranking, boolattn.evaluation.benchmark, "
        "boolattn.evaluation.results, experiments.parsing.accuracy, "
        "boolattn.search.systems, boolattn.cli.evaluate; "
        "heavy = {'torch', 'matplotlib', 'tantivy', 'transformers', 'pandas', 'scipy'}; "
        "print(heavy & set(sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "set()"
