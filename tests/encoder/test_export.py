from __future__ import annotations

import hashlib
import importlib
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import LayerNorm

from boolattn import BoolAttnConfig, TorchEncoder
from boolattn.cli import app
from boolattn.encoder.export import graphs as export_graphs
from boolattn.encoder.export.folder import export_model
from boolattn.encoder.export.graphs import TowerGraph, write_graph
from boolattn.encoder.towers import build_towers, query_encoder, save_towers
from boolattn.encoders.int8 import write_torch
from boolattn.encoders.models import load_model, torch_folder
from boolattn.encoders.onnx_encoder import OnnxEncoder
from boolattn.errors import ConfigError, MissingDataError, UnsupportedEncoderError
from boolattn.plugin.install import plugin_of
from tests.conftest import trained

DOT = {"pooling": "cls", "similarity": "dot"}
TEXTS = ["moths but not birds", "a and b", "plain words", "but not", "x", "not " * 60]


@pytest.fixture
def towers(tiny_encoder, tokenizer):
    def build(gate, is_trained=True, **options):
        encoder = tiny_encoder(num_hidden_layers=1)
        config = BoolAttnConfig(gate=gate, rank=4) if gate else None
        model = build_towers(encoder, config, tokenizer=tokenizer, **options)
        if not gate:
            return model
        plugin = plugin_of(query_encoder(model))
        if is_trained:
            trained(plugin)
        # Large weights, so that a missing bias is visible.
        for part in query_encoder(model).backbone.encoder.layer[0].attention.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.data.mul_(8)
        if gate == "lexicon":
            # The test's tokenizer splits long cues into letters; tracing all of them is slow.
            lexicon = plugin.gate
            short = (lexicon.cues[:, 2:] < 0).all(1)
            lexicon.cues, lexicon.owners = lexicon.cues[short, :2], lexicon.owners[short]
            shape = [*lexicon.cues.shape, len(lexicon.word_flags)]
            query_encoder(model).config.lexicon_shape = shape
        else:
            # AND is open, OR is not; NOT depends on the text.
            plugin.gate.outer.bias.data.copy_(torch.tensor([9.0, -9.0, 0.0]))
        return model

    return build


@pytest.fixture
def saved(towers, tmp_path):
    def save(gate, **options):
        save_towers(towers(gate, **options), tmp_path / "model")
        return tmp_path / "model"

    return save


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """Traced graphs by the model's weights and the task: tracing takes seconds."""
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture
def traced_once(graphs, monkeypatch):
    def write(graph, path):
        weights = b"".join(value.numpy().tobytes() for value in graph.state_dict().values())
        traced = graphs / f"{hashlib.sha256(weights).hexdigest()}-{graph.task}.onnx"
        if not traced.exists():
            write_graph(graph, traced)
        shutil.copyfile(traced, path)

    monkeypatch.setattr(export_graphs, "write_graph", write)


def _far(a, b):
    return float(np.abs(a - b).max())


