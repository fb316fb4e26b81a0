"""Systems: what each changes, and that no reported split selects anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boolattn.errors import ConfigError
from boolattn.reproduction.reproduce import targets
from boolattn.reproduction.requests import RunRequest
from boolattn.reproduction.runs import registry
from experiments.__main__ import parse_pairs


def preset(system, dataset="taxa", encoder="minilm", seed=0, **changes):
    request = RunRequest(
        systems=[system], datasets=[dataset], encoders=[encoder], seeds=[seed], **changes
    )
    [run] = request.runs()
    return run.preset


def test_plain_and_corrected_differ_in_the_plugin_alone():
    plain, corrected = preset("plain"), preset("corrected-lexicon")
    assert plain.train == corrected.train
    assert plain.data == corrected.data
    assert not plain.model.use_plugin
    assert corrected.model.use_plugin


def test_a_plugin_has_the_papers_size_unless_the_system_says_otherwise():
    assert preset("corrected-lexicon").plugin.rank is None
    assert preset("light").plugin.rank == 16


def test_the_paper_variant_has_the_papers_settings():
    ours = preset("paper-label", "quest", "bert-base")
    assert ours.plugin.variant == "paper"
    assert (ours.pretrain.triplet_weight, ours.pretrain.learning_rate) == (0.2, 1e-5)
    assert ours.pretrain.train_embeddings
    assert (ours.train.keep, ours.data.validation) == ("best", "val")
    for system, reads in (("paper-label", None), ("paper-learned", "mean")):
        made = preset(system)
        assert (made.pretrain.varied_share, made.plugin.gate_reads) == (0, reads)


def test_the_learned_gates_differ_in_what_they_read_only():
    context, mean = preset("corrected-learned"), preset("corrected-learned-mean")
    assert (context.plugin.gate_reads, mean.plugin.gate_reads) == ("context", "mean")
    assert (context.train, context.pretrain) == (mean.train, mean.pretrain)
    assert context.pretrain.varied_share == 0.5


@pytest.mark.parametrize("system", registry().systems)
def test_no_reported_split_selects_weights(system):
    for name in registry().systems[system].datasets or ("taxa", "quest-intro", "quest"):
        made = preset(system, name)
        assert made.data.validation not in registry().datasets[name].splits


def test_full_quest_has_one_training_split():
    for encoder in ("minilm", "bert-base"):
        assert preset("plain", "quest", encoder).data.train == "train"


def test_a_system_inherits_from_its_base():
    frozen, trained = preset("corrected-frozen"), preset("corrected-learned")
    assert frozen.train.freeze_heads
    assert replace(frozen.train, freeze_heads=False) == trained.train
    assert frozen.plugin == trained.plugin
    assert registry().systems["corrected-frozen"].pretrain


def test_the_papers_tables_name_known_systems():
    for target in targets().values():
        assert all(registry().systems[name] for name in (*target.systems, *target.against))


def test_a_seed_is_used_by_pretraining_and_training():
    made = preset("corrected-lexicon", seed=42)
    assert (made.train.seed, made.pretrain.seed) == (42, 42)


def test_changes_of_the_request_come_last():
    assert preset("plain-random", changes=("train.n_logical=1",)).train.n_logical == 1


def test_errors_name_the_mistake():
    with pytest.raises(ConfigError, match="no encoder 'bert'; there are minilm"):
        registry().encoders["bert"]
    with pytest.raises(ConfigError, match="no preset for bert-large on taxa"):
        preset("plain", "taxa", "bert-large")
    with pytest.raises(ConfigError, match="'folder' names no owner"):
        parse_pairs(["folder"], ("taxa", "quest-intro"))
