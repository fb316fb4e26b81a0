"""The query parser: trained, stored, exported, and used without torch."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from boolattn.checksums import write_manifest
from boolattn.encoder import parser as parser_module
from boolattn.encoder.export.folder import export_parser, stored_words
from boolattn.encoder.parser import ParserModel, make_parser_labels, parser_loss
from boolattn.encoders.int8 import quantise
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.query.parsed_query import ParserOutput, decode
from boolattn.query.parser import Parser, load_parser, open_tokenizer, run_graph
from boolattn.query.syntax import parse
from boolattn.training.parser import ParserTraining, best_threshold, main, train_parser
from experiments.labels import label_tree, parse_labelled, write_labelled_queries

TEXTS = ["moths or birds", "ferns", "films not cats of the moths", "books or not", ""]
WORDS = ("moths", "birds", "ferns", "films", "books", "cats")
FRAMES = (
    ("0", "<0|A>"),
    ("0 OR 1", "<0|A> or <1|B>"),
    ("0 AND NOT 1", "<0|A> not <1|B>"),
)


def _queries():
    found = []
    for a in WORDS:
        for b in WORDS:
            for c in WORDS:
                if len({a, b, c}) == 3:
                    for formula, frame in FRAMES:
                        for letter, word in zip("ABC", (a, b, c), strict=True):
                            frame = frame.replace(f"|{letter}>", f"|{word}>")
                        text, operands = parse_labelled(frame)
                        found.append(label_tree(text, parse(formula), operands))
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory, request):
    return tmp_path_factory.mktemp("base")


@pytest.fixture
def folder(base, tiny_encoder, tokenizer):
    """The folder of a trained parser, made once."""
    out = base / "trained"
    if not out.exists():
        torch.manual_seed(0)
        tiny_encoder(num_hidden_layers=1).save_pretrained(base / "encoder")
        tokenizer.backend_tokenizer.save(str(base / "encoder" / "tokenizer.json"))
        queries = _queries()
        rows = [("a", one) for one in queries] + [("held_out:a", one) for one in queries[::7]]
        write_labelled_queries(base / "queries.jsonl", rows)
        settings = ParserTraining(
            base=base / "encoder",
            data=base / "queries.jsonl",
            out=out,
            steps=60,
            batch=16,
            learning_rate=3e-3,
            head_rate=3e-3,
            freeze_embeddings=True,
        )
        report = train_parser(settings)
        (base / "report.json").write_text(json.dumps(report))
    return out


@pytest.fixture
def exported(folder, base):
    if not (base / "onnx").exists():
        export_parser(folder, base / "onnx", texts=TEXTS)
    return base / "onnx"


def test_training_learns_the_operands_and_freezes_what_it_should(folder, base):
    report = json.loads((base / "report.json").read_text())
    assert report["a"]["word_f1"] > 0.5
    assert report["a"]["left_alone"] > 0.9
    kept = json.loads((folder / "parser.json").read_text())
    assert kept["report"] == report
    start = load_file(base / "encoder" / "model.safetensors")["embeddings.word_embeddings.weight"]
    trained = ParserModel.load(folder).encoder.embeddings.word_embeddings.weight
    assert torch.equal(torch.tensor(start), trained)


def _torch_parses(folder):
    model, found = ParserModel.load(folder), []
    tokenizer = open_tokenizer(folder / "tokenizer.json", 128)
    for text in TEXTS:
        encoding = tokenizer.encode(text)
        ids = torch.tensor([encoding.ids])
        with torch.no_grad():
            logits = model(ids, torch.ones_like(ids))
        found.append(decode(logits, text, encoding.offsets, 0))
    return found


@pytest.mark.parametrize("rate", [0.0, 1e-2])
def test_a_trained_parser_is_trained_further(folder, base, tmp_path, rate):
    rates = {"learning_rate": rate, "head_rate": rate}
    train_parser(
        ParserTraining(
            base=folder,
            data=base / "queries.jsonl",
            out=tmp_path / "out",
            steps=2,
            batch=4,
            **rates,
        )
    )
    before, after = (ParserModel.load(own).state_dict() for own in (folder, tmp_path / "out"))
    is_same = all(torch.equal(before[name], value) for name, value in after.items())
    assert is_same == (rate == 0)


@pytest.mark.parametrize("mask", [0.0, 1.0])
def test_words_are_hidden_in_training_alone(folder, base, tmp_path, monkeypatch, mask):
    seen, forward = {True: set(), False: set()}, ParserModel.forward

    def watched(self, ids, attention):
        seen[self.training] |= set(ids[attention.bool()].tolist())
        return forward(self, ids, attention)

    monkeypatch.setattr(ParserModel, "forward", watched)
    files = {"base": folder, "data": base / "queries.jsonl", "out": tmp_path / "out"}
    train_parser(ParserTraining(**files, steps=2, batch=4, mask=mask))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = {tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]")}
    assert (seen[True] == special) == (mask == 1)
    assert tokenizer.token_to_id("[MASK]") not in seen[False]


def test_words_cannot_be_hidden_without_a_token_for_it(folder, base, tmp_path):
    shutil.copytree(base / "encoder", tmp_path / "encoder")
    path = tmp_path / "encoder" / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "[OTHER]"))
    files = {"base": path.parent, "data": base / "queries.jsonl", "out": tmp_path / "out"}
    with pytest.raises(ConfigError, match=r"has no \[MASK\]"):
        train_parser(ParserTraining(**files, steps=2, batch=4, mask=0.1))
    assert not (tmp_path / "out").exists()


def test_layers_of_a_trained_parser_cannot_be_chosen(folder, base, tmp_path):
    settings = ParserTraining(
        base=folder, data=base / "queries.jsonl", out=tmp_path / "out", layers="0"
    )
    with pytest.raises(ConfigError, match="is a trained parser"):
        train_parser(settings)


def test_the_exported_parser_agrees_with_torch(folder, exported):
    parser = load_parser(exported)
    found, expected = parser.parse(TEXTS), _torch_parses(folder)
    assert [one.parsed for one in found] == [one.parsed for one in expected]
    assert [one.confidence for one in found] == pytest.approx(
        [one.confidence for one in expected], abs=1e-3
    )
    assert any(one.parsed and not one.parsed.is_plain for one in found)
    assert parser.parse([]) == []
    with pytest.raises(ConfigError, match="must be a list of texts"):
        parser.parse("moths")


def test_the_last_parses_are_remembered(exported, monkeypatch):
    runs, parser = [], Parser(exported)
    monkeypatch.setattr(
        "boolattn.query.parser.run_graph",
        lambda *given: runs.append(given[2]) or run_graph(*given),
    )
    first = parser.parse(TEXTS)
    assert parser.parse(TEXTS) == first
    assert len(runs) == len(set(TEXTS))
    long = "moths of Borneo but not Sumatra " * 10
    assert parser.parse([long]) == parser.parse([long])
    assert len(runs) == len(set(TEXTS)) + 2


def test_a_damaged_or_missing_folder_is_named(exported, tmp_path):
    with pytest.raises(MissingDataError, match=r"no parser at .*no parser.json"):
        load_parser(tmp_path)
    values = json.loads((exported / "parser.json").read_text())
    for path in exported.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "parser.onnx").write_bytes(b"x")
    with pytest.raises(DataError, match=r"parser.onnx differs from parser.json"):
        Parser(tmp_path)
    (tmp_path / "parser.json").write_text(json.dumps(values | {"threshold": 0.1}))
    with pytest.raises(DataError, match=r"parser.json was changed: its checksum differs"):
        Parser(tmp_path)
    del values["checksum"]
    write_manifest(tmp_path / "parser.json", values | {"format": 9})
    with pytest.raises(DataError, match="has format 9"):
        Parser(tmp_path)


def test_word_vectors_of_an_encoder_are_found(folder, tmp_path):
    model = ParserModel.load(folder)
    values, scales = quantise(model.encoder.embeddings.word_embeddings.weight.detach().numpy(), 0)
    (tmp_path / "encoder").mkdir()
    tensors = {"x.word_quantized": values, "x.word_scale": scales, "y": values[:3]}
    save_file(tensors, tmp_path / "encoder" / "weights-0.safetensors")
    tokenizer = tmp_path / "encoder" / "tokenizer.json"
    tokenizer.write_bytes((folder / "tokenizer.json").read_bytes())
    found = stored_words(tmp_path / "encoder", tmp_path / "parser", values, folder)
    assert found == {
        "table": "../encoder/weights-0.safetensors",
        "values": "x.word_quantized",
        "scales": "x.word_scale",
        "tokenizer": "../encoder/tokenizer.json",
    }
    tokenizer.write_text("{}")
    assert "tokenizer" not in stored_words(tmp_path / "encoder", tmp_path, values, folder)
    assert stored_words(tmp_path / "encoder", tmp_path, values + 1, folder) == {}


def test_large_matrices_are_rounded_to_7_bits(folder, base, tmp_path, monkeypatch):
    monkeypatch.setattr(parser_module, "_MIN_VALUES", 512)
    torch.manual_seed(0)
    model = ParserModel.from_base(base / "encoder").eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.round_weights()
    after = {name: value.clone() for name, value in model.state_dict().items()}
    rounded = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert {"input.weight", "encoder.embeddings.word_embeddings.weight"} <= rounded
    for name, value in before.items():
        assert torch.allclose(value, after[name], atol=float(value.abs().max()) / 120), name
        assert name not in rounded or len(after[name][0].unique()) <= 129
    model.round_weights()
    model.save(tmp_path / "m", folder / "tokenizer.json")
    loaded = ParserModel.load(tmp_path / "m").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in after.items())


def test_the_loss_is_least_for_the_right_logits(tiny_encoder, monkeypatch):
    monkeypatch.setattr(parser_module, "N_SLOTS", 3)
    model = ParserModel(tiny_encoder())
    text, operands = parse_labelled("<0|moths> or <1|birds> not <2|ferns>")
    query = label_tree(text, parse("(0 OR 1) AND NOT 2"), operands)
    offsets = [(0, 0), (0, 5), (9, 14), (19, 24), (0, 0)]
    labels = make_parser_labels(query.parsed, offsets)
    assert labels.tags.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert labels.roles.tolist() == [1, 1, 2]
    batch = type(labels)(labels.tags[None].float(), labels.roles[None], labels.gaps[None])
    mask = torch.ones(1, 5)
    right = parser_module.ParserLogits(
        batch.tags * 40 - 20,
        torch.nn.functional.one_hot(batch.roles, 3) * 40.0,
        torch.nn.functional.one_hot(batch.gaps, 6) * 40.0,
    )
    assert parser_loss(right, batch, mask) < 1e-5
    ids = torch.ones(1, 5, dtype=torch.int64)
    assert parser_loss(model(ids, ids), batch, mask) > 1


def test_padding_changes_no_logit(folder):
    model = ParserModel.load(folder)
    ids = torch.tensor([[5, 9, 11, 6]])
    alone = model(ids, torch.ones_like(ids))
    padded = torch.nn.functional.pad(ids, (0, 3))
    mask = (torch.arange(7) < 4).long()[None]
    beside = model(padded, mask)
    for own, other in zip(alone, beside, strict=True):
        torch.testing.assert_close(own[:, :4], other[:, : own.shape[1]][:, :4], atol=1e-5, rtol=0)


def test_the_threshold_leaves_plain_queries_alone():
    plain, one, other = (query.parsed for query in _queries()[:3])
    assert plain.is_plain
    right = [(one, ParserOutput(one, 0.9)), (one, ParserOutput(one, 0.7))]
    assert best_threshold([right]) == 0.7
    # Of a query with operators a wrong tree is no worse than one operand; of a plain one it is.
    assert best_threshold([[*right, (one, ParserOutput(other, 0.8))]]) == 0.7
    wrong = [(plain, ParserOutput(other, 0.8)), (plain, ParserOutput(plain, 0.9))]
    assert best_threshold([right, [*wrong, wrong[0]]]) == 0.9
    # All sources count the same, however many queries they have.
    assert best_threshold([right, [*wrong, *[(plain, ParserOutput(plain, 0.9))] * 9]]) == 0.7
    assert best_threshold([]) == best_threshold([[]]) == 0.5


def test_wrong_arguments_are_one_line(base, folder, capsys, tmp_path):
    wrong = ["--base", str(base / "encoder"), "--data", str(base / "queries.jsonl")]
    assert main([*wrong, "--out", str(tmp_path / "x"), "--layers", "0,7"]) == 2
    assert "has no layer 7; it has 1, from 0" in capsys.readouterr().err
