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
from experiments.negation.learner import (
    MARK,
    Annotated,
    Learner,
    NegationSettings,
    marked,
    merged,
)

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


def test_a_given_cue_is_marked_and_each_negation_is_a_sentence_of_its_own():
    words = ("I", "never", "saw", "nothing")
    first, second = (tuple(word == cue for word in words) for cue in ("never", "nothing"))
    records = [
        Negation(tokens=words, cue=cue, scope=scope, cue_text=("",) * 4, source="a:1")
        for cue, scope in ((first, second), (second, first), ((False,) * 4, (False,) * 4))
    ]
    never, nothing = marked(records)
    assert never == Annotated(("I", f"{MARK} never", "saw", "nothing"), first, second)
    assert nothing == Annotated(("I", "never", "saw", f"{MARK} nothing"), second, first)
    for sample in SAMPLES.iterdir():
        assert MARK not in sample.read_text("utf-8")


def test_a_mark_belongs_to_the_word_of_its_cue(learner):
    one = Annotated(("birds", f"{MARK} not", "moths"), (False, True, False), (False, False, True))
    batch, plain = (learner().batch([own]) for own in (one, SENTENCES[0]))
    [words], [others] = batch.words.tolist(), plain.words.tolist()
    # The mark and "not" are one word, so that scores are still those of three words.
    assert max(words) == max(others) == 2
    assert words.count(1) > others.count(1)
    assert int(batch.cues.sum()) == words.count(1)


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
    assert "| sfu | BoolAttn, all-MiniLM-L6-v2, cue given | 1 | – | " in table
    given = json.loads((files / "out/negation/sfu/minilm/given-0.json").read_text())
    assert given["n_sentences"] == given["n_negated"]
    found = json.loads((files / "out/negation/sfu/minilm/tuned-0.json").read_text())
    assert found["n_sentences"] != found["n_negated"]
    assert set(found["test"]) == {"cue_f1", "scope_f1", "scope_f1_plain"}
    assert str(files) not in json.dumps(found)
