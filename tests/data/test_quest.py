"""QUEST and QUEST-intro on a sample in their form, and on the real folder where there is one."""

from __future__ import annotations

import collections
import gzip
import json
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.quest import fetch_quest, load_quest, load_quest_intro, read_documents
from boolattn.data.records import Operand
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import package_table
from boolattn.query.syntax import TEMPLATES
from boolattn.query.tree import Operator
from experiments.quest_queries import generate_queries, split_categories, with_generated

SAMPLE = Path(__file__).parent / "samples" / "quest-intro"
REAL = os.environ.get("BOOLATTN_QUEST_INTRO", "")


@pytest.fixture
def folder(tmp_path):
    """A copy of the sample that a test may damage."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "quest-intro"))


@pytest.fixture(scope="module")
def quest():
    return load_quest_intro(SAMPLE)


def test_coverage_rule_keeps_and_counts(quest):
    # Five queries: "ghosts" has a third of its gold, "only lost things" none.
    assert len(quest.splits["train"]) == 3
    assert [query.text for query in quest.splits["train"]][1] == "Newts"
    assert "Lost newt" not in quest.splits["train"][1].gold
    assert len(quest.splits["val"]) == 2


def test_operands_spans_and_sets(quest):
    owls = quest.splits["train"][0]
    assert owls.id == "train-0"
    assert owls.operators == (Operator.NOT,)
    # "owls" was left word for word; "not found in Avalon" was not.
    assert owls.operands == (Operand("Owls", ((0, 4),)), Operand("Fauna of Avalon"))
    assert owls.gold == quest.categories["Owls"] - quest.categories["Fauna of Avalon"]
    assert owls.excluded == quest.categories["Owls"] & quest.categories["Fauna of Avalon"]
    assert [one.members for one in owls.operands] == [
        quest.categories[name] for name in ("Owls", "Fauna of Avalon")
    ]
    assert "Grey ghost owl" not in owls.gold
    assert owls.excluded
    herons = quest.splits["val"][1]
    both = quest.categories["Herons"] & quest.categories["Cliff animals"]
    either = quest.categories["Herons"] | quest.categories["Cliff animals"]
    assert herons.excluded == both & quest.categories["Fauna of Ys"]
    assert herons.partial == either - both
    assert herons.domain == "animals"


def test_an_operand_said_twice_has_no_known_place(folder):
    row = {"query": "Owls, yes, owls", "docs": [], "original_query": "<mark>Owls</mark>"}
    (folder / "train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    [query] = load_quest(folder, splits=["train"]).splits["train"]
    assert query.operands == (Operand("Owls"),)


def test_without_categories_the_sets_are_unknown(folder):
    (folder / "categories.jsonl").unlink()
    quest = load_quest_intro(folder)
    assert quest.splits["train"][0].excluded == frozenset()
    assert quest.splits["train"][0].gold
    with pytest.raises(MissingDataError, match=r"has no category file; put categories\.jsonl"):
        split_categories(quest)


def test_attributions_are_never_read(quest):
    assert "SECRET" in (SAMPLE / "train.jsonl").read_text(encoding="utf-8")
    assert "SECRET" not in repr(quest)


def official(folder):
    """The sample under the official names, with an augmented file and no gold missing."""
    with zipfile.ZipFile(folder / "documents.zip", "w") as archive:
        archive.write(folder / "corpus.jsonl", "documents.jsonl")
    (folder / "corpus.jsonl").unlink()
    augmented = [
        {"query": "Newts or Owls", "docs": ["Ys night owl"], "original_query": None},
        {"query": "x", "docs": [], "metadata": {"template": None, "domain": None}},
        {"query": "Night owls", "docs": [], "metadata": {"template": "_"}},
    ]
    text = "".join(json.dumps(row) + "\n" for row in augmented)
    (folder / "train_aug.jsonl").write_text(text, encoding="utf-8")


def test_official_files_from_a_folder(folder):
    official(folder)
    quest = load_quest(folder, splits=["train_aug", "val"])
    assert quest.name == "QUEST"
    first, second, third = quest.splits["train_aug"]
    assert (first.template, first.operands, first.operators) == ("", (), ())
    assert second.gold == frozenset()
    assert third.template == "_"
    # The rule is off: what is not in the corpus is an error.
    with pytest.raises(
        DataError, match=r"train\.jsonl:1: the gold title 'Grey ghost owl' is not in"
    ):
        load_quest(folder, splits=["train"])


def test_augmented_queries_are_read_where_they_are_asked_for(folder):
    official(folder)
    rows = (folder / "val.jsonl").read_text("utf-8")
    for name in ("train", "test"):
        (folder / f"{name}.jsonl").write_text(rows, encoding="utf-8")
    assert "train_aug" not in open_dataset("quest", DataOptions(folder=folder)).splits
    found = open_dataset("quest", DataOptions(folder=folder, splits=("train", "train_aug"))).splits
    assert list(found) == ["train", "val", "test", "train_aug"]
    assert len(found["train_aug"]) == 3


def test_augmented_queries_use_the_categories_they_mention(folder):
    official(folder)
    held_out = split_categories(load_quest(folder, splits=["train_aug", "val"])).held_out
    assert not {"Newts", "Owls", "Night owls"} & set(held_out)


def test_official_files_from_the_cache_and_offline(folder, monkeypatch):
    official(folder)
    monkeypatch.setenv("BOOLATTN_OFFLINE", "1")
    monkeypatch.setenv("BOOLATTN_CACHE", str(folder.parent / "cache"))
    with pytest.raises(MissingDataError) as caught:
        load_quest()
    assert str(caught.value) == (
        f"offline, and no {folder.parent}/cache/quest/train.jsonl; fetch "
        "https://storage.googleapis.com/gresearch/quest/train.jsonl and put it there"
    )
    # What was put there by hand may be compressed.
    (folder / "val.jsonl.gz").write_bytes(gzip.compress((folder / "val.jsonl").read_bytes()))
    (folder / "val.jsonl").unlink()
    folder.rename(folder.parent / "quest")
    monkeypatch.setenv("BOOLATTN_CACHE", str(folder.parent))
    assert len(load_quest(splits=["val"]).splits["val"]) == 2
    with pytest.raises(ConfigError, match="QUEST has no 'dev'; it has train, train_aug"):
        fetch_quest(["dev"])


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        (
            "corpus.jsonl",
            {"title": "Ys night owl", "text": ""},
            r":31: title .* occurs twice",
        ),
        ("corpus.jsonl", {"title": "x"}, r":31: the field 'text' is missing"),
        ("train.jsonl", {"query": "x"}, r":6: the field 'docs' is missing"),
        (
            "train.jsonl",
            {"query": "x", "docs": [], "metadata": {"template": "_ xor _"}},
            r":6: unknown template '_ xor _'; known: _, _ or _",
        ),
        (
            "val.jsonl",
            {
                "query": "x",
                "docs": [],
                "original_query": "<mark>a</mark>",
                "metadata": {"template": "_ or _"},
            },
            r":3: the template '_ or _' has 2 operands, original_query marks 1",
        ),
        (
            "categories.jsonl",
            {"category": "Owls", "docs": []},
            r":18: the category 'Owls' occurs twice and differs",
        ),
    ],
)
def test_damage_names_file_and_line(folder, name, row, message):
    with (folder / name).open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=name.replace(".", r"\.") + message) as caught:
        load_quest_intro(folder)
    assert "\n" not in str(caught.value)


def test_truncated_corpus(folder):
    path = folder / "corpus.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"corpus\.jsonl:30: not JSON .*is it cut"):
        load_quest_intro(folder)


def test_missing_folder_and_file(folder):
    with pytest.raises(MissingDataError, match=r"in .*; put QUEST-intro's files"):
        load_quest_intro(folder / "none")
    (folder / "val.jsonl").unlink()
    with pytest.raises(MissingDataError, match=r"no val\.jsonl in .*; put QUEST"):
        load_quest_intro(folder)


def test_documents_stream(folder):
    documents = read_documents(folder)
    assert next(documents).id == "Avalon marsh owl"
    assert next(documents).metadata == {"source": "invented:birds"}


# Generated queries.


def check_sets(query, categories):
    """Recompute a query's sets with plain set algebra."""
    sets = [categories[operand.text] for operand in query.operands]
    assert [operand.members for operand in query.operands] == sets
    gold = {
        "_": lambda a: a,
        "_ or _": lambda a, b: a | b,
        "_ or _ or _": lambda a, b, c: a | b | c,
        "_ that are also _": lambda a, b: a & b,
        "_ that are also both _ and _": lambda a, b, c: a & b & c,
        "_ that are not _": lambda a, b: a - b,
        "_ that are also _ but not _": lambda a, b, c: (a & b) - c,
    }[query.template](*sets)
    assert query.gold == gold
    assert gold
    if "not" in query.template:
        assert query.excluded == frozenset.intersection(*sets)
        assert query.excluded
    else:
        assert not query.excluded
    if "also" in query.template:
        a, b, *rest = sets[:-1] if "not" in query.template else sets
        in_all = a.intersection(b, *rest)
        assert query.partial == a.union(b, *rest) - in_all
        assert all(own > in_all for own in (a, b, *rest))
    else:
        assert not query.partial


