import os
import re
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer

import boolattn
from boolattn import BoolAttnConfig, attach
from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.encoder.torch_encoder import encode_documents, encode_queries
from boolattn.encoder.towers import Card, build_towers, query_encoder, save_towers, settings_of
from boolattn.errors import ConfigError, DataError, GateError, MissingDataError
from boolattn.plugin.install import plugin_of
from tests.conftest import TEXTS, trained

LEXICON = BoolAttnConfig(gate="lexicon", rank=4)
PLAIN_TEXTS = ["moths of borneo", "large beetles"]
BOOLEAN = list(TEXTS)


@pytest.fixture
def plain(tiny_encoder, tokenizer, tmp_path):
    """A SentenceTransformer of the same encoder, built without our code."""

    def make(pooling="mean", similarity="cosine"):
        tiny_encoder().save_pretrained(tmp_path / "plain")
        tokenizer.save_pretrained(tmp_path / "plain")
        parts = [Transformer(str(tmp_path / "plain")), Pooling(32, pooling)]
        return SentenceTransformer(modules=parts + [Normalize()] * (similarity == "cosine"))

    return make


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize(("pooling", "similarity"), [("mean", "cosine"), ("cls", "dot")])
def test_documents_and_plain_queries_equal_the_plain_model(
    tiny_encoder, tokenizer, plain, is_shared, pooling, similarity
):
    options = {"is_shared": is_shared, "pooling": pooling, "similarity": similarity}
    model = trained(build_towers(tiny_encoder(), LEXICON, tokenizer=tokenizer, **options))
    reference = plain(pooling, similarity)
    expected = reference.encode(BOOLEAN)
    assert (model.encode_document(BOOLEAN) == expected).all()
    assert (model.encode(BOOLEAN) == expected).all()  # without a task: a document
    assert (model.encode_query(PLAIN_TEXTS) == reference.encode(PLAIN_TEXTS)).all()
    assert (abs(model.encode_query(BOOLEAN) - expected).max(1) > 1e-5).all()
    read = settings_of(model)
    assert (read.is_shared, read.pooling, read.similarity) == (is_shared, pooling, similarity)
    assert model.similarity_fn_name == similarity


def test_a_text_without_a_task_is_a_document(tiny_encoder, tokenizer):
    model = trained(build_towers(tiny_encoder(), LEXICON, tokenizer=tokenizer, is_shared=False))
    own = model[0].sub_modules["document"][0].model.embeddings.word_embeddings.weight
    own.data.mul_(-1)  # as separate weights differ after training
    assert (model.encode(BOOLEAN) == model.encode_document(BOOLEAN)).all()
    assert not (model.encode(BOOLEAN) == model.encode_query(BOOLEAN)).any(1).all()


def test_towers_without_plugin(tiny_encoder, tokenizer, plain):
    model = build_towers(tiny_encoder(), None, tokenizer=tokenizer)
    expected = plain().encode(BOOLEAN)
    assert (model.encode_query(BOOLEAN) == expected).all()
    assert (model.encode_document(BOOLEAN) == expected).all()
    with pytest.raises(GateError, match="has no BoolAttn"):
        encode_queries(model, BOOLEAN, operators=[["not"]] * 4)


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_saved_folder_is_loaded_bit_for_bit(tiny_encoder, tokenizer, tmp_path, is_shared):
    model = trained(build_towers(tiny_encoder(), LEXICON, tokenizer=tokenizer, is_shared=is_shared))
    folder = tmp_path / "model"
    for _ in range(2):  # a second save replaces the first
        save_towers(model, folder)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert len(list(folder.rglob("*.safetensors"))) == (1 if is_shared else 2)
    named = (folder / "modules.json").read_text() + (folder / "router_config.json").read_text()
    types = re.findall(r"\"([\w.]+\.[A-Z]\w+)\"", named)
    assert types
    assert all(name.startswith("sentence_transformers.") for name in types)  # no trust_remote_code
    other = SentenceTransformer(str(folder))
    assert settings_of(other) == settings_of(model)
    assert (other.encode_query(BOOLEAN) == model.encode_query(BOOLEAN)).all()
    assert (other.encode_document(BOOLEAN) == model.encode_document(BOOLEAN)).all()
    # transformers loads the query encoder from the same folder.
    encoder = AutoModel.from_pretrained(folder)
    assert isinstance(encoder, BoolBertModel)
    batch = AutoTokenizer.from_pretrained(folder)(BOOLEAN, return_tensors="pt", padding=True)
    with torch.no_grad():
        hidden = encoder(**batch).last_hidden_state
        assert torch.equal(hidden, query_encoder(model)(**batch).last_hidden_state)


