import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from boolattn import BoolAttnConfig
from boolattn.embedding import int8_storage
from boolattn.embedding.int8_storage import dequantise, pack, quantise, shipped_model, unpack
from boolattn.encoder import build_towers, save_towers
from boolattn.errors import DataError, MissingDataError
from tests.conftest import TEXTS

BOOLEAN = list(TEXTS)


@pytest.fixture
def folder(tiny_encoder, tokenizer, tmp_path):
    config = BoolAttnConfig(gate="lexicon", rank=4)
    save_towers(build_towers(tiny_encoder(), config, tokenizer=tokenizer), tmp_path / "model")
    return tmp_path / "model"


def test_eight_bits_are_off_by_half_a_step_at_most():
    torch.manual_seed(0)
    matrix = (torch.randn(7, 150) * torch.logspace(-4, 2, 7)[:, None]).numpy()
    matrix[3] = 0
    values, scale = quantise(matrix)
    assert (values.dtype, scale.dtype) == (np.int8, np.float16)
    assert (values.shape, scale.shape) == ((7, 150), (7, 3))
    step = scale.astype(np.float32).repeat(64, 1)[:, :150]
    # Half a step, and the rounding of the scale itself to fp16.
    error = np.abs(dequantise(values, scale) - matrix)
    assert (error <= 0.5 * step + np.abs(matrix) / 500).all()
    assert not dequantise(values, scale)[3].any()


def test_one_block_by_hand():
    row = np.zeros((1, 65), np.float32)
    row[0, 0], row[0, 1], row[0, 64] = 127.0, -63.4, 2.3
    values, scale = quantise(row)
    assert values[0, [0, 1, 2]].tolist() == [127, -63, 0]
    assert scale[0, 0] == 1  # the large value is not in the second block, which is finer
    assert dequantise(values, scale)[0, 64].item() == pytest.approx(2.3, rel=1e-3)


def test_numpy_and_torch_quantise_to_the_same_bits():
    matrix = torch.randn(300, 192, generator=torch.Generator().manual_seed(1)) * 0.05
    matrix[0, :3] = torch.tensor([0.127, 0.0005, 0.0015])  # ties
    values, scale = quantise(matrix.numpy())
    blocks = matrix.view(300, -1, 64)
    expected_scale = (blocks.abs().amax(-1) / 127).to(torch.float16)
    divided = blocks / expected_scale.float()[..., None]
    expected = divided.round().clamp(-127, 127).to(torch.int8).view(300, -1)
    assert np.array_equal(values, expected.numpy())
    assert np.array_equal(scale, expected_scale.numpy())
    restored = expected.float() * expected_scale.float().repeat_interleave(64, 1)
    assert np.array_equal(dequantise(values, scale), restored.numpy())


def test_a_packed_model_is_small_and_nearly_the_same(folder, tmp_path):
    pack(folder, tmp_path / "packed")
    unpack(tmp_path / "packed", tmp_path / "back")
    assert {p.name for p in tmp_path.iterdir()} == {"model", "packed", "back"}
    before, after = (
        {p.relative_to(f).as_posix(): p for p in f.rglob("*") if p.is_file()}
        for f in (folder, tmp_path / "back")
    )
    assert before.keys() == after.keys()
    for name, path in before.items():
        if path.suffix != ".safetensors":
            assert path.read_bytes() == after[name].read_bytes()
    [weights] = folder.rglob("*.safetensors")
    mine, its = load_file(weights), load_file(after[weights.relative_to(folder).as_posix()])
    changed = {name for name in mine if not torch.equal(mine[name], its[name])}
    assert changed  # large matrices, and nothing else
    assert all(mine[name].dim() > 1 and mine[name].numel() > 4096 for name in changed)
    assert {n: t.dtype for n, t in mine.items()} == {n: t.dtype for n, t in its.items()}
    first, second = SentenceTransformer(str(folder)), SentenceTransformer(str(tmp_path / "back"))
    for encode in ("encode_query", "encode_document"):
        a, b = getattr(first, encode)(BOOLEAN), getattr(second, encode)(BOOLEAN)
        assert (np.sum(a * b, 1) > 0.9999).all()
        assert not (a == b).all()
    stored = load_file(tmp_path / "packed" / "part-0.safetensors")
    assert any(t.dtype == torch.int8 for t in stored.values())


def test_parts_stay_under_the_limit_and_say_the_same(folder, tmp_path):
    pack(folder, tmp_path / "one")
    pack(folder, tmp_path / "many", max_part=10_000)
    assert len(list((tmp_path / "one").glob("part-*"))) == 1
    unpack(tmp_path / "one", tmp_path / "a")
    unpack(tmp_path / "many", tmp_path / "b")
    [a], [b] = ((tmp_path / name).rglob("*.safetensors") for name in "ab")
    assert a.read_bytes() == b.read_bytes()
    parts = list((tmp_path / "many").glob("part-*"))
    sizes = [sum(t.nbytes for t in load_file(part).values()) for part in parts]
    # The positions, 600 rows of 32 values, are cut between rows.
    assert len(parts) > 3
    assert max(sizes) <= 10_000


