"""Post-training of the learned gate; document vectors do not change."""

from __future__ import annotations

from weakref import ref

import numpy as np
import pytest
import torch

from boolattn.attention.config import BoolAttnConfig
from boolattn.encoder import build_towers
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.errors import ConfigError
from boolattn.training import launch as launching
from boolattn.training.launch import Launch, post_train, train
from boolattn.training.post.gate import gate_of, operator_labels, train_gate
from boolattn.training.run_folder import save_model
from boolattn.training.towers import make_towers

LEARNED = ("plugin.gate=learned", "plugin.gate_reads=context", "post.gate_steps=30")


def test_the_trained_model_is_freed_before_post_training(
    preset, labelled_corpus, tmp_path, monkeypatch
):
    made, alive = [], []

    def make(*args):
        towers = make_towers(*args)
        made.append(ref(towers))
        return towers

    def do_nothing(*_):
        alive.extend(one() is not None for one in made)
        return {}

    monkeypatch.setattr(launching, "make_towers", make)
    monkeypatch.setattr(launching, "_post_train", do_nothing)
    train(preset(*LEARNED, max_steps=1, keep="last"), Launch(out=tmp_path / "r"), labelled_corpus)
    assert alive == [False], "two models would take twice the memory"


def test_post_training_needs_a_model(preset, labelled_corpus, tmp_path):
    with pytest.raises(ConfigError, match="--pretrained"):
        post_train(preset(*LEARNED), Launch(out=tmp_path / "y"), labelled_corpus)


def test_training_the_gate_changes_no_document(preset, labelled_corpus, parser_queries, tmp_path):
    chosen = preset(*LEARNED, "post.batch_size=8")
    torch.manual_seed(0)
    save_model(make_towers(chosen), tmp_path / "run", chosen)
    launch = Launch(
        out=tmp_path / "end", pretrained=tmp_path / "run", parser_queries=parser_queries
    )
    assert 0 <= post_train(chosen, launch, labelled_corpus)["gate_accuracy"] <= 1
    folders = (tmp_path / "run", tmp_path / "end" / "model")
    before, after = (TorchEncoder.load(folder) for folder in folders)
    texts = [document.text for document in labelled_corpus.dataset.documents[:8]]
    vectors = [one.towers.encode_document(texts) for one in (before, after)]
    np.testing.assert_array_equal(*vectors)
    old, new = before.towers.state_dict(), after.towers.state_dict()
    changed = [name for name in old if not torch.equal(old[name], new[name])]
    assert changed
    assert all(".gate." in name for name in changed)


@pytest.mark.parametrize("change", ["plugin.gate=lexicon", "model.use_plugin=false"])
def test_a_gate_that_cannot_be_trained_is_refused_before_the_training(
    preset, labelled_corpus, tmp_path, change
):
    chosen = preset(change, "post.gate_steps=1")
    with pytest.raises(ConfigError, match=r"plugin\.gate=learned"):
        train(chosen, Launch(out=tmp_path / "run"), labelled_corpus)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def make_model(tiny_encoder, tokenizer):
    def build(**settings):
        torch.manual_seed(0)
        config = BoolAttnConfig(rank=4, **settings)
        return TorchEncoder(build_towers(tiny_encoder(), config, tokenizer=tokenizer).eval())

    return build


def _gate_preset(preset, n_steps):
    return preset(f"post.gate_steps={n_steps}", "post.batch_size=64")


def test_the_gate_learns_and_nothing_else_changes(make_model, preset, generated):
    model = make_model(gate="learned", gate_reads="context")
    before = {name: value.clone() for name, value in model.towers.state_dict().items()}
    short = train_gate(model, generated, _gate_preset(preset, 1))
    longer = train_gate(model, generated, _gate_preset(preset, 200))
    assert longer > short + 0.15
    after = model.towers.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(".gate." in name for name in changed)
    assert not gate_of(model).training
    assert {operator_labels(one) for one in generated} == {(1, 0, 0), (0, 1, 0), (0, 0, 1)}


@pytest.mark.parametrize("gate", ["lexicon", "label"])
def test_another_gate_cannot_be_trained(make_model, preset, generated, gate):
    model = make_model(gate=gate)
    assert gate_of(model) is None
    with pytest.raises(ConfigError, match="gate_steps trains a learned gate"):
        train_gate(model, generated, _gate_preset(preset, 1))
    with pytest.raises(ConfigError, match="needs labelled queries"):
        train_gate(make_model(gate="learned"), [], _gate_preset(preset, 1))
