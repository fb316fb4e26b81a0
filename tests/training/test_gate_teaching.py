"""The learned gate taught again: it learns, and nothing but the gate changes."""

from __future__ import annotations

import pytest
import torch

from boolattn.attention.config import BoolAttnConfig
from boolattn.data.readings_generated import generate_marked
from boolattn.encoder import build_towers
from boolattn.encoder.retriever import Retriever
from boolattn.errors import ConfigError
from boolattn.training.gate_training import gate_of, teach_gate

TEXTS = list(generate_marked(120, 0))


@pytest.fixture
def retriever(tiny_encoder, tokenizer):
    def build(**settings):
        torch.manual_seed(0)
        config = BoolAttnConfig(rank=4, **settings)
        return Retriever(build_towers(tiny_encoder(), config, tokenizer=tokenizer).eval())

    return build


def test_the_gate_learns_and_all_else_stays(retriever):
    model = retriever(gate="learned", gate_reads="context")
    before = {name: value.clone() for name, value in model.towers.state_dict().items()}
    short = teach_gate(model, [TEXTS], n_steps=1, batch_size=64, length=32, seed=0)
    taught = teach_gate(
        model, [TEXTS[:60], TEXTS[60:]], n_steps=150, batch_size=64, length=32, seed=0
    )
    assert taught > short + 0.15
    after = model.towers.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(".gate." in name for name in changed)
    assert not gate_of(model).training


@pytest.mark.parametrize("settings", [{"gate": "lexicon"}, {"gate": "label"}])
def test_another_gate_cannot_be_taught(retriever, settings):
    model = retriever(**settings)
    assert gate_of(model) is None
    with pytest.raises(ConfigError, match="gate_steps teaches a learned gate"):
        teach_gate(model, [TEXTS], n_steps=1, batch_size=8, length=32, seed=0)