def test_shared_weights_are_saved_once(tiny_encoder, tokenizer, tmp_path):
    model = trained(build_towers(tiny_encoder(), LEXICON, tokenizer=tokenizer))
    save_towers(model, tmp_path / "model")
    assert len(list((tmp_path / "model").rglob("*.safetensors"))) == 1
    other = SentenceTransformer(str(tmp_path / "model"))
    assert settings_of(other).is_shared
    assert (other.encode_document(BOOLEAN) == model.encode_document(BOOLEAN)).all()


def test_a_failed_save_keeps_the_previous_one(tiny_encoder, tokenizer, tmp_path, monkeypatch):
    model = trained(build_towers(tiny_encoder(), LEXICON, tokenizer=tokenizer))
    save_towers(model, tmp_path / "model")
    expected = model.encode_query(BOOLEAN)

    def full_disk(*_args, **_options):
        raise OSError(28, os.strerror(28))

    plugin_of(query_encoder(model)).operators.data.add_(1)
    monkeypatch.setattr(Pooling, "save", full_disk)
    with pytest.raises(DataError, match="No space left"):
        save_towers(model, tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert (SentenceTransformer(str(tmp_path / "model")).encode_query(BOOLEAN) == expected).all()


def test_labels_override_the_gate(tiny_encoder, tokenizer, monkeypatch):
    monkeypatch.setattr("boolattn.encoder.torch_encoder._QUERIES_AT_ONCE", 4)
    model = trained(build_towers(tiny_encoder(), LEXICON, tokenizer=tokenizer))
    texts = [*BOOLEAN, *PLAIN_TEXTS]
    by_gate = model.encode_query(texts, convert_to_tensor=True)
    bare = model.encode_document(texts, convert_to_tensor=True)
    labels = [["not"], ["and", "not"], ["not"], [], ["or"], []]
    given = encode_queries(model, texts, operators=labels)
    assert given.shape == by_gate.shape
    changed = (given - bare).abs().amax(1) > 1e-6
    assert changed.tolist() == [bool(names) for names in labels]
    torch.testing.assert_close(given[0], by_gate[0])  # the gate agrees on the first
    assert encode_queries(model, [], operators=[]).shape == (0, 32)
    with pytest.raises(GateError, match="got 6 texts and operators for 1"):
        encode_queries(model, texts, operators=[["not"]])


def test_each_route_truncates_to_its_length(tiny_encoder, tokenizer):
    model = build_towers(
        tiny_encoder(), LEXICON, tokenizer=tokenizer, query_length=5, document_length=9
    )
    long = ["and or not " * 20]
    for task, length in (("query", 5), ("document", 9), (None, 9)):
        assert model.preprocess(long, task=task)["input_ids"].shape == (1, length)


@pytest.mark.parametrize("is_shared", [True, False])
def test_gradients_reach_both_towers_and_the_plugin(tiny_encoder, tokenizer, is_shared):
    model = trained(build_towers(tiny_encoder(), LEXICON, tokenizer=tokenizer, is_shared=is_shared))
    model.train()
    plugin = plugin_of(query_encoder(model))
    for task, reaches in (("document", False), ("query", True)):
        model.zero_grad()
        features = model.preprocess(BOOLEAN, task=task)
        vectors = model(features, task=task)["sentence_embedding"]
        (vectors @ torch.arange(32.0)).sum().backward()
        assert (plugin.operators.grad is not None) is reaches
        word = query_encoder(model).get_input_embeddings().weight
        assert (word.grad is not None) is (reaches or is_shared)


@pytest.mark.parametrize("kind", ["attached", "plugin folder", "bool bert", "bool bert folder"])
def test_an_encoder_with_a_plugin_keeps_it(tiny_encoder, tokenizer, tmp_path, caplog, kind):
    encoder = tiny_encoder()
    attach(encoder, LEXICON, tokenizer=tokenizer)
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    source = encoder
    if kind == "plugin folder":
        source = tmp_path / "plugin"
        boolattn.save(encoder, source, tokenizer=tokenizer)
    if kind.startswith("bool bert"):
        source = BoolBertModel.wrap(encoder)
    if kind == "bool bert folder":
        source.save_pretrained(tmp_path / "bert")
        tokenizer.save_pretrained(tmp_path / "bert")
        source = tmp_path / "bert"
    given = None if kind.endswith("folder") else tokenizer
    model = build_towers(source, tokenizer=given, is_shared=kind == "attached")
    assert "LOAD REPORT" not in caplog.text  # no weight was missing or left over
    mine, its = plugin_of(encoder).state_dict(), plugin_of(query_encoder(model)).state_dict()
    assert all(torch.equal(mine[name], its[name]) for name in mine)
    batch = tokenizer(BOOLEAN, return_tensors="pt", padding=True)
    with torch.no_grad():
        expected = encoder(**batch).last_hidden_state
        assert torch.equal(query_encoder(model)(**batch).last_hidden_state, expected)
    after = encoder.state_dict()
    assert before.keys() == after.keys()
    documents = [name for name in model.state_dict() if "sub_modules.document" in name]
    assert any("boolattn" in name for name in documents) is (kind == "attached")
    with pytest.raises(ConfigError, match="other settings"):
        build_towers(source, BoolAttnConfig(rank=2), tokenizer=given)


def test_the_given_encoder_is_not_changed(tiny_encoder, tokenizer):
    encoder = tiny_encoder(attention="eager")
    model = trained(build_towers(encoder, LEXICON, tokenizer=tokenizer))
    assert not hasattr(encoder, "boolattn")
    assert encoder.config._attn_implementation == "eager"
    assert query_encoder(model).backbone.config._attn_implementation == "boolattn_eager"


def test_wrong_settings_are_rejected(tiny_encoder, tokenizer, plain):
    for options, message in (
        ({"pooling": "max"}, "pooling must be one of mean, cls; got 'max'"),
        ({"similarity": "cos"}, "similarity must be one of cosine, dot"),
        ({"query_length": 2}, "query_length must be at least 3"),
        ({"document_length": 601}, "takes at most 600 tokens; got a length of 601"),
        ({"poolnig": "mean"}, "has no 'poolnig'"),
    ):
        with pytest.raises(ConfigError, match=message):
            build_towers(tiny_encoder(), LEXICON, tokenizer=tokenizer, **options)
    with pytest.raises(ConfigError, match="needs its tokenizer"):
        build_towers(tiny_encoder(), LEXICON)
    with pytest.raises(ConfigError, match="no two towers"):
        query_encoder(plain())
    for nowhere in (Path("nowhere"), "/no/where", "no/such/place"):
        with pytest.raises(MissingDataError, match=r"holds no config\.json"):
            build_towers(nowhere, LEXICON, tokenizer=tokenizer)


def test_model_card_and_its_example(tiny_encoder, tokenizer, tmp_path, monkeypatch, capsys):
    config = BoolAttnConfig(gate="lexicon", rank=4, variant="paper")
    model = build_towers(tiny_encoder(), config, tokenizer=tokenizer, is_shared=False)
    card = Card(base="tiny/encoder", licence="mit", data="taxa | wordings", command="boolattn x")
    save_towers(model, tmp_path / "model", card=card)
    text = (tmp_path / "model" / "README.md").read_text()
    for line in (
        "license: mit",
        "| base encoder | tiny/encoder |",
        "| BoolAttn | paper variant in the query encoder; gate: lexicon |",
        "| weights | separate for each tower |",
        "| training data | taxa \\| wordings |",
        "boolattn x",
    ):
        assert line in text
    [example] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert "tensor([[" in capsys.readouterr().out
    save_towers(build_towers(tiny_encoder(), tokenizer=tokenizer), tmp_path / "plain")
    text = (tmp_path / "plain" / "README.md").read_text()
    assert "| BoolAttn | none |" in text
    assert "| base encoder | unknown |" in text


def test_the_examples_of_the_page_run(tiny_encoder, tokenizer, tmp_path, monkeypatch, capsys):
    for part in (tiny_encoder(), tokenizer):  # in the place of MiniLM, to be fast
        part.save_pretrained(tmp_path / "tiny")
    monkeypatch.setattr("boolattn.encoders.models.minilm_folder", lambda: tmp_path / "tiny")
    page = Path(__file__).parents[2] / "docs" / "models.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, str(page), "exec"), {})
    assert "tensor([[" in capsys.readouterr().out


@pytest.mark.gpu
def test_documents_on_a_gpu_are_those_in_float32(tiny_encoder, tokenizer):
    """In half precision; what overflows is encoded again."""
    encoder = tiny_encoder()
    texts = ["moths", "", "a text that is much too long for its tower " * 20, *TEXTS]
    for factor in (1.0, 1e6):
        # Above float16's largest number, 65504; the next layer scales it back.
        encoder.encoder.layer[0].intermediate.dense.bias.data.fill_(factor)
        encoder.encoder.layer[0].output.dense.weight.data.div_(factor)
        towers = build_towers(encoder, tokenizer=tokenizer, document_length=40).cuda()
        got = encode_documents(towers, texts)
        expected = towers.encode_document(texts, convert_to_tensor=True)
        torch.testing.assert_close(got, expected, atol=1e-3, rtol=0)
        assert got.dtype == torch.float32
