"""peft: the plug-in trained whole, LoRA on towers, and what cannot be saved is refused."""

import pytest
import torch
from sentence_transformers import SentenceTransformer

from boolattn import BoolAttnConfig, attach, detach, load, save
from boolattn.encoder.towers import build_towers, query_encoder, save_towers
from boolattn.errors import ConfigError
from boolattn.plugin.install import plugin_of
from tests.conftest import attach_trained

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

OPEN = {"operators": [["and"], ["not"], ["or"]]}
LORA = {"target_modules": ["query", "value"], "r": 2}
TEXTS = ["moths of Borneo but not Sumatra", "moths"]


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_plugin_is_trained_saved_and_loaded(tiny_encoder, batch, tmp_path, is_trained):
    encoder = tiny_encoder()
    torch.manual_seed(1)
    (attach_trained if is_trained else attach)(encoder)
    model = peft.get_peft_model(encoder, peft.LoraConfig(modules_to_save=["boolattn"], **LORA))
    with torch.no_grad():
        before = model(**batch, **OPEN).last_hidden_state
        closed = model(**batch).last_hidden_state
    assert torch.equal(before, closed) != is_trained
    plugin = plugin_of(model)
    optimizer = torch.optim.SGD(plugin.parameters(), lr=1.0)
    (model(**batch, **OPEN).last_hidden_state * torch.randn(32)).sum().backward()
    assert all(p.grad is not None for n, p in plugin.named_parameters())
    optimizer.step()
    with torch.no_grad():
        after = model(**batch, **OPEN).last_hidden_state
        assert torch.equal(model(**batch).last_hidden_state, closed)
    assert (after - before).abs().max() > 1e-4
    with pytest.raises(ConfigError, match=r"adapters of peft; merge them"):
        save(model, tmp_path / "refused")
    with pytest.raises(ConfigError, match=r"merge_and_unload\(\) it before detach"):
        detach(model)
    model.save_pretrained(tmp_path / "adapter")
    other = tiny_encoder()
    attach(other)
    other = peft.PeftModel.from_pretrained(other, tmp_path / "adapter").eval()
    with torch.no_grad():
        assert torch.equal(other(**batch, **OPEN).last_hidden_state, after)
        merged = other.merge_and_unload()
        save(merged, tmp_path / "merged")
        got = load(tmp_path / "merged").eval()(**batch, **OPEN).last_hidden_state
    torch.testing.assert_close(got, after)


@pytest.mark.parametrize("is_method", [False, True])
def test_lora_on_towers_is_merged_or_refused(tiny_encoder, tokenizer, tmp_path, is_method):
    config = BoolAttnConfig(gate="lexicon", rank=4)
    model = build_towers(tiny_encoder(), config, tokenizer=tokenizer)
    save_towers(model, tmp_path / "base")
    before = model.encode_query(TEXTS)
    lora = peft.LoraConfig(init_lora_weights=False, **LORA)
    if is_method:
        model.add_adapter(lora)
    else:
        adapted = peft.get_peft_model(query_encoder(model), lora).eval()
    after = model.encode_query(TEXTS)
    assert abs(after - before).max() > 1e-3
    for write in (model.save_pretrained, lambda folder: save_towers(model, folder)):
        with pytest.raises(ConfigError, match="adapters of peft; merge them"):
            write(str(tmp_path / "refused"))
    if is_method:
        return
    # The adapter alone, on a model that is loaded again.
    adapted.save_pretrained(tmp_path / "adapter")
    other = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    peft.PeftModel.from_pretrained(query_encoder(other), tmp_path / "adapter").eval()
    assert (other.encode_query(TEXTS) == after).all()
    # Merged, as an ordinary model.
    adapted.merge_and_unload()
    save_towers(model, tmp_path / "merged")
    merged = SentenceTransformer(str(tmp_path / "merged"), device="cpu")
    assert abs(merged.encode_query(TEXTS) - after).max() < 1e-5