def test_generated_queries_have_exact_sets_and_spans(quest):
    queries = generate_queries(quest.categories, 140, seed=1)
    counts = collections.Counter(query.template for query in queries)
    assert set(counts) == set(TEMPLATES)
    assert counts["_ or _"] == counts["_ that are also _ but not _"] == 20
    assert len({query.id for query in queries}) == len(queries)
    for query in queries:
        check_sets(query, quest.categories)
        assert query.wording in package_table("experiments", "quest_queries.toml")[query.template]
        for operand in query.operands:
            [(start, end)] = operand.spans
            assert query.text[start:end] == operand.text


def test_generation_depends_on_the_seed_alone(quest):
    backwards = dict(reversed(quest.categories.items()))
    first = generate_queries(quest.categories, 70, seed=5)
    assert generate_queries(backwards, 70, seed=5) == first
    assert generate_queries(quest.categories, 70, seed=6) != first


def test_generation_of_chosen_templates(quest):
    queries = generate_queries(quest.categories, 5, seed=0, templates=["_ or _", "_"])
    assert [query.template for query in queries] == ["_ or _"] * 3 + ["_"] * 2
    with pytest.raises(ConfigError, match="unknown template '_ xor _'"):
        generate_queries(quest.categories, 5, seed=0, templates=["_ xor _"])