@pytest.mark.parametrize(
    ("gate", "options"),
    [
        pytest.param("lexicon", {}, marks=pytest.mark.slow),
        ("learned", DOT),
    ],
)
@pytest.mark.usefixtures("traced_once")
def test_every_graph_gives_the_vectors_of_torch(saved, tmp_path, gate, options):
    source = saved(gate, **options)
    command = ["export", str(source), str(tmp_path / "out"), "--float32"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "agreement with torch: document cosine 1.0000\n" in result.stdout
    ours, theirs = load_model(str(tmp_path / "out")), TorchEncoder.load(source)
    assert isinstance(ours, OnnxEncoder)
    assert (ours.fingerprint, ours.similarity) == (theirs.fingerprint, theirs.similarity)
    assert torch_folder(source) == source
    assert TorchEncoder.load(tmp_path / "out").fingerprint == theirs.fingerprint
    assert ours.gate == gate
    size = np.abs(theirs.encode_queries(TEXTS)).max()
    for name in ("encode_queries", "encode_operands", "encode_documents"):
        assert _far(getattr(ours, name)(TEXTS), getattr(theirs, name)(TEXTS)) < 1e-4 * size
    # The query graph has the bias; the operand graph has none.
    moved = np.abs(ours.encode_queries(TEXTS) - ours.encode_operands(TEXTS)).max(1)
    is_boolean = [gate == "learned" or "not" in text or "and" in text for text in TEXTS]
    assert (moved > 1e-3 * size).tolist() == is_boolean
    # No head is moved.
    document = onnx.load(tmp_path / "out" / "document.onnx").graph.node
    assert "Transpose" not in {node.op_type for node in document}


@pytest.mark.slow
def test_an_untrained_plugin_is_exported_without_effect(saved, tmp_path):
    export_model(saved("learned", is_trained=False), tmp_path / "out", int8=False)
    ours = OnnxEncoder.load(tmp_path / "out")
    assert len(set(ours.manifest.graphs.values())) == 2
    assert _far(ours.encode_queries(TEXTS), ours.encode_operands(TEXTS)) < 1e-6


@pytest.mark.slow
def test_separate_towers_have_an_operand_graph(saved, tmp_path):
    source = saved("", is_shared=False)
    export_model(source, tmp_path / "out", int8=False)
    ours, theirs = OnnxEncoder.load(tmp_path / "out"), TorchEncoder.load(source)
    assert len(set(ours.manifest.graphs.values())) == 3
    assert _far(ours.encode_operands(TEXTS), theirs.encode_operands(TEXTS)) < 1e-4


@pytest.mark.usefixtures("traced_once")
def test_rounded_weights_are_close_and_serve_torch_too(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(export_graphs, "MIN_VALUES", 512)
    monkeypatch.setattr(export_graphs, "MIN_TABLE", 1024)
    source = saved("learned", **DOT)
    manifest = export_model(source, tmp_path / "a")
    assert manifest.bits == 7
    assert 0.98 < manifest.agreement["document_cosine"] < 1
    assert 0.98 < manifest.agreement["query_cosine"] < 1
    assert set(manifest.graphs.values()) == {"document.onnx", "query.onnx"}
    rounded = OnnxEncoder.load(tmp_path / "a")
    # A vector does not depend on the texts beside it.
    together = rounded.encode_documents(TEXTS)
    assert np.array_equal(together[:1], rounded.encode_documents(TEXTS[:1]))
    # Back to torch: the same tensors, rounded.
    write_torch(tmp_path / "a", tmp_path / "b")
    files = [p.relative_to(source) for p in source.rglob("*.safetensors")]
    n_rounded = 0
    for file in files:
        before, after = load_file(source / file), load_file(tmp_path / "b" / file)
        assert before.keys() == after.keys()
        for name, value in before.items():
            assert torch.allclose(value, after[name], atol=float(value.abs().max()) / 120), name
            n_rounded += not torch.equal(value, after[name])
    assert 0 < n_rounded < 10


def test_a_constant_size_is_rejected_and_nothing_is_left(saved, tmp_path, monkeypatch):
    def fixed(_tower, _example, path, **_options):
        path.write_bytes(b"")
        inputs = [SimpleNamespace(shape=("batch", 8))]
        return SimpleNamespace(model=SimpleNamespace(graph=SimpleNamespace(inputs=inputs)))

    source = saved("learned")
    monkeypatch.setattr(torch.onnx, "export", fixed)
    with pytest.raises(UnsupportedEncoderError, match="made batch or length"):
        export_model(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_modules_that_cannot_be_exported_are_named(towers):
    model = SentenceTransformer(modules=[*towers("").children(), LayerNorm(32)])
    with pytest.raises(UnsupportedEncoderError, match="cannot export a LayerNorm module"):
        TowerGraph(model, "query")


def test_wrong_arguments_are_rejected(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="names a file; name a folder"):
        export_model(tmp_path, tmp_path / "query.onnx")
    monkeypatch.setattr("boolattn.files.find_spec", lambda name: None)
    with pytest.raises(MissingDataError, match=r"export needs onnx; .*boolattn\[train\]"):
        importlib.reload(sys.modules["boolattn.encoder.export"])


def test_the_verb_says_what_is_wrong(tmp_path):
    result = CliRunner().invoke(app, ["export", str(tmp_path), str(tmp_path / "out")])
    assert isinstance(result.exception, MissingDataError)
