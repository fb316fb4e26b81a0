"""The paper's tables: its results, ours beside them, and result files."""

from __future__ import annotations

import shlex
import shutil
import sys

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoConfig, AutoModel

from boolattn import BoolAttnConfig, attach, build_towers, save_towers
from boolattn.cli import app
from boolattn.data.beir import read_beir
from boolattn.errors import BoolattnError, ConfigError, MissingDataError
from boolattn.reproduction import reproduce as reproduction
from boolattn.reproduction.reproduce import make_request, targets
from boolattn.reproduction.runs import Run

#: One step of pretraining instead of the paper's epoch.
SHORT = ("--set", "pretrain.max_steps=1", "--set", "pretrain.triplet_weight=0.0")


def call(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("sizes", "stated"), [((768, 12, 12, 3072), 121), ((1024, 24, 16, 4096), 378)]
)
def test_sizes_are_the_papers(sizes, stated):
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = AutoConfig.for_model("bert", **dict(zip(names, sizes, strict=True)))
    with torch.device("meta"):
        encoder, light = AutoModel.from_config(config), AutoModel.from_config(config)
        n_alone = encoder.num_parameters()
        attach(encoder, BoolAttnConfig(variant="paper", gate="learned"))
        attach(light, BoolAttnConfig(gate="learned", rank=16))
    assert encoder.num_parameters() / 1e6 == pytest.approx(stated, abs=1)
    assert light.num_parameters() < 1.01 * n_alone


def test_the_papers_columns():
    found = targets()
    assert found["table1"].metrics == ("recall@20", "recall@50", "recall@100", "recall@1000")
    for name in ("table3", "table4"):
        assert found[name].metrics == ("recall@50", "recall@100", "recall@1000")
    # The paper's own tables agree where they show the same model.
    both = [found[name].rows[place]["values"] for name, place in (("table1", 1), ("table3", 0))]
    assert both[0][2] == both[1][1] == 0.483
    assert found["table1"].rows[0]["values"][3] == found["table4"].rows[-1]["values"][2]
    assert found["figure3"].rows == ()


def test_figure_1_shows_the_attention_of_a_model(tiny_encoder, tokenizer, tmp_path):
    config = BoolAttnConfig(gate="lexicon", rank=4)
    towers = build_towers(tiny_encoder(), config, tokenizer=tokenizer, query_length=64)
    save_towers(towers, tmp_path / "model")
    shown = call("figure1", "--model", tmp_path / "model", "--out", tmp_path / "out").stdout
    assert "open gates: AND, NOT" in shown
    assert (tmp_path / "out/figure1.png").stat().st_size > 5000
    assert call("table1", "--model", tmp_path / "model").exit_code == 2


@pytest.mark.slow
def test_a_table_has_the_papers_rows_and_ours(files):
    options = ("--preset", files / "tiny.toml", "--data", files / "data", "--seeds", "0,1")
    more = ("--encoder", files / "encoder", "--out", files / "out")
    table = call("table4", *options, *more, *SHORT).stdout
    assert "| BERT-base, drawn positives | paper | .344 | .443 | .760 |" in table
    assert "| T5-large | quoted by the paper | .386 | .476 | .757 |" in table
    assert "| plain towers | ours |" in table
    assert "seeds 0, 1; operator labels: none" in table
    assert "must not be compared" in table
    rows = (files / "out/table4.md").read_text().splitlines()
    assert [row.split(" | ")[0][2:] for row in rows if "| ours |" in row] == [
        "plain towers, fixed positives",
        "plain towers, BM25 negatives",
        "plain towers",
    ]
    # Hard negatives come from a ranking of the training queries, made once.
    [ranked] = (files / "out/work/bm25").iterdir()
    train = read_beir(files / "data").splits["train"]
    assert {line.split()[0] for line in ranked.read_text().splitlines()} == {q.id for q in train}
    # Figure 3 reuses the finished run.
    before = (files / "out/runs/beir/minilm/plain-0.jsonl.xz").stat().st_mtime_ns
    figure = call("figure3", *options[:4], *more, *SHORT, "--seeds", "0").stdout
    assert "`_ that are not _`" in figure
    assert (files / "out/runs/beir/minilm/plain-0.jsonl.xz").stat().st_mtime_ns == before


@pytest.mark.slow
def test_boolquestions_by_operator(files):
    options = ("--preset", files / "tiny.toml", "--data", files / "data", "--seeds", "0")
    more = ("--encoder", files / "encoder", "--out", files / "out")
    table = call("table2", *options, *more, *SHORT).stdout
    assert "| distilbert-dot-v5 | quoted by the paper | .399 | .530 | .130 |" in table
    [plain] = [line for line in table.splitlines() if line.startswith("| plain towers")]
    # The tiny questions have no AND and no OR.
    assert plain.startswith("| plain towers | ours | – | – | .")


def test_missing_boolquestions_is_an_error():
    with pytest.raises(MissingDataError, match="BoolQuestions is missing"):
        make_request("table2")


