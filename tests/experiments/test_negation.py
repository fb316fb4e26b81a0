"""Cue and scope of negation: what is counted, and a complete short run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from boolattn.attention.config import BoolAttnConfig
from boolattn.data.negation import Negation
from boolattn.plugin import attach
from experiments.__main__ import main
from experiments.negation.learner import Annotated, Learner, merged
from experiments.negation.settings import NegationSettings

SAMPLES = Path(__file__).parents[1] / "data" / "samples" / "negation"


def test_the_negations_of_one_sentence_are_joined():
    def record(cue, scope, source="a:1"):
        return Negation(
            tokens=("I", "never", "saw", "nothing"),
            cue=cue,
            scope=scope,
            cue_text=("",) * 4,
            source=source,
        )

    first = record((False, True, False, False), (True, False, True, True))
    second = record((False, False, False, True), (False, False, True, False))
    other = record((False,) * 4, (False,) * 4, source="a:9")
    both, plain = merged([first, second, other])
    assert both.cue == (False, True, False, True)
    assert both.scope == (True, False, True, True)
    assert not any(plain.cue)


@pytest.fixture
def learner(tiny_encoder, tokenizer):
    def build(**changes):
        encoder = tiny_encoder("bert")
        attach(encoder, BoolAttnConfig(operators=("not",), gate="label"), tokenizer=tokenizer)
        return Learner(encoder, tokenizer, NegationSettings(**changes))

    return build


SENTENCES = [
    Annotated(("birds", "not", "moths"), (False, True, False), (False, False, True)),
    Annotated(("birds", "and", "moths"), (False,) * 3, (False,) * 3),
] * 8


def test_heads_learn_cue_and_scope_with_a_frozen_encoder(learner):
    one = learner(batch_size=8, head_learning_rate=0.02, max_steps=30)
    before = {k: v.clone() for k, v in one.encoder.state_dict().items() if "boolattn" not in k}
    torch.manual_seed(0)
    found = one.fit(SENTENCES, SENTENCES)
    assert found["cue_f1"] > 0.99
    assert found["scope_f1"] > 0.9
    assert found["scope_f1_plain"] > 0.9
    for name, value in before.items():
        torch.testing.assert_close(one.encoder.state_dict()[name], value, rtol=0, atol=0)


def test_an_encoder_that_is_not_frozen_is_trained(learner):
    one = learner(batch_size=8, is_frozen=False, max_steps=2)
    before = one.encoder.embeddings.word_embeddings.weight.detach().clone()
    one.fit(SENTENCES, SENTENCES)
    assert not torch.equal(one.encoder.embeddings.word_embeddings.weight, before)


def test_every_token_has_the_annotation_of_its_word(learner):
    batch = learner().batch(SENTENCES[:2])
    words = batch.words.numpy()
    is_cue = batch.cues[:, 0].numpy() > 0
    assert set(np.unique(words[is_cue])) == {1}
    assert batch.has_negation.tolist() == [[1.0], [0.0]]
    # Words are counted over the batch: the second sentence starts at 3.
    assert words[1][words[1] >= 0].min() == 3


@pytest.mark.usefixtures("in_process")
def test_the_command_writes_result_files_and_a_table_with_published_figures(files, capsys):
    folder = files / "negation-scope"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        shutil.copy(SAMPLES / "sfu.conll", folder / f"SFU_{split}.conll")
    options = [
        "--data",
        str(folder),
        "--encoder",
        f"minilm={files / 'encoder'}",
        "--max-steps",
        "1",
    ]
    options += ["--on", "sfu", "--out", str(files / "out")]
    assert main(["negation", *options]) == 0
    table = capsys.readouterr().out
    assert "| sfu | NegBERT |  | not found | .9095 (published) | – |" in table
    assert "| sfu | BoolAttn, all-MiniLM-L6-v2, frozen | 1 |" in table
    found = json.loads((files / "out/negation/sfu/minilm/tuned-0.json").read_text())
    assert set(found["test"]) == {"cue_f1", "scope_f1", "scope_f1_plain"}
    assert str(files) not in json.dumps(found)
