"""Auxiliary pretraining: labels fall on the right tokens, heads learn, the rest stays."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from boolattn.attention.config import BoolAttnConfig
from boolattn.data.sentences import Mixture, generate
from boolattn.errors import ConfigError
from boolattn.plugin.storage import attach, load
from boolattn.training.batches.tokens import LabelledSentences, PretrainingSet
from boolattn.training.launch import Launch, make_towers, pretrain
from boolattn.training.loop import fast_products
from boolattn.training.pretrain import Pretrainer
from boolattn.training.settings import PretrainSettings

OPERATORS = ("and", "or", "not")


def _pretrainer(tiny_encoder, tokenizer, *, gate="learned", **values):
    encoder = tiny_encoder("bert")
    torch.manual_seed(0)
    attach(encoder, BoolAttnConfig(gate=gate), tokenizer=tokenizer)
    settings = PretrainSettings(n_sentences=64, batch_size=8, n_held_out=0, **values)
    return Pretrainer(encoder, tokenizer, settings)


def test_labels_fall_on_the_tokens_of_cues_and_scopes(tokenizer):
    sentences = [s for s in generate(60, seed=0) if "not" in s.operators and s.cues][:8]
    part = LabelledSentences(sentences, tokenizer).batch(range(len(sentences)))
    for row, sentence in enumerate(sentences):
        ids = part.features["input_ids"][row]
        for spans, labels in (
            ([(c.start, c.end) for c in sentence.cues if c.operator == "not"], part.cues),
            ([x for s in sentence.scopes if s.operator == "not" for x in s.spans], part.scopes),
        ):
            words = "".join(sentence.text[start:end] for start, end in spans)
            marked = tokenizer.convert_ids_to_tokens(ids[labels[row, 2] == 1].tolist())
            found = "".join(token.removeprefix("##") for token in marked)
            if "[UNK]" not in found and words.isascii():
                assert found == words.lower().replace(" ", "")
    assert part.operators[:, 2].all()
    assert not (part.cues * (1 - part.mask[:, None])).any()


def test_heads_learn_and_the_encoder_stays(tiny_encoder, tokenizer):
    trainer = _pretrainer(
        tiny_encoder,
        tokenizer,
        max_steps=30,
        learning_rate=3e-2,
        cue_positive_weight=5,
        scope_weight=1,
        train_embeddings=False,
    )
    sentences = list(generate(40, seed=9))
    before = trainer.measure(sentences)
    weights = {n: p.clone() for n, p in trainer.encoder.named_parameters()}
    losses = []
    trainer.run(lambda step, values: losses.append(values))
    after = trainer.measure(sentences)
    assert after["cue_f1"] > before["cue_f1"] + 0.15
    assert after["scope_f1"] > before["scope_f1"]
    assert set(losses[0]) == {"cue", "gate", "scope", "triplet"}
    # One batch's loss of a gate that drops tokens while it learns says little; what it gets right
    # is measured without.
    assert all(losses[-1][name] < losses[0][name] for name in ("cue", "scope"))
    assert after["gate_accuracy"] > before["gate_accuracy"]
    changed = {n for n, p in trainer.encoder.named_parameters() if not torch.equal(p, weights[n])}
    assert changed
    assert all("boolattn" in name for name in changed)
    assert all(p.requires_grad for p in trainer.encoder.parameters())


@pytest.mark.parametrize("triplet_weight", [0.0, 0.2])
def test_only_a_loss_of_vectors_moves_the_factors(tiny_encoder, tokenizer, batch, triplet_weight):
    trainer = _pretrainer(
        *(tiny_encoder, tokenizer),
        **{"max_steps": 3, "learning_rate": 1e-2, "scope_weight": 1},
        **{"train_embeddings": False, "triplet_weight": triplet_weight},
    )
    encoder, labels = trainer.encoder.eval(), {"operators": torch.ones(3, 3)}
    with torch.no_grad():
        before = encoder(**batch).last_hidden_state
    trainer.run()
    with torch.no_grad():
        after = encoder.eval()(**batch, **labels).last_hidden_state
    assert torch.equal(after, before) == (triplet_weight == 0)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_heads_learn_from_the_wordings_of_the_settings(tiny_encoder, tokenizer, monkeypatch, share):
    trainer = _pretrainer(
        tiny_encoder, tokenizer, max_steps=1, triplet_weight=0, varied_share=share
    )
    labelled = []
    monkeypatch.setattr(
        "boolattn.training.pretrain.LabelledSentences",
        lambda some, words: labelled.append(some) or LabelledSentences(some, words),
    )
    trainer.run()
    settings = trainer.settings
    assert labelled[0] == [*generate(settings.n_sentences, settings.seed, Mixture(varied=share))]


def test_an_impossible_share_is_refused(tiny_encoder, tokenizer):
    with pytest.raises(ConfigError, match="varied must be at least 0 and at most 1"):
        _pretrainer(tiny_encoder, tokenizer, max_steps=1, varied_share=1.5).run()


def test_the_papers_embeddings_learn_too(tiny_encoder, tokenizer):
    trainer = _pretrainer(tiny_encoder, tokenizer, max_steps=2, learning_rate=1e-2)
    weights = {n: p.clone() for n, p in trainer.encoder.named_parameters()}
    trainer.run()
    changed = {n for n, p in trainer.encoder.named_parameters() if not torch.equal(p, weights[n])}
    assert any(name.startswith("embeddings.") for name in changed)
    assert not any(name.startswith("encoder.") for name in changed)


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("gate", ["label", "lexicon"])
def test_a_gate_loss_trains_the_embeddings_of_a_gate_that_is_given(
    tiny_encoder, tokenizer, gate, trains
):
    """As in the paper; where the embeddings are frozen, nothing would be trained."""
    changes = {"max_steps": 1, "scope_weight": 1, "train_embeddings": trains}
    trainer = _pretrainer(tiny_encoder, tokenizer, gate=gate, **changes)
    losses, names = [], set(trainer.plugin.state_dict())
    trainer.run(lambda step, values: losses.append(values))
    assert set(losses[0]) == {"cue", "scope", "triplet", *(["gate"] if trains else [])}
    assert set(trainer.plugin.state_dict()) == names
    measured = trainer.measure(list(generate(20, seed=9)))
    assert ("gate_accuracy" in measured) == (gate == "lexicon")
    if gate == "lexicon":
        assert measured["gate_accuracy"] > 0.7


def test_the_same_seed_gives_the_same_heads(tiny_encoder, tokenizer):
    ends = []
    for _ in range(2):
        trainer = _pretrainer(tiny_encoder, tokenizer, max_steps=3, learning_rate=1e-2)
        trainer.run()
        ends.append(trainer.plugin.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_loss_that_is_no_number_stops(tiny_encoder, tokenizer):
    trainer = _pretrainer(tiny_encoder, tokenizer, max_steps=3)
    with torch.no_grad():
        trainer.plugin.operators.fill_(float("nan"))
    with pytest.raises(ConfigError, match="pretraining loss is nan at step 1"):
        trainer.run()


def test_a_run_reports_and_its_model_starts_a_training(preset, tmp_path):
    chosen = preset("pretrain.learning_rate=1e-2", "pretrain.scope_weight=1.0")
    metrics = pretrain(chosen, Launch(out=tmp_path / "heads"))
    for wording in ("held_out", "unseen"):
        for name in ("cue_f1", "scope_f1", "gate_accuracy", "cue_f1_not"):
            assert 0 <= metrics[f"{wording}_{name}"] <= 1
    saved = json.loads((tmp_path / "heads" / "metrics.json").read_text())
    assert saved["summary"] == metrics
    plugin = load(tmp_path / "heads" / "model").boolattn
    towers = make_towers(chosen, tmp_path / "heads" / "model")
    [name] = [n for n in towers.state_dict() if "query" in n and n.endswith("boolattn.operators")]
    assert torch.equal(towers.state_dict()[name], plugin.operators)
    with pytest.raises(ConfigError, match="plain towers take no pretrained plug-in"):
        make_towers(
            replace(chosen, model=replace(chosen.model, use_plugin=False)),
            tmp_path / "heads" / "model",
        )


def _write_setbert(folder):
    folder.mkdir()
    for name in OPERATORS:
        rows = [
            {"G": f"moths {n} {name} birds", "P": [f"birds {name} moths {n}"], "N": ["ferns"]}
            for n in range(20)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_setberts_sentences_are_pretrained_on(preset, tmp_path):
    folder = tmp_path / "setbert"
    _write_setbert(folder)
    chosen = preset("plugin.variant=paper", "plugin.gate=label")
    metrics = pretrain(chosen, Launch(out=tmp_path / "heads", data=folder))
    assert "held_out_cue_f1" in metrics
    assert "unseen_cue_f1" not in metrics
    data = PretrainingSet.setbert(folder, chosen.pretrain)
    assert (len(data.sentences), len(data.triplets)) == (48, 48)
    found = {s.text[cue.start : cue.end]: cue.operator for s in data.sentences for cue in s.cues}
    plain = {"and": "and", "or": "or", "not": "not"}
    more = {"as well as": "and", "are also": "and", "including": "and"}
    assert found == plain | more | {"other than": "not", "excluding": "not"}
    assert all(t.anchor.operators == t.positive.operators for t in data.triplets)
    assert not any(t.negative.operators for t in data.triplets)
    run = json.loads((tmp_path / "heads" / "run.json").read_text())
    assert run["data"]["name"] == "setbert"


def test_sentences_without_scopes_cannot_supervise_them(preset, tmp_path):
    _write_setbert(tmp_path / "setbert")
    with pytest.raises(ConfigError, match=r"no scopes; set pretrain.scope_weight=0"):
        PretrainingSet.setbert(tmp_path / "setbert", preset("pretrain.scope_weight=1").pretrain)


@pytest.mark.parametrize(("has_gpu", "expected"), [(False, "highest"), (True, "high")])
def test_only_a_gpu_multiplies_in_tf32(monkeypatch, has_gpu, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert torch.get_float32_matmul_precision() == "highest"
    with fast_products():
        assert torch.get_float32_matmul_precision() == expected
    assert torch.get_float32_matmul_precision() == "highest"
