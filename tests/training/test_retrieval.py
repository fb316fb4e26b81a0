"""Retrieval training on a tiny encoder: learning, resuming, saving, errors."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from multiprocessing import get_context

import pytest
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer

from boolattn.attention.boolattn import BoolAttn
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.training import retrieval
from boolattn.training.launch import Launch, make_steps, make_towers, train
from boolattn.training.loop import Loop, RunFolder, parameter_groups
from boolattn.training.retrieval import RetrievalTraining
from boolattn.training.settings import LoopSettings
from boolattn.training.tower_pass import TowerPass
from tests.conftest import trained

#: Of a short loop.
RATES = LoopSettings(learning_rate=0.1, warmup_steps=4)


def _weights(folder):
    return SentenceTransformer(str(folder)).state_dict()


def _same(first, second):
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def _measured(run, name):
    """What was logged under a name, by step; each step once."""
    with (run / "metrics.csv").open() as handle:
        rows = [row for row in csv.DictReader(handle) if row["name"] == name]
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(set(steps))
    return {int(row["step"]): row["value"] for row in rows}


def test_training_learns_and_records_the_run(preset, corpus, tmp_path):
    chosen = preset(max_steps=20, evaluate_every=10, warmup_steps=2, keep="last")
    metrics = train(chosen, Launch(out=tmp_path / "run"), corpus)
    losses = [float(value) for value in _measured(tmp_path / "run", "loss").values()]
    assert losses[-1] < losses[0] - 0.3
    assert metrics["steps"] == 20
    assert set(_measured(tmp_path / "run", "eval_r_precision")) == {10, 20}
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["settings"]["train"]["max_steps"] == 20
    assert run["seed"] == 0
    assert run["versions"]["torch"] == torch.__version__
    assert len(run["data"]["hash"]) == 16
    assert run["revision"]
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["summary"]["eval_leak"] >= 0
    # What was saved is what was trained.
    towers = SentenceTransformer(str(tmp_path / "run" / "model"))
    assert corpus.validator(chosen)(towers) == pytest.approx(
        {
            name: float(_measured(tmp_path / "run", f"eval_{name}")[20])
            for name in ("recall@100", "r_precision", "leak")
        }
    )


@pytest.mark.parametrize("interrupted_at", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_an_interrupted_run_ends_with_the_same_weights(
    preset, corpus, tmp_path, monkeypatch, interrupted_at
):
    chosen = preset(keep="last")
    train(chosen, Launch(out=tmp_path / "whole"), corpus)
    losses, n_steps = RetrievalTraining.losses, []

    def stop(self, batch):
        if len(n_steps) == interrupted_at:
            raise KeyboardInterrupt
        n_steps.append(1)
        return losses(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(RetrievalTraining, "losses", stop)
        with pytest.raises(KeyboardInterrupt):
            train(chosen, Launch(out=tmp_path / "run"), corpus)
    # Random draws in between.
    torch.rand(17)
    with safe_open(tmp_path / "run" / "checkpoint.safetensors", "pt") as file:
        assert file.metadata()["step"] == "4"
    train(chosen, Launch(out=tmp_path / "run", resume=True), corpus)
    assert _same(_weights(tmp_path / "whole" / "model"), _weights(tmp_path / "run" / "model"))
    for name in ("loss", "eval_r_precision"):
        assert _measured(tmp_path / "whole", name) == _measured(tmp_path / "run", name)


def test_dropout_and_noise_are_on_in_these_runs(preset, corpus, tmp_path):
    """Without random draws the test above would not check random states."""
    chosen = preset(max_steps=1)
    steps = make_steps(chosen, corpus)
    towers = make_towers(chosen)
    training = RetrievalTraining(chosen, towers, steps, RunFolder(tmp_path / "run"))
    towers.train()
    losses = {training.losses(steps[0])["loss"].item() for _ in range(3)}
    assert len(losses) == 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_worker_does_not_wait_for_threads_of_the_tokenizer(
    preset, corpus, tmp_path, monkeypatch
):
    chosen = preset(max_steps=1)
    steps, run = make_steps(chosen, corpus), RunFolder(tmp_path / "run")
    loader = RetrievalTraining(chosen, make_towers(chosen), steps, run)._loader(0)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    corpus.tokenizer(["moths"] * 5000)

    def work():
        loader.worker_init_fn(0)
        corpus.tokenizer(["moths"] * 64)

    worker = get_context("fork").Process(target=work)
    worker.start()
    worker.join(60)
    worker.kill()
    assert worker.exitcode == 0


def test_the_best_is_kept(preset, corpus, tmp_path):
    chosen = preset(max_steps=4, evaluate_every=1)
    values = iter([0.1, 0.5, 0.4, 0.3])
    seen = []

    def validate(towers):
        seen.append({name: t.clone() for name, t in towers.state_dict().items()})
        return {"r_precision": next(values)}

    run = RunFolder(tmp_path / "run")
    run.open(chosen, {}, kind="train")
    towers, steps = make_towers(chosen), make_steps(chosen, corpus)
    metrics = RetrievalTraining(chosen, towers, steps, run, validate).train()
    assert metrics["best_step"] == 2
    assert _same(seen[1], _weights(run.model))
    assert not _same(seen[3], _weights(run.model))


def test_a_loss_that_is_not_finite_stops_the_run(preset, corpus, tmp_path, monkeypatch):
    own = retrieval.softmax_loss
    calls = []

    def spoiled(*args, **kwargs):
        calls.append(1)
        return own(*args, **kwargs) * (float("nan") if len(calls) == 4 else 1)

    monkeypatch.setattr(retrieval, "softmax_loss", spoiled)
    with pytest.raises(ConfigError, match=r"the retrieval loss is nan at step 4; lower its"):
        train(preset(), Launch(out=tmp_path / "run"), corpus)


def test_losses_are_also_checked_together():
    """As on a GPU, where single losses are not read."""
    loop = Loop([torch.nn.Parameter(torch.ones(1))], RATES, "x", 10)
    losses = [{"loss": torch.tensor(value)} for value in (1.0, float("inf"), 2.0)]
    with pytest.raises(ConfigError, match="the x loss is inf at step 9"):
        loop._check(losses, 9)


def test_learning_rates_of_plugin_and_encoder(preset):
    chosen = preset(plugin_learning_rate=7e-3)
    towers = make_towers(chosen)
    groups = parameter_groups(towers, chosen.train, chosen.train.plugin_learning_rate)
    name_of = {id(p): name for name, p in towers.named_parameters()}
    for group in groups:
        names = [name_of[id(p)] for p in group["params"]]
        assert {".boolattn." in name for name in names} == {group["lr"] == 7e-3}
        for parameter, name in zip(group["params"], names, strict=True):
            is_weight = name.endswith(("weight", "operators")) and "LayerNorm" not in name
            assert group["weight_decay"] == (0.01 if is_weight else 0.0), name
            assert is_weight or parameter.numel() <= 128
    assert sum(len(group["params"]) for group in groups) == len(name_of)
    assert len(groups) == 4


@pytest.mark.parametrize("start", [0, 3, 7])
def test_a_resumed_loop_has_the_learning_rates_of_a_whole_one(start):
    def rates(start):
        weight = torch.nn.Parameter(torch.ones(1))
        loop = Loop([{"params": [weight], "lr": 0.5}], RATES, "x", 10)
        loop.start = start
        found = []
        loop.run(
            lambda _: {"loss": weight.sum()},
            after_step=lambda _: found.append(loop.optimizer.param_groups[0]["lr"]),
        )
        return found

    assert rates(start) == rates(0)[start:]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_heads_are_frozen_by_the_setting(preset, corpus, tmp_path, is_frozen):
    gate = ("plugin.gate=learned", "plugin.gate_reads=context")
    chosen = preset(
        *gate, max_steps=4, freeze_heads=is_frozen, keep="last", plugin_learning_rate=0.1
    )
    torch.manual_seed(chosen.train.seed)
    before = make_towers(chosen).state_dict()
    train(chosen, Launch(out=tmp_path / "run"), corpus)
    after = _weights(tmp_path / "run" / "model")
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    heads = {name for name in moved if ".gate." in name or ".cue." in name}
    assert bool(heads) != is_frozen
    assert any(".layers." in name and "boolattn" in name for name in moved), "experts are trained"


@pytest.mark.parametrize("is_frozen", [False, True])
def test_only_the_plug_in_is_trained_over_a_frozen_encoder(preset, corpus, tmp_path, is_frozen):
    chosen = preset(max_steps=4, freeze_encoder=is_frozen, keep="last", plugin_learning_rate=0.1)
    torch.manual_seed(chosen.train.seed)
    towers = make_towers(chosen)
    before, texts = towers.state_dict(), ["moths of Borneo but not Sumatra", "moths"]
    documents, queries = towers.encode_document(texts), towers.encode_query(texts)
    trained = tmp_path / "run" / "model"
    train(chosen, Launch(out=trained.parent), corpus)
    after = _weights(trained)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.endswith(".factor") for name in moved)
    assert all("boolattn" in name for name in moved) == is_frozen
    model = SentenceTransformer(str(trained), device="cpu")
    assert (model.encode_document(texts) == documents).all() == is_frozen
    assert not (model.encode_query(texts)[0] == queries[0]).all()


def test_plain_towers_have_no_heads(preset, corpus, tmp_path):
    chosen = preset("model.use_plugin=false", freeze_heads=True)
    with pytest.raises(ConfigError, match="freeze_heads and freeze_encoder need the plug-in"):
        train(chosen, Launch(out=tmp_path / "run"), corpus)


def test_documents_are_encoded_without_the_plug_in(preset, corpus):
    """Documents have many an "and", which would open the gate."""
    chosen = preset()
    towers = trained(make_towers(chosen)).eval()
    step = make_steps(chosen, corpus)[0]
    before = TowerPass(towers)(step["queries"], step["documents"], step["places"])
    [plugin] = {part for part in towers.modules() if isinstance(part, BoolAttn)}
    with torch.no_grad():
        for layer in plugin.layers.values():
            layer.bias.outer_bias += 3
    after = TowerPass(towers)(step["queries"], step["documents"], step["places"])
    assert torch.equal(before[1], after[1])
    assert not torch.allclose(before[0], after[0], atol=1e-5)


def test_plain_towers_and_labels(preset, corpus, tmp_path):
    train(preset("model.use_plugin=false", max_steps=2), Launch(out=tmp_path / "plain"), corpus)
    assert not any("boolattn" in name for name in _weights(tmp_path / "plain" / "model"))
    labelled = preset("plugin.gate=label", max_steps=2)
    steps = make_steps(labelled, corpus)
    assert steps[0]["queries"]["operators"].tolist() == [[0, 0, 1]] * 4
    train(labelled, Launch(out=tmp_path / "label"), corpus)
    # Further training of trained towers.
    start, more = tmp_path / "label" / "model", tmp_path / "more"
    train(labelled, Launch(out=more, pretrained=start), corpus)
    assert not _same(_weights(more / "model"), _weights(start))
    with pytest.raises(ConfigError, match="is of another model"):
        make_towers(preset(), tmp_path / "label" / "model")


def test_a_gpu_preset_without_a_gpu(preset, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="needs a GPU and there is none"):
        train(preset(needs_gpu=True), Launch(out=tmp_path / "run"), corpus)


def test_a_folder_is_not_written_twice_nor_resumed_as_another_run(preset, corpus, tmp_path):
    train(preset(max_steps=1), Launch(out=tmp_path / "run"), corpus)
    with pytest.raises(ConfigError, match="holds a run already"):
        train(preset(max_steps=1), Launch(out=tmp_path / "run"), corpus)
    with pytest.raises(ConfigError, match=r"settings.train.seed = 0, not 5"):
        train(preset(max_steps=1, seed=5), Launch(out=tmp_path / "run", resume=True), corpus)


def test_a_data_set_without_usable_queries(preset, corpus, tmp_path):
    [query, *_] = corpus.split("train")
    lost = replace(query, gold=frozenset({"nowhere"}))
    for queries, message in (((), "'train' of .* has no queries"), ((lost,), "no usable query")):
        corpus.dataset = replace(corpus.dataset, splits={"train": queries, "validation": ()})
        with pytest.raises(DataError, match=message):
            train(preset(), Launch(out=tmp_path / message[:3]), corpus)


def test_a_missing_encoder_or_split_is_one_line(preset, corpus, tmp_path):
    with pytest.raises(MissingDataError, match=r"nowhere/nothing is no encoder.*name its folder"):
        make_towers(preset("model.encoder=nowhere/nothing"))
    with pytest.raises(ConfigError, match="no split 'dev'; it has train, validation"):
        make_steps(preset("data.train=train+dev"), corpus)
    with pytest.raises(ConfigError, match="name it: --rankings"):
        make_steps(preset(n_bm25=1), corpus)


def test_scopes_stay_supervised(preset, labelled_corpus, tmp_path):
    """Not in the documents' encoder, and not for towers without a plug-in."""
    losses = {}
    for weight in (0.0, 4.0):
        chosen = preset("pretrain.n_sentences=40", max_steps=3, scope_weight=weight)
        batch = make_steps(chosen, labelled_corpus)[0]
        assert ("scoped" in batch) == bool(weight)
        launch = Launch(out=tmp_path / f"run-{weight}")
        losses[weight] = train(chosen, launch, labelled_corpus)["loss"]
    assert losses[4.0] > losses[0.0] + 1
    plain = preset("model.use_plugin=false", scope_weight=4.0)
    batch = make_steps(plain, labelled_corpus)[0]
    assert "scoped" not in batch


def test_the_scope_loss_trains_the_plug_in(preset, corpus):
    chosen = preset("pretrain.n_sentences=40", scope_weight=1.0)
    towers, batch = make_towers(chosen).train(), make_steps(chosen, corpus)[0]
    inputs = {name: batch[name] for name in ("queries", "documents", "places", "scoped")}
    TowerPass(towers)(**inputs)[2].backward()
    trained = {n for n, p in towers.named_parameters() if p.grad is not None and p.grad.any()}
    assert any(name.endswith("scope.threshold") for name in trained)
    # The last layer's bias comes after the last scope.
    assert not any(".layers.1.bias." in name for name in trained)
