"""Documents without padding: the vectors and gradients of padded batches."""

import pytest
import torch

from boolattn.encoder.towers import build_towers, tower_of
from boolattn.plugin.backend import BACKENDS
from boolattn.training import retrieval
from boolattn.training.launch import make_steps, make_towers
from boolattn.training.loop import RunFolder
from boolattn.training.retrieval import RetrievalTraining
from boolattn.training.tower_pass import TowerPass, can_pack, encode_packed
from tests.conftest import trained
from tests.training.test_graphs import quiet


def batches(preset, corpus):
    """Return the documents of one step, padded and packed."""
    steps = make_steps(preset, corpus)
    padded = steps[0]
    steps.chunk = 0
    return padded, steps[0]


def compare(towers, both, device="cpu", *, is_half=False):
    """Return vectors and gradients of both forms."""
    found = []
    for batch in both:
        towers.zero_grad()
        documents = [{n: v.to(device) for n, v in part.items()} for part in batch["documents"]]
        with torch.autocast(device, torch.bfloat16, enabled=is_half):
            vectors = TowerPass(towers).encode_documents(documents, batch["places"].to(device))
        weight = torch.linspace(-1, 1, vectors.numel(), device=device).view_as(vectors)
        (vectors * weight).sum().backward()
        grads = {n: p.grad.clone() for n, p in towers.named_parameters() if p.grad is not None}
        found.append((vectors.detach().clone(), grads))
    return found


@pytest.mark.parametrize("change", ["", "use_plugin=false", "pooling=cls", "is_shared=false"])
def test_packed_documents_give_the_same_vectors_and_gradients(preset, corpus, change):
    preset = preset(*([f"model.{change}"] if change else []))
    towers = quiet(trained(make_towers(preset)).cpu())
    padded, packed = batches(preset, corpus)
    assert len(padded["documents"]) > 1
    assert len(packed["documents"]) == 1
    expected, found = compare(towers, (padded, packed))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_text_does_not_see_its_neighbours(preset, corpus):
    preset = preset()
    towers = quiet(trained(make_towers(preset)).cpu())
    _, batch = batches(preset, corpus)
    [features] = batch["documents"]
    places = batch["places"]
    before = TowerPass(towers).encode_documents([features], places)
    changed = {name: value.clone() for name, value in features.items()}
    start, end = changed["starts"][3:5].tolist()
    changed["input_ids"][start:end] = changed["input_ids"][start]
    after = TowerPass(towers).encode_documents([changed], places)
    others = [row for row in range(len(places)) if row != 3]
    torch.testing.assert_close(after[others], before[others], atol=1e-6, rtol=0)
    assert (after[3] - before[3]).abs().max() > 1e-3


def test_attention_dropout_acts(preset, corpus):
    preset = preset()
    towers = quiet(trained(make_towers(preset)).cpu())
    _, batch = batches(preset, corpus)
    documents, places = batch["documents"], batch["places"]
    plain, again = (TowerPass(towers).encode_documents(documents, places) for _ in range(2))
    assert torch.equal(plain, again)
    for module in towers.modules():
        if type(module).__name__ == "BertSelfAttention":
            module.dropout.p = 0.5
    dropped = TowerPass(towers).encode_documents(documents, places)
    assert not torch.allclose(plain, dropped, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "capability", "changes"),
    [
        ("bert", (8, 0), {}),
        ("electra", (9, 0), {}),
        ("bert", None, {}),  # a CPU
        ("bert", (7, 5), {}),
        ("roberta", (9, 0), {}),
        ("modernbert", (9, 0), {}),
        ("bert", (9, 0), {"attention": "eager"}),
        ("bert", (9, 0), {"num_attention_heads": 8}),
    ],
)
def test_what_packs(tiny_encoder, tokenizer, monkeypatch, family, capability, changes):
    encoder = tiny_encoder(family, **changes)
    towers = build_towers(encoder, tokenizer=tokenizer).cpu()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(type(encoder), "device", torch.device("cuda" if capability else "cpu"))
    is_known = family in ("bert", "electra") and not changes
    assert can_pack(towers) is bool(is_known and capability and capability >= (8, 0))


def test_a_cpu_pads(preset, corpus, tmp_path):
    towers = trained(make_towers(preset())).cpu()
    steps = make_steps(preset(chunk=0), corpus)
    RetrievalTraining(preset(chunk=0), towers, steps, RunFolder(tmp_path))
    assert steps.chunk == 64


def test_a_saved_model_names_no_attention_of_ours(preset, corpus, tmp_path):
    preset = preset("model.use_plugin=false")
    towers = trained(make_towers(preset)).cpu()
    _, packed = batches(preset, corpus)
    TowerPass(towers).encode_documents(packed["documents"], packed["places"])
    towers.save(str(tmp_path / "model"))
    written = [path.read_text("utf-8") for path in (tmp_path / "model").rglob("*.json")]
    assert written
    assert not [text for text in written if "boolattn" in text]


@pytest.mark.parametrize(("chunk", "used"), [(0, 0), (5, 5)])
def test_a_training_packs_where_it_can(preset, corpus, monkeypatch, tmp_path, chunk, used):
    preset = preset(chunk=chunk, use_bf16=True)
    monkeypatch.setattr(retrieval, "can_pack", lambda towers: True)
    towers, steps = trained(make_towers(preset)).cpu(), make_steps(preset, corpus)
    calls = []
    monkeypatch.setattr(
        "boolattn.training.tower_pass.encode_packed",
        lambda *given: calls.append(1) or encode_packed(*given),
    )
    before = {name: value.clone() for name, value in towers.state_dict().items()}
    RetrievalTraining(preset, towers, steps, RunFolder(tmp_path)).train()
    assert steps.chunk == used
    assert bool(calls) is (used == 0)
    assert any(not torch.equal(value, before[name]) for name, value in towers.state_dict().items())


def test_the_attention_of_other_passes_is_unchanged(preset, corpus):
    preset = preset("model.use_plugin=false")
    towers = trained(make_towers(preset)).cpu().eval()
    padded, packed = batches(preset, corpus)
    with torch.no_grad():
        before = TowerPass(towers).encode_documents(padded["documents"], padded["places"])
        TowerPass(towers).encode_documents(packed["documents"], packed["places"])
        after = TowerPass(towers).encode_documents(padded["documents"], padded["places"])
    encoder = packed_encoder(towers)
    assert encoder.config._attn_implementation == BACKENDS["sdpa"]
    assert torch.equal(before, after)


def packed_encoder(towers):
    """Return the document tower's encoder."""
    return tower_of(towers, "document").model


@pytest.mark.gpu
@pytest.mark.parametrize("change", ["", "use_plugin=false"])
def test_a_gpu_gives_the_same_vectors_and_gradients(preset, corpus, change):
    preset = preset(*([f"model.{change}"] if change else []))
    towers = quiet(trained(make_towers(preset)).cuda())
    assert can_pack(towers)
    expected, found = compare(towers, batches(preset, corpus), "cuda", is_half=True)
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=5e-2)
