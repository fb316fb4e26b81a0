"""Systems: what each changes, and that nothing reported chooses anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boolattn.errors import ConfigError
from boolattn.reproduction.systems import Request, known, pairs, read_systems, resolve


def preset(system, suite="taxa", encoder="minilm", seed=0, **request):
    found = known()
    what = found.system(system), found.suite(suite), found.encoder(encoder)
    return resolve(*what, seed, Request(**request))


def test_plain_and_corrected_differ_in_the_plugin_alone():
    plain, corrected = preset("plain"), preset("corrected-lexicon")
    assert plain.train == corrected.train
    assert plain.data == corrected.data
    assert not plain.model.use_plugin
    assert corrected.model.use_plugin


def test_a_plugin_has_the_papers_size_unless_the_system_says_otherwise():
    assert preset("corrected-lexicon").plugin.rank is None
    assert preset("light").plugin.rank == 16


def test_the_papers_letter_is_its_presets():
    ours = preset("paper-label", "quest", "bert-base")
    assert ours.plugin.variant == "paper"
    assert (ours.pretrain.triplet_weight, ours.pretrain.learning_rate) == (0.2, 1e-5)
    assert ours.pretrain.train_embeddings
    assert (ours.train.keep, ours.data.validation) == ("best", "val")
    for system, reads in (("paper-label", None), ("paper-learned", "mean")):
        made = preset(system)
        assert (made.pretrain.wide, made.plugin.gate_reads) == (0, reads)


def test_the_corrected_learned_gate_reads_context_and_one_row_says_what_the_mean_gives():
    context, mean = preset("corrected-learned"), preset("corrected-learned-mean")
    assert (context.plugin.gate_reads, mean.plugin.gate_reads) == ("context", "mean")
    assert (context.train, context.pretrain) == (mean.train, mean.pretrain)
    assert context.pretrain.wide == 0.5


@pytest.mark.parametrize("system", [name for name, one in known().systems.items()])
def test_no_split_that_is_reported_chooses_weights(system):
    for suite in known().suites.values():
        if suite.name in ("taxa", "quest-intro", "quest"):
            made = preset(system, suite.name)
            assert made.data.validation not in suite.splits


def test_numbers_are_chosen_on_what_is_neither_trained_on_nor_reported():
    made = preset("composed", "quest-intro")
    assert made.data.validation == "generated_choice"
    assert made.data.validation not in made.data.train.split("+")
    assert preset("plain", "quest-intro").data.validation == ""


def test_full_quest_is_trained_on_what_it_has():
    for encoder in ("minilm", "bert-base"):
        assert preset("plain-random", "quest", encoder).data.train == "train"


def test_a_system_like_another_differs_in_what_it_says():
    held, drifting = preset("corrected-held"), preset("corrected-learned")
    assert held.train.hold_heads
    assert replace(held.train, hold_heads=False) == drifting.train
    assert held.plugin == drifting.plugin
    assert known().system("corrected-held").heads
    light = known().system("composed-light")
    assert (light.asks, light.once) == (known().system("composed").asks, ())
    with pytest.raises(ConfigError, match=r"\[b\]: like 'a', which does not stand before it"):
        read_systems('[dataset]\n[encoder]\n[system.b]\nlabel = "b"\nlike = "a"')


def test_a_seed_is_the_seed_of_heads_and_towers():
    made = preset("corrected-lexicon", seed=42)
    assert (made.train.seed, made.pretrain.seed) == (42, 42)


def test_a_persons_change_comes_last():
    assert preset("plain-random", changes=("train.n_logical=1",)).train.n_logical == 1


def test_every_system_of_the_plan_exists_and_resolves():
    for grid in known().grids:
        for dataset in grid.datasets:
            for encoder in grid.encoders:
                for system in grid.systems:
                    preset(system, dataset, encoder)


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="no encoder 'bert'; there are minilm"):
        known().encoder("bert")
    with pytest.raises(ConfigError, match="no preset for bert-large on taxa"):
        preset("plain", "taxa", "bert-large")
    text = '[system.x]\nlabel = "x"\nasks = ["loudly"]\n[encoder]\n[dataset]\n'
    with pytest.raises(ConfigError, match="no way to ask 'loudly'"):
        read_systems(text)
    with pytest.raises(ConfigError, match="which one is 'folder' for"):
        pairs(["folder"], ("taxa", "quest-intro"))
