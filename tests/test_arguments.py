"""Arguments of another type, all over the public API: one line, never an error from deep inside."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import pytest
import torch

import boolattn
from boolattn import BoolAttnConfig, BoolattnError, Searcher, TorchEncoder
from boolattn.data.beir import read_beir, write_beir
from boolattn.data.boolquestions import load_boolquestions, read_passages, read_questions
from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.quest import load_quest, load_quest_intro
from boolattn.data.records import Dataset, Document, Query
from boolattn.data.sentences import Mixture, generate
from boolattn.encoders.callables import CallableEncoder, EmbeddingEndpoint
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.metrics import parse as parse_metric
from boolattn.query.parser import Parser, load_parser
from boolattn.query.syntax import parse as parse_query
from boolattn.query.tokens import is_explicit
from boolattn.search import load_model
from boolattn.search.systems import Bm25Ranker
from boolattn.stores.points.milvus import MilvusCollection
from boolattn.stores.points.postgres import PostgresCollection
from boolattn.stores.points.qdrant import QdrantCollection
from boolattn.training.settings import PretrainSettings, TrainSettings
from tests.search import word_model
from tests.stores.arrays import ArrayCollection

ODD = [None, 3, 1.5, float("nan"), b"moths", ["moths", 3], {"text": 3}, np.zeros(3), object()]
#: Nothing of these is a path.
NO_PATHS = [
    *(3, 1.5, b"moths", ["moths"], ("a", "b"), {"a": 1}, np.zeros(3), torch.zeros(2), object()),
    *(PureWindowsPath("c:/moths"), PurePosixPath("moths"), "", "a\0b", "x" * 300),
]
#: Nothing of these is a whole number of at least 1.
NO_NUMBERS = [
    *("3", 1.5, float("nan"), float("inf"), b"3", [3], {"a": 1}, object(), True, -1),
    *(np.zeros(3), np.array([3]), np.array(3), np.float64(3), torch.tensor(3), torch.zeros(3)),
]
FIELDS = [field.name for field in dataclasses.fields(BoolAttnConfig)]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arguments") / "index"
    return Searcher.build(
        folder, [Document(id="a", text="moths of Borneo")], word_model.retriever()
    )


def document(name, value):
    return Document(**({"id": "b", "text": "moths of Java"} | {name: value}))


CALLS = {
    "texts": lambda _, odd: Searcher.from_texts([odd]),
    "add": lambda searcher, odd: searcher.add(odd),
    "add one": lambda searcher, odd: searcher.add([odd]),
    "document id": lambda searcher, odd: searcher.add([document("id", odd)]),
    "document text": lambda searcher, odd: searcher.add([document("text", odd)]),
    "document title": lambda searcher, odd: searcher.add([document("title", odd)]),
    "delete": lambda searcher, odd: searcher.delete(odd),
    "delete one": lambda searcher, odd: searcher.delete([odd]),
    "store": lambda _, odd: Searcher(odd, lambda texts: texts),
    "encoder": lambda _, odd: TorchEncoder(odd),
    "detach": lambda _, odd: boolattn.detach(odd),
    "explain": lambda _, odd: boolattn.explain(odd, None, "moths"),
    "save": lambda _, odd: boolattn.save(odd, "nowhere"),
}


@pytest.mark.parametrize("call", CALLS)
def test_another_type_is_one_line(searcher, call):
    for odd in ODD:
        with pytest.raises(BoolattnError) as caught:
            CALLS[call](searcher, odd)
        assert "\n" not in str(caught.value)
    assert [hit.id for hit in searcher.search("moths").hits] == ["a"]


@pytest.mark.parametrize("name", FIELDS)
def test_settings_of_the_plugin(name):
    for odd in ODD:
        with suppress(BoolattnError):  # None, 3 and 1.5 suit some of them
            BoolAttnConfig(**{name: odd})
    with pytest.raises(BoolattnError, match=name):
        BoolAttnConfig(**{name: object()})


@pytest.fixture(scope="module")
def parts(searcher, tokenizer, tmp_path_factory):
    """What the calls below need: an encoder with the plug-in, towers, a folder."""

    class Parts:
        folder, own = tmp_path_factory.mktemp("parts"), searcher
        plain, encoder = (encoder_of(tokenizer) for _ in range(2))
        words = tokenizer

    boolattn.attach(Parts.encoder, BoolAttnConfig(gate="label", rank=4))
    Parts.towers = boolattn.build_towers(Parts.encoder, tokenizer=tokenizer, query_length=16)
    return Parts


def encoder_of(tokenizer):
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return BertModel(BertConfig(vocab_size=len(tokenizer), intermediate_size=16, **sizes)).eval()


def index(parts, name="index", **settings):
    own = [Document(id="a", text="moths")]
    return Searcher.build(parts.folder / name, own, parts.own.encoder, replace=True, **settings)


ROWS = [{"text": "moths"}]
DATA = Dataset(
    name="moths",
    documents=[Document(id="a", text="moths")],
    splits={"test": (Query(id="q", text="moths", gold=frozenset("a")),)},
)
PATH_CALLS = {
    "open": lambda own, odd: Searcher.open(odd, own.own.encoder),
    "build": lambda own, odd: Searcher.build(odd, DATA.documents, own.own.encoder),
    "model of an index": lambda own, odd: Searcher.build(odd, DATA.documents, "nowhere"),
    "load_model": lambda _, odd: load_model(odd),
    "parser of an index": lambda own, odd: Searcher.open(
        own.own.store.folder, own.own.encoder, parser=odd
    ),
    "parser of a store": lambda _, odd: Searcher(
        ArrayCollection(np.eye(1), ROWS), lambda texts: np.ones((len(texts), 1)), odd
    ),
    "save an index": lambda own, odd: own.own.save(odd),
    "load_parser": lambda _, odd: load_parser(odd),
    "Parser": lambda _, odd: Parser(odd),
    "load": lambda _, odd: boolattn.load(odd),
    "load_plugin": lambda own, odd: boolattn.load_plugin(own.plain, odd),
    "save": lambda own, odd: boolattn.save(own.encoder, odd),
    "save_plugin": lambda own, odd: boolattn.save_plugin(own.encoder, odd),
    "build_towers": lambda _, odd: boolattn.build_towers(odd),
    "save_towers": lambda own, odd: boolattn.save_towers(own.towers, odd),
    "TorchEncoder.load": lambda _, odd: TorchEncoder.load(odd),
    "folder of a data set": lambda _, odd: open_dataset("quest", DataOptions(folder=odd)),
    "read_beir": lambda _, odd: read_beir(odd),
    "write_beir": lambda _, odd: write_beir(odd, [], {}),
    "load_quest": lambda _, odd: load_quest(odd),
    "load_quest_intro": lambda _, odd: load_quest_intro(odd),
    "load_boolquestions": lambda _, odd: load_boolquestions("MSMARCO", odd),
    "read_passages": lambda _, odd: list(read_passages("MSMARCO", odd)),
    "read_questions": lambda _, odd: list(read_questions("MSMARCO", odd)),
}
NUMBER_CALLS = {
    "k": lambda own, odd: own.own.search("moths", odd),
    "segment_size": lambda own, odd: index(own, segment_size=odd),
    "batch_size": lambda own, odd: index(own, batch_size=odd),
    "passages": lambda own, odd: index(own, passages=odd),
    "query_length": lambda own, odd: boolattn.build_towers(
        own.plain, tokenizer=own.words, query_length=odd
    ),
    "n_documents": lambda _, odd: prepare(DATA, n_documents=odd),
    "n_queries": lambda _, odd: prepare(DATA, n_queries=odd),
    "seed": lambda _, odd: prepare(DATA, seed=odd),
    "steps": lambda _, odd: TrainSettings(max_steps=odd),
    "n_sentences": lambda _, odd: PretrainSettings(n_sentences=odd),
}
OTHER_CALLS = {
    "model=": lambda own, odd: index(own, model=odd),
    "vectors=": lambda own, odd: index(own, vectors=odd),
    "precision=": lambda own, odd: index(own, precision=odd),
    "words=": lambda own, odd: index(own, words=odd),
    "replace=": lambda own, odd: Searcher.build(
        own.folder / "index", DATA.documents, own.own.encoder, replace=odd
    ),
    "resume=": lambda own, odd: index(own, resume=odd),
    "encode=": lambda own, odd: index(own, encode=odd),
    "progress=": lambda own, odd: index(own, progress=odd),
    "verify=": lambda own, odd: Searcher.open(own.own.store.folder, own.own.encoder, verify=odd),
    "texts": lambda own, odd: Searcher.from_texts(odd, own.own.encoder),
    "id of a text": lambda own, odd: Searcher.from_texts(
        [{"text": "moths", "id": odd}], own.own.encoder
    ),
    "queries of a store": lambda _, odd: Searcher(
        ArrayCollection(np.eye(1), ROWS), lambda texts: np.ones((len(texts), 1)), None
    ).search(odd),
    "config": lambda own, odd: boolattn.attach(own.plain, odd),
    "card": lambda own, odd: boolattn.save_towers(own.towers, own.folder / "towers", card=odd),
    "towers": lambda own, odd: boolattn.save_towers(odd, own.folder / "towers"),
    "query_encoder": lambda _, odd: boolattn.query_encoder(odd),
    "texts to encode": lambda own, odd: boolattn.encode_queries(own.towers, odd, operators=[[]]),
    "operators": lambda own, odd: boolattn.encode_queries(own.towers, ["moths"], operators=odd),
    "encoder of a plug-in": lambda own, odd: boolattn.load_plugin(odd, own.folder),
    "explained text": lambda own, odd: boolattn.explain(own.encoder, own.words, odd),
    "tokenizer": lambda own, odd: boolattn.explain(own.encoder, odd, "moths"),
    "data set": lambda _, odd: open_dataset(odd),
    "options": lambda _, odd: open_dataset("taxa", odd),
    "benchmark": lambda _, odd: prepare(odd),
    "metric": lambda _, odd: parse_metric(odd),
    "mixture": lambda _, odd: list(generate(1, 0, odd)),
    "sentences": lambda _, odd: list(generate(odd, 0)),
    "share": lambda _, odd: Mixture(taxa=odd),
    "parse": lambda _, odd: parse_query(odd),
    "is_explicit": lambda _, odd: is_explicit(odd),
    "BM25": lambda _, odd: Bm25Ranker(odd),
    "endpoint": lambda _, odd: EmbeddingEndpoint(odd),
    "embed": lambda _, odd: CallableEncoder(odd),
    "embed operands": lambda _, odd: CallableEncoder(len, embed_operands=odd),
    "similarity": lambda _, odd: CallableEncoder(len, similarity=odd),
    "Qdrant": lambda _, odd: QdrantCollection(odd, "moths"),
    "Milvus": lambda _, odd: MilvusCollection(odd, "moths"),
    "Postgres": lambda _, odd: PostgresCollection(odd, "moths"),
}
#: Of no use to any of the calls above.
NOTHING = [*(b"moths", object(), np.zeros(3), torch.zeros(2), {3: 4}, [3], PureWindowsPath("a"))]


@pytest.mark.parametrize(
    ("call", "odd"),
    [
        *((PATH_CALLS[name], NO_PATHS) for name in PATH_CALLS),
        *((NUMBER_CALLS[name], NO_NUMBERS) for name in NUMBER_CALLS),
        *((OTHER_CALLS[name], NOTHING) for name in OTHER_CALLS),
    ],
    ids=[*PATH_CALLS, *NUMBER_CALLS, *OTHER_CALLS],
)
def test_paths_numbers_and_others(parts, monkeypatch, call, odd):
    monkeypatch.chdir(parts.folder)
    before = sorted(parts.folder.iterdir())
    for value in odd:
        with pytest.raises(BoolattnError) as caught:
            call(parts, value)
        assert "\n" not in str(caught.value)
    assert sorted(Path().resolve().iterdir()) == before
