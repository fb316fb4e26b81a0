"""Training with composed scores on a tiny encoder."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from boolattn.training.graphs.capture import capture
from boolattn.training.launch import Launch, make_steps, train
from boolattn.training.retrieval.composing import Objective, make_composing
from boolattn.training.retrieval.trainer import RetrievalTrainer
from boolattn.training.towers import make_towers
from tests.training.conftest import COMPOSE, parts


def _on(device, value):
    """Move a step's batch."""
    if isinstance(value, dict):
        return {name: _on(device, own) for name, own in value.items()}
    if isinstance(value, list):
        return [_on(device, own) for own in value]
    return value.to(device)


def _step(preset, composing, batch, encode_batch):
    """Return a step's loss and gradients."""
    composing.encode_batch = encode_batch
    composing.zero_grad()
    loss, _ = Objective(preset)(composing, dict(batch))
    loss.backward()
    learned = composing.named_parameters()
    return loss.detach(), {name: v.grad.clone() for name, v in learned if v.grad is not None}


@pytest.fixture
def quiet(preset):
    """A preset without noise, and its model that trains without dropout."""
    chosen = preset(*COMPOSE, "plugin.use_noise=false")
    composing = make_composing(make_towers(chosen).cpu(), chosen).train()
    for module in composing.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return chosen, composing


def test_documents_are_encoded_by_the_given_function(quiet, labelled_corpus, parser_queries):
    chosen, composing = quiet
    batch = make_steps(chosen, labelled_corpus, None, parser_queries)[0]
    captured, seen = capture(composing.towers, "all"), []

    def encode_batch(features, task, slot):
        seen.append((task, slot))
        return captured(features, task, slot)

    expected = _step(chosen, composing, batch, None)
    found = _step(chosen, composing, batch, encode_batch)
    assert seen == [("document", slot) for slot in range(len(batch["documents"]))]
    assert len(seen) > 1
    torch.testing.assert_close(found, expected, atol=0, rtol=0)


@pytest.mark.gpu
def test_recorded_documents_give_the_same_loss_and_gradients(
    quiet, labelled_corpus, parser_queries
):
    chosen, composing = quiet
    composing.cuda()
    steps = make_steps(chosen, labelled_corpus, None, parser_queries)
    captured = capture(composing.towers, "all")
    for number in (0, 1, 2, 0):
        batch = _on("cuda", steps[number])
        expected = _step(chosen, composing, batch, None)
        found = _step(chosen, composing, batch, captured)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    assert captured.failure is None
    assert captured._passes


@pytest.mark.parametrize("gate", ["lexicon", "label", ""])
def test_training_moves_every_part(preset, labelled_corpus, parser_queries, tmp_path, gate):
    plugin = [f"plugin.gate={gate}"] if gate else ["model.use_plugin=false"]
    chosen = preset(*COMPOSE, *plugin, max_steps=3, keep="last", plugin_learning_rate=1e-2)
    train(chosen, Launch(out=tmp_path / "a", parser_queries=parser_queries), labelled_corpus)
    after = parts(tmp_path / "a" / "model")
    train(
        replace(chosen, train=replace(chosen.train, max_steps=1, warmup_steps=1)),
        Launch(out=tmp_path / "b", parser_queries=parser_queries),
        labelled_corpus,
    )
    before = parts(tmp_path / "b" / "model")
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    for part in (
        "parser.tag.weight",
        "parser.role.weight",
        "calibration.log_alpha",
        "calibration.negation_offset",
        "calibration.breadth",
    ):
        assert part in moved
    assert any(name.startswith("towers.") for name in moved)


def test_an_interrupted_run_ends_with_the_same_weights(
    preset, labelled_corpus, parser_queries, tmp_path, monkeypatch
):
    chosen = preset(*COMPOSE, max_steps=4, keep="last")
    train(chosen, Launch(out=tmp_path / "whole", parser_queries=parser_queries), labelled_corpus)
    launch = Launch(out=tmp_path / "run", parser_queries=parser_queries)
    own = RetrievalTrainer.training_step

    def stop(self, *args, **kwargs):
        if self.state.global_step == 3:
            raise KeyboardInterrupt
        return own(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(RetrievalTrainer, "training_step", stop)
        with pytest.raises(KeyboardInterrupt):
            train(chosen, launch, labelled_corpus)
    train(chosen, replace(launch, resume=True), labelled_corpus)
    whole, resumed = parts(tmp_path / "whole" / "model"), parts(tmp_path / "run" / "model")
    # A GPU adds in no fixed order: even two uninterrupted runs differ in the last digits.
    limit = {"rtol": 1e-3, "atol": 1e-4} if torch.cuda.is_available() else {"rtol": 0, "atol": 0}
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], **limit)
