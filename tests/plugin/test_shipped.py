"""The plug-ins that come with the package: trained, small, and for two encoders alone."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import boolattn
from boolattn.encoders.models import minilm_folder, shipped_model
from boolattn.errors import ConfigError, PluginMismatchError
from boolattn.plugin.explain import explain

TEXT = "moths of Borneo but not Sumatra"
SOURCES = {"bge-small-general": lambda: shipped_model() / "query_0_Transformer"}
SOURCES["all-minilm-l6-v2"] = minilm_folder


@pytest.fixture(scope="module", params=SOURCES)
def model(request):
    source = SOURCES[request.param]()
    encoder = AutoModel.from_pretrained(source, local_files_only=True).eval()
    return encoder, AutoTokenizer.from_pretrained(source, local_files_only=True)


def vectors(encoder, tokenizer, text):
    with torch.no_grad():
        return encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state


def test_a_text_changes_only_where_it_has_an_operator(model):
    encoder, tokenizer = model
    texts = ["moths of Borneo", TEXT]
    before = [vectors(encoder, tokenizer, text) for text in texts]
    boolattn.attach(encoder, "shipped")
    try:
        after = [vectors(encoder, tokenizer, text) for text in texts]
        seen = explain(encoder, tokenizer, TEXT)
    finally:
        boolattn.detach(encoder)
    assert torch.equal(after[0], before[0])
    assert (after[1] - before[1]).abs().max() > 1e-3
    tokens, operator = seen.tokens, seen.operators.index("not")
    cues = {token for token, p in zip(tokens, seen.cue[operator], strict=True) if p > 0.5}
    assert "not" in cues
    assert cues <= {"but", "not"}
    scope = seen.scope.mean(0)[operator]
    assert scope[tokens.index("sumatra")] > 0.5 > scope[tokens.index("borneo")]
    assert seen.bias[:, operator].any()


def test_another_encoder_of_the_same_size_is_refused(model):
    encoder, _ = model
    other = AutoModel.from_config(encoder.config)
    with pytest.raises(PluginMismatchError, match="bge-small-general"):
        boolattn.attach(other, "shipped")
    assert not hasattr(other, "boolattn")


def test_other_names_are_refused(tiny_encoder):
    encoder = tiny_encoder("bert")
    with pytest.raises(ConfigError, match="shipped"):
        boolattn.attach(encoder, "shiped")
    with pytest.raises(PluginMismatchError, match="only for"):
        boolattn.attach(encoder, "shipped")


def test_the_files_are_small():
    folder = Path(boolattn.__file__).parent / "models" / "boolattn"
    sizes = [path.stat().st_size for path in folder.rglob("*.safetensors")]
    assert len(sizes) == len(SOURCES)
    assert max(sizes) < 2_000_000