def test_a_preset_names_data_set_and_encoder(tmp_path):
    request = make_request("table1", "bert-base-quest")
    assert (request.datasets, request.encoders) == (["quest"], ["bert-base"])
    for name, encoder in (("boolquestions", "bert-base"), ("boolquestions-large", "bert-large")):
        asked = make_request("table2", name, str(tmp_path))
        assert (asked.datasets, asked.encoders) == (["boolquestions"], [encoder])
        assert next(asked.runs()).preset.model.encoder == f"{encoder}-uncased"
    request = make_request("table1", "demo")
    assert (request.datasets, request.encoders) == (["taxa"], ["minilm"])


def run_options(files, *more):
    options = ("--preset", files / "tiny.toml", "--data", files / "data", "--seeds", "0")
    return (*options, "--encoder", files / "encoder", "--out", files / "out", *SHORT, *more)


@pytest.mark.slow
def test_a_failed_run_does_not_end_the_others(files, monkeypatch):
    def fail(*_arguments):
        raise ConfigError("no ranking today")

    monkeypatch.setattr(reproduction, "_bm25", fail)
    found = call("table4", *run_options(files))
    assert "| plain towers | ours |" in found.stdout
    assert "| plain towers, BM25 negatives | ours |" not in found.stdout
    assert "FAILED beir minilm plain-bm25 0: no ranking today" in found.stderr
    monkeypatch.undo()
    assert "FAILED" not in call("table4", *run_options(files)).stderr


def refused(files, *arguments):
    """Return the error of a command, which must have run nothing."""
    with pytest.raises(BoolattnError) as caught:
        call(*arguments)
    assert not list((files / "out").rglob("*.xz"))
    return str(caught.value)


def test_what_is_missing_is_found_before_the_first_run(files):
    def error(*more, table="table4"):
        return refused(files, table, *run_options(files, *more))

    assert "no folder" in error("--start", f"plain={files / 'nothing'}")
    assert error("--start", "plane=x") == (
        "--start plane=…: the runs have plain-fixed, plain-bm25, plain"
    )
    assert "has no split 'dev'; it has test, train" in error("--set", "data.validation=dev")
    assert "has no split 'trains'" in error("--set", "data.train=trains")
    assert "no encoder" in error("--encoder", "nobody/nothing")
    assert "nowhere" in error("--data", files / "nowhere")
    assert "needs a GPU" in error("--set", "train.needs_gpu=true")
    (files / "empty").mkdir()
    (files / "encoder/config.json").rename(files / "empty/config.json")
    assert "no file named model.safetensors" in error("--encoder", files / "empty")
    (files / "empty/config.json").rename(files / "encoder/config.json")


@pytest.mark.slow
def test_a_run_of_other_weights_or_data_is_not_reused(files, tiny_encoder, tokenizer, monkeypatch):
    call("table4", *run_options(files))
    done = {path: path.stat().st_mtime_ns for path in (files / "out/runs").rglob("*.xz")}
    assert len(done) == 3

    def error(*more):
        with pytest.raises(BoolattnError) as caught:
            call("table4", *run_options(files, *more))
        return str(caught.value)

    assert "0 runs to do, 3 finished" in call("table4", *run_options(files)).stderr
    # The same files elsewhere are the same run.
    for name in ("encoder", "data"):
        shutil.copytree(files / name, files / f"same-{name}")
    same = ("--encoder", files / "same-encoder", "--data", files / "same-data")
    assert "0 runs to do, 3 finished" in call("table4", *run_options(files, *same)).stderr
    other = tiny_encoder("bert")
    other.embeddings.word_embeddings.weight.data[7] += 1
    other.save_pretrained(files / "other")
    tokenizer.save_pretrained(files / "other")
    assert "was run with other encoder weights; name another --out" in error(
        "--encoder", files / "other"
    )
    corpus = files / "same-data/corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("birds of", "birds in", 1))
    assert "was run with other data" in error("--data", files / "same-data")
    assert "nowhere" in error("--data", files / "nowhere")
    assert "train.batch_size = 4, not 3" in error("--set", "train.batch_size=3")
    assert done == {path: path.stat().st_mtime_ns for path in (files / "out/runs").rglob("*.xz")}
    # Table 2 starts from what table 4 left, one model for each seed.
    models = files / "out/work/models"
    assert {path.name for path in (models / "beir-minilm-plain-0").iterdir()} >= {"model"}
    assert not (models / "beir-minilm-plain-0/checkpoint.safetensors").exists()
    start = ("--start", f"plain={models}/beir-minilm-plain-{{seed}}/model")
    words = ["reproduce", "table2", *run_options(files, *start, "--out", files / "second")]
    monkeypatch.setattr(sys, "argv", ["boolattn", *map(str, words)])
    table = call(*words[1:])
    assert "| plain towers | ours |" in table.stdout
    run = Run.load(files / "second/runs/boolquestions/minilm/plain-0.jsonl.xz")
    assert run.details["inputs"].keys() == {"data", "encoder", "start"}
    assert shlex.split(run.details["command"]) == sys.argv
