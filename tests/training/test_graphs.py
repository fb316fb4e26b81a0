"""Recorded passes: the padding they need changes nothing, and a GPU trains as without them."""

import pytest
import torch

from boolattn.training.graphs import Captured, capture, fill, padded, padded_length
from boolattn.training.launch import make_steps, make_towers
from boolattn.training.passes import Both, encode


@pytest.fixture
def parts(preset, corpus):
    preset = preset()
    towers = make_towers(preset).eval()
    return towers, make_steps(preset, corpus)


@pytest.mark.parametrize("task", ["query", "document"])
def test_padding_changes_no_vector(parts, task):
    towers, steps = parts
    features = steps[0]["queries"] if task == "query" else steps[0]["documents"][0]
    n_tokens = padded_length(features["input_ids"].shape[1], task)
    assert n_tokens > features["input_ids"].shape[1]
    wide = padded(features, n_tokens, 0)
    assert wide["input_ids"].shape[1] == n_tokens
    with torch.no_grad():
        expected, found = encode(towers, features, task), encode(towers, wide, task)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_a_batch_leaves_nothing_of_the_one_before(parts):
    _, steps = parts
    first, second = steps[0]["queries"], steps[1]["queries"]
    wide = padded(first, 48, 7)
    for name, place in wide.items():
        fill(place, second[name][:, :5], name, 7)
    expected = padded({name: value[:, :5] for name, value in second.items()}, 48, 7)
    assert all(torch.equal(wide[name], expected[name]) for name in wide)
    assert (wide["input_ids"][:, 5:] == 7).all()
    assert not wide["attention_mask"][:, 5:].any()


def test_without_a_gpu_passes_run_as_usual(parts):
    towers, steps = parts
    batch = steps[0]
    inputs = {name: batch[name] for name in ("queries", "documents", "places")}
    assert capture(towers, "none") is None
    plain = Both(towers)(**inputs)
    for which in ("queries", "all"):
        found = Both(towers, capture(towers, which))(**inputs)
        assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("is_bf16", [False, True])
def test_recorded_passes_give_the_same_vectors_and_gradients(preset, corpus, is_bf16):
    preset = preset("plugin.use_noise=false")
    towers = make_towers(preset).cuda().train()
    for module in towers.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for layer in towers.modules():
        if hasattr(layer, "dropout_prob"):
            layer.dropout_prob = 0.0
    steps = make_steps(preset, corpus)
    captured = Captured(towers, ("query", "document"))
    for number in (0, 1, 2, 0):
        batch = steps[number]
        inputs = {
            "queries": {name: v.cuda() for name, v in batch["queries"].items()},
            "documents": [{n: v.cuda() for n, v in part.items()} for part in batch["documents"]],
            "places": batch["places"].cuda(),
        }
        found = []
        for model in (Both(towers), Both(towers, captured)):
            towers.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=is_bf16):
                queries, documents = model(**inputs)
            (queries.float() @ documents.float().T).square().sum().backward()
            grads = {n: p.grad.clone() for n, p in towers.named_parameters() if p.grad is not None}
            found.append((queries.detach().clone(), documents.detach().clone(), grads))
        tolerance = {"atol": 2e-2, "rtol": 5e-2} if is_bf16 else {"atol": 1e-4, "rtol": 1e-3}
        torch.testing.assert_close(found[1], found[0], **tolerance)
    assert captured.tasks, "recording failed"
