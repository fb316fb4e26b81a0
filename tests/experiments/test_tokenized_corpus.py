"""A tokenized corpus has the tokens, records and hashes of its data set."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from boolattn.data.records import Dataset, Query
from boolattn.errors import ConfigError
from boolattn.training.batches.tokens import Tokens
from boolattn.training.run_folder import data_hashes
from experiments.corpus_folder import content_hash
from experiments.tokenized_corpus import TokenizedCorpus
from tests.reproduction.tiny import make_queries


@pytest.fixture
def dataset():
    documents, queries = make_queries()
    # One relevant document is not in the corpus.
    away = Query(id="away", text="birds", gold=frozenset({"d0", "elsewhere"}))
    return Dataset(name="tiny", documents=documents, splits={"train": (*queries, away)})


def test_a_round_trip_keeps_everything(dataset, tokenizer, tmp_path):
    saved = TokenizedCorpus(tmp_path / "layout")
    saved.write(dataset, tokenizer, 12)
    found = saved.open(tokenizer, 12)
    assert list(found.dataset.documents) == [found.dataset.documents[i] for i in range(48)]
    assert [d.text for d in found.dataset.documents] == [d.text for d in dataset.documents]
    assert found.dataset.splits["train"] == dataset.splits["train"]
    assert data_hashes(found.dataset) == data_hashes(dataset)
    tokens = Tokens(tokenizer, [d.text for d in dataset.documents], 12)
    rows = [5, 0, 47, 5]
    assert found.documents.lengths(rows) == tokens.lengths(rows)
    for name, value in tokens.features(rows).items():
        assert torch.equal(found.documents.features(rows)[name], value)
    ours, places = found.documents.chunks(range(48), 7)
    theirs, same = tokens.chunks(range(48), 7)
    assert torch.equal(places, same)
    assert all(
        torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(ours, theirs, strict=True)
    )


def test_documents_of_operands_are_kept_and_older_folders_lack_them(dataset, tokenizer, tmp_path):
    first, *rest = dataset.splits["train"]
    known = replace(first.operands[0], members=frozenset({"d0", "d47", "elsewhere"}))
    splits = {"train": (replace(first, operands=(known,)), *rest)}
    saved = TokenizedCorpus(tmp_path / "layout")
    saved.write(replace(dataset, splits=splits), tokenizer, 12)
    found = saved.open(tokenizer, 12).dataset.splits["train"]
    assert found[0].operands[0].members == known.members
    assert found[1].operands[0].members is None
    path = tmp_path / "layout" / "splits.json"
    plain = json.loads(path.read_text())
    for query in plain["train"]:
        query["operands"] = [part[:2] for part in query["operands"]]
    path.write_text(json.dumps(plain))
    old = saved.open(tokenizer, 12).dataset.splits["train"]
    assert old == found
    assert old[0].operands[0].members is None


def test_another_length_or_vocabulary_is_refused(dataset, tokenizer, tmp_path):
    saved = TokenizedCorpus(tmp_path / "layout")
    saved.write(dataset, tokenizer, 12)
    with pytest.raises(ConfigError, match="another length: 12, not 16"):
        saved.open(tokenizer, 16)


def test_changed_data_has_another_hash_and_a_copy_the_same(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    (first / "corpus.jsonl").write_text("one")
    before = content_hash(first)
    shutil.copytree(first, second)
    os.utime(second / "corpus.jsonl", (1, 1))
    assert content_hash(second) == before
    (first / "corpus.jsonl").write_text("two")
    assert content_hash(first) != before
    (second / "corpus.jsonl").rename(second / "queries.jsonl")
    assert content_hash(second) != before
    assert content_hash(None) == "own"


def test_rows_of_the_corpus_are_found_by_name(dataset, tokenizer, tmp_path):
    saved = TokenizedCorpus(tmp_path / "layout")
    saved.write(dataset, tokenizer, 12)
    rows = saved.open(tokenizer, 12).rows
    assert np.array_equal([rows[d.id] for d in dataset.documents], np.arange(48))