def test_queries_with_several_answers_come_first(quest):
    template = "_ that are also both _ and _"
    every = generate_queries(quest.categories, 1000, seed=0, templates=[template])
    n_several = sum(len(query.gold) > 1 for query in every)
    assert 0 < n_several < len(every)
    some = generate_queries(quest.categories, n_several, seed=1, templates=[template])
    assert all(len(query.gold) > 1 for query in some)


def operand_names(queries):
    return {operand.text for query in queries for operand in query.operands}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_held_out_categories_stay_held_out(quest, seed):
    split = split_categories(quest, seed=seed, share=0.5)
    assert split.held_out
    assert not set(split.train) & set(split.held_out)
    assert not set(split.train) & quest.named["val"]
    assert not set(split.held_out) & quest.named["train"]
    # A validation category that no training query names may be asked in generated validation.
    assert "Finches" in split.held_out
    # What neither names is divided, so training keeps some of it too.
    assert set(split.train) - quest.named["train"]
    splits = with_generated(quest, n_train=100, n_val=100, seed=seed).splits
    train, val = (operand_names(splits[f"generated_{name}"]) for name in ("train", "val"))
    assert train
    assert val
    assert not train & (val | quest.named["val"])
    assert not val & quest.named["train"]


def test_a_category_that_both_name_is_used_for_neither(quest):
    named = {**quest.named, "val": quest.named["val"] | {"Owls"}}
    split = split_categories(replace(quest, named=named))
    assert "Owls" not in split.train
    assert "Owls" not in split.held_out


def test_categories_of_dropped_queries_are_held_out_too(quest):
    # "Ghosts" fails the coverage rule; were it a category, it would still be known by name.
    assert "Ghosts" in quest.named["train"]
    more = {**quest.categories, "Ghosts": quest.categories["Herons"]}
    split = split_categories(replace(quest, categories=more), share=0.9)
    assert "Ghosts" not in split.held_out


def test_share_must_be_a_share(quest):
    with pytest.raises(ConfigError, match=r"between 0 and 1, got 1\.0"):
        split_categories(quest, share=1.0)


def test_with_generated_adds_splits(quest):
    more = with_generated(quest, n_train=14, n_val=14)
    made = ["generated_train", "generated_val", "generated_choice"]
    assert list(more.splits) == ["train", "val", *made]
    assert more.splits["train"] == quest.splits["train"]
    assert len(more.splits["generated_train"]) == len(more.splits["generated_val"]) == 14


def test_what_is_chosen_by_is_neither_trained_on_nor_reported(quest):
    splits = with_generated(quest, n_train=3, n_val=100, n_choice=50).splits
    chosen = operand_names(splits["generated_choice"])
    assert chosen
    assert not chosen & operand_names((*splits["train"], *splits["generated_train"]))
    assert not chosen & (quest.named["val"] | operand_names(splits["generated_val"]))
    # Training less leaves more to choose by.
    less = with_generated(replace(quest, splits={}), n_train=0, n_choice=50)
    assert chosen < operand_names(less.splits["generated_choice"])


@pytest.mark.skipif(not REAL, reason="BOOLATTN_QUEST_INTRO names no folder")
def test_real_quest_intro():
    quest = load_quest_intro(Path(REAL))
    assert len(quest.documents) == 271_995
    assert len(quest.splits["train"]) == 594
    assert len(quest.splits["val"]) == 143
    more = with_generated(quest)
    val = more.splits["generated_val"]
    assert len(val) == 2000
    assert len(more.splits["generated_train"]) == 5000
    assert {query.template for query in val} == set(TEMPLATES)
    assert not operand_names(val) & quest.named["train"]
    trained = operand_names((*more.splits["train"], *more.splits["generated_train"]))
    assert not operand_names(val) & trained
    assert not operand_names(more.splits["generated_choice"]) & (trained | operand_names(val))
    for query in val:
        check_sets(query, quest.categories)
