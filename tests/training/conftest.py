"""A tiny data set, a tiny encoder on disk, and presets that fit them."""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import pytest

from boolattn.cli import main
from boolattn.data.records import Dataset, Document, Operand, Query
from boolattn.query.tree import Operator
from boolattn.training.retrieval import Corpus
from boolattn.training.settings import load_preset

WORDS = ("moths", "birds", "ferns", "films")
PLACES = ("borneo", "sumatra", "peru", "chile")


@pytest.fixture
def command(monkeypatch):
    """Run a command line in this process; return its exit status."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["boolattn", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0

    return run


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    """64 documents of four kinds and four places, some in two; 48 queries."""
    rng = random.Random(0)
    documents, kind_of, places_of = [], {}, {}
    for number in range(64):
        kind, places = WORDS[number % 4], rng.sample(PLACES, 1 + number % 2)
        name = f"d{number}"
        kind_of[name], places_of[name] = kind, set(places)
        text = f"{kind} of {' and '.join(places)} number {number}"
        documents.append(Document(id=name, text=text, title=name))
    queries = []
    for kind in WORDS:
        for first in PLACES:
            for second in PLACES:
                if first == second:
                    continue
                in_first = {d for d in kind_of if kind_of[d] == kind and first in places_of[d]}
                both = {d for d in in_first if second in places_of[d]}
                queries.append(
                    Query(
                        id=f"{kind}-{first}-{second}",
                        text=f"{kind} of {first} but not {second}",
                        template="_ that are not _",
                        operators=(Operator.NOT,),
                        gold=frozenset(in_first - both),
                        excluded=frozenset(both),
                    )
                )
    usable = tuple(query for query in queries if query.gold)
    return Dataset(
        name="tiny", documents=documents, splits={"train": usable, "validation": usable[:12]}
    )


@pytest.fixture
def encoder_folder(tiny_encoder, tokenizer, tmp_path):
    """An encoder with dropout, saved with its tokenizer."""
    folder = tmp_path / "encoder"
    encoder = tiny_encoder("bert", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def preset(encoder_folder):
    """Make a preset for the tiny encoder; keyword arguments change its training."""

    def build(*changes: str, **train):
        values = {
            "model": {"encoder": str(encoder_folder), "query_length": 32, "document_length": 32},
            "plugin": {"gate": "lexicon", "rank": 4},
            "data": {"name": "tiny"},
            "pretrain": {"n_sentences": 64, "batch_size": 8, "max_steps": 4, "n_held_out": 16},
            "train": {
                "batch_size": 4,
                "max_steps": 6,
                "n_negatives": 2,
                "n_logical": 1,
                "evaluate_every": 3,
                "save_every": 2,
                "learning_rate": 1e-3,
                "n_validation_documents": 0,
                "chunk": 5,
                **train,
            },
        }
        return load_preset("tiny", changes, values=values)

    return build


@pytest.fixture
def corpus(dataset, tokenizer):
    return Corpus(dataset, tokenizer, 32)


def _with_spans(query):
    kind, first, second = query.id.split("-")
    head = len(kind) + 4
    positive = ((0, head + len(first)),)
    negated = ((0, head), (query.text.index(second), len(query.text)))
    names = (f"{kind} of {first}", f"{kind} of {second}")
    return replace(query, operands=tuple(map(Operand, names, (positive, negated))))


@pytest.fixture
def labelled_corpus(dataset, tokenizer):
    """The corpus, with the spans of the queries' operands."""
    splits = {name: tuple(map(_with_spans, queries)) for name, queries in dataset.splits.items()}
    return Corpus(replace(dataset, splits=splits), tokenizer, 32)
