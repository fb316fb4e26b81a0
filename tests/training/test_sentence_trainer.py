"""Our loss and batches in sentence-transformers' own trainer."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from sentence_transformers.base.trainer import BaseTrainer

from boolattn.training.launch import make_steps
from boolattn.training.losses import softmax_loss
from boolattn.training.sentence_trainer import StepCollator, TowersLoss
from boolattn.training.tower_pass import Both
from boolattn.training.towers import make_towers


@pytest.mark.parametrize("gate", ["lexicon", "label"])
def test_the_loss_is_that_of_our_own_trainer(preset, corpus, gate):
    chosen = preset(f"plugin.gate={gate}")
    towers, steps = make_towers(chosen).eval(), make_steps(chosen, corpus)
    flat = StepCollator(steps)([{"step": 3}])
    features, labels = BaseTrainer.collect_features(None, flat)
    assert len(features) == 2
    ours = steps[3]
    targets, blocked = ours.pop("targets"), ours.pop("blocked")
    expected = softmax_loss(*Both(towers)(**ours), targets, blocked)
    torch.testing.assert_close(TowersLoss(towers)(features, labels), expected)


@pytest.mark.skipif(find_spec("datasets") is None, reason="sentence-transformers' needs datasets")
def test_it_trains(preset, corpus, tmp_path):
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    chosen = preset()
    towers, steps = make_towers(chosen), make_steps(chosen, corpus)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=1,
        max_steps=2,
        report_to="none",
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model=towers,
        args=arguments,
        train_dataset=Dataset.from_dict({"step": list(range(len(steps)))}),
        loss=TowersLoss(towers),
        data_collator=StepCollator(steps),
    )
    assert trainer.train().training_loss > 0
