from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from boolattn import BoolAttnConfig
from boolattn.encoder import build_towers, export, query_encoder, save_towers
from boolattn.encoder.export import QueryTower, export_query_tower
from boolattn.errors import ConfigError, MissingDataError, UnsupportedEncoderError
from boolattn.plugin import plugin_of

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

TEXTS = ["moths but not birds", "a and b", "plain words", "but not"]


@pytest.fixture
def towers(tiny_encoder, tokenizer):
    def build(gate, **options):
        config = BoolAttnConfig(gate=gate, rank=4)
        encoder = tiny_encoder(num_hidden_layers=1)
        model = build_towers(encoder, config, tokenizer=tokenizer, **options)
        plugin = plugin_of(query_encoder(model))
        # Large weights, so that a missing bias is visible.
        for part in query_encoder(model).backbone.encoder.layer[0].attention.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.data.mul_(8)
        if gate == "lexicon":
            # The test's tokenizer splits long cues into letters; tracing all of them is slow.
            lexicon = plugin.gate
            short = (lexicon.cues[:, 2:] < 0).all(1)
            lexicon.cues, lexicon.owners = lexicon.cues[short, :2], lexicon.owners[short]
        else:
            # AND is open; OR and NOT depend on the text.
            plugin.gate.outer.bias.data.copy_(torch.tensor([9.0, 0.0, 0.0]))
        return model

    return build


@pytest.mark.parametrize(
    ("gate", "options"),
    [("lexicon", {}), ("learned", {"pooling": "cls", "similarity": "dot"})],
)
def test_vectors_are_the_same_for_every_batch_and_length(towers, tmp_path, gate, options):
    model = towers(gate, **options)
    path = export_query_tower(model, tmp_path / "new" / "query.onnx")
    assert [p.name for p in path.parent.iterdir()] == ["query.onnx"]
    session = ort.InferenceSession(path)
    names = [value.name for value in session.get_inputs()]
    assert names == ["input_ids", "attention_mask"]
    for texts in (TEXTS, TEXTS[:1], ["x"], ["not " * 60, "or"], TEXTS * 5):
        features = model.preprocess(texts, task="query")
        inputs = {name: features[name].numpy() for name in names}
        [vectors] = session.run(["vectors"], inputs)
        expected = model.encode_query(texts, batch_size=64)
        assert abs(vectors - expected).max() < 1e-4
        is_boolean = any(word in " ".join(texts).split() for word in ("not", "or", "and"))
        moved = abs(vectors - model.encode_document(texts, batch_size=64)).max()
        assert bool(moved > 1e-3) is (is_boolean or gate == "learned")


def test_token_types_are_inputs_if_tokenizer_and_family_have_them(tiny_encoder, tokenizer):
    for family, has_types, expected in (("bert", True, 3), ("bert", False, 2), ("mpnet", True, 2)):
        names = ["input_ids", "attention_mask", *["token_type_ids"] * has_types]
        model = build_towers(tiny_encoder(family), tokenizer=tokenizer)
        model.tokenizer.model_input_names = names
        tower = QueryTower(model).eval()
        assert len(tower.input_names) == expected
        batch = [torch.ones(2, 5, dtype=torch.int64)] * expected
        assert tower(*batch).shape == (2, 32)


def test_a_constant_size_is_rejected(towers, tmp_path, monkeypatch):
    def fixed(_tower, _example, path, **_options):
        path.write_bytes(b"")
        inputs = [SimpleNamespace(shape=("batch", 8))]
        return SimpleNamespace(model=SimpleNamespace(graph=SimpleNamespace(inputs=inputs)))

    monkeypatch.setattr(torch.onnx, "export", fixed)
    with pytest.raises(UnsupportedEncoderError, match="made batch or length"):
        export_query_tower(towers("learned"), tmp_path / "query.onnx")
    assert not list(tmp_path.iterdir())


def test_the_verb_writes_a_file_or_says_what_is_wrong(towers, tmp_path, monkeypatch):
    import typer

    from boolattn.cli.train import export as verb

    app = typer.Typer()
    app.command()(verb)
    result = CliRunner().invoke(app, [str(tmp_path), str(tmp_path / "query.onnx")])
    assert isinstance(result.exception, MissingDataError)
    save_towers(towers("learned"), tmp_path / "model")
    seen = []
    monkeypatch.setattr(export, "export_query_tower", lambda model, out: seen.append(model) or out)
    result = CliRunner().invoke(app, [str(tmp_path / "model"), str(tmp_path / "query.onnx")])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == str(tmp_path / "query.onnx")
    assert type(query_encoder(seen[0])).__name__ == "BoolBertModel"


def test_wrong_arguments_are_rejected(towers, tmp_path, monkeypatch):
    model = towers("lexicon")
    with pytest.raises(ConfigError, match=r"named \*\.onnx; got 'query'"):
        export_query_tower(model, tmp_path / "query")
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(MissingDataError, match=r"pip install 'boolattn\[onnx\]'"):
        export_query_tower(model, tmp_path / "query.onnx")