def test_packing_is_the_same_every_time(folder, tmp_path):
    for name in ("a", "b"):
        pack(folder, tmp_path / name, max_part=1000)
    texts = [(tmp_path / name / "manifest.json").read_text() for name in ("a", "b")]
    assert texts[0] == texts[1]
    manifest = json.loads(texts[0])
    # The tokenizer stands in the folder twice and in the parts once.
    sums = manifest["files"]
    assert sums["tokenizer.json"] == sums["query_0_Transformer/tokenizer.json"]
    keys = [key for part in (tmp_path / "a").glob("part-*") for key in load_file(part)]
    assert len(keys) == len(set(keys))


def test_damaged_files_are_one_line(folder, tmp_path):
    pack(folder, tmp_path / "packed")
    part, manifest = (tmp_path / "packed" / n for n in ("part-0.safetensors", "manifest.json"))
    whole, text = part.read_bytes(), manifest.read_text()

    def refused(message):
        with pytest.raises(DataError, match=message) as caught:
            unpack(tmp_path / "packed", tmp_path / "back")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "back").exists()

    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused("is damaged: its hash differs")
    part.unlink()
    refused("part-0.safetensors is missing")
    part.write_bytes(whole)
    manifest.write_text(text[:-5])
    refused("manifest.json is damaged")
    manifest.write_text(text.replace('"format": 1', '"format": 2'))
    refused("has format 2; this version reads 1")
    values = json.loads(text)
    outside = values | {"files": {"../../stolen": values["files"]["modules.json"]}}
    manifest.write_text(json.dumps(outside))
    refused("leads out of the model's folder")
    assert not (tmp_path.parent / "stolen").exists()
    manifest.write_text(json.dumps(values | {"files": {"a": "nowhere"}}))
    refused("does not fit its own manifest")
    manifest.unlink()
    refused("holds no manifest.json")
    with pytest.raises(MissingDataError, match=r"holds no modules\.json"):
        pack(tmp_path, tmp_path / "other")


def test_a_pack_that_fails_leaves_the_last_one(folder, tmp_path, monkeypatch):
    pack(folder, tmp_path / "packed")

    def full_disk(*_args, **_options):
        raise OSError(28, os.strerror(28))

    for name, work in (("packed", pack), ("back", unpack)):
        monkeypatch.undo()
        unpack(tmp_path / "packed", tmp_path / "back")
        monkeypatch.setattr(int8_storage, "save_file", full_disk)
        with pytest.raises(DataError, match="No space left"):
            work(
                *(
                    (folder, tmp_path / name)
                    if work is pack
                    else (tmp_path / "packed", tmp_path / name)
                )
            )
        assert {p.name for p in tmp_path.iterdir()} == {"model", "packed", "back"}
    monkeypatch.undo()
    unpack(tmp_path / "packed", tmp_path / "back")


def test_the_shipped_model_is_unpacked_once(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        int8_storage, "__file__", str(tmp_path / "package" / "embedding" / "int8_storage.py")
    )
    with pytest.raises(MissingDataError, match="contains no model 'tiny'"):
        shipped_model("tiny")
    source = tmp_path / "package" / "models" / "tiny"
    pack(folder, source)
    found = shipped_model("tiny")
    assert found.parent == tmp_path / "cache" / "models"
    assert SentenceTransformer(str(found)).encode_query(BOOLEAN).shape == (4, 32)
    with monkeypatch.context() as patch:
        patch.setattr(int8_storage, "unpack", None)  # not unpacked again
        assert shipped_model("tiny") == found
    # A new version of the model gets a folder of its own.
    [weights] = folder.rglob("*.safetensors")
    tensors = load_file(weights)
    save_file({k: v + 1 for k, v in tensors.items()}, weights, metadata={"format": "pt"})
    pack(folder, source)
    assert shipped_model("tiny") != found
    assert len(list(found.parent.iterdir())) == 2  # no drafts are left


def test_model_names_are_resolved_and_models_unpacked_without_torch(folder, tmp_path):
    pack(folder, tmp_path / "packed")
    code = (
        "import sys; from boolattn.embedding.int8_storage import unpack; "
        "from boolattn.embedding.models import resolve; "
        "unpack(sys.argv[1], sys.argv[2]); resolve(sys.argv[2]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "packed", tmp_path / "m"], check=True)
    assert (tmp_path / "m" / "modules.json").is_file()
