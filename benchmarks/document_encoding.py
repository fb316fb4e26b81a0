"""``DocumentEncoder`` and ``SentenceTransformer.encode`` of the same documents, in one run.

    python -m benchmarks.document_encoding --data FOLDER [--encoder FOLDER] [--texts 20000]
        [--trial 4000] [--rounds 3] [--json FILE]

``encode`` of plain towers first encodes some of the texts in each precision with two batch sizes.
The fastest of these settings and ours then encode all texts in turns; a ratio is taken within a
round. Both return one float32 array in the memory of the host. Loading the model is not timed;
making our half-precision copy is. Vectors are compared with those of ``encode`` in float32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from copy import deepcopy
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn import BoolAttnConfig
from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.quest import read_documents
from boolattn.encoder.document_encoder import DocumentEncoder
from boolattn.encoder.towers import build_towers
from boolattn.encoders.models import minilm_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentence_transformers import SentenceTransformer

#: Lowest acceptable ratio on a GPU, and largest acceptable difference of vectors.
MIN_RATIO = 1.3
MAX_DIFFERENCE = {"cuda": 1e-3, "cpu": 1e-6}
BATCH_SIZES = {"cuda": (256, 1024), "cpu": (32, 128)}
PRECISIONS = {"cuda": (torch.float32, torch.bfloat16, torch.float16), "cpu": (torch.float32,)}
#: Texts of the warm-up of each setting.
N_WARM = 1024


def encode_theirs(towers: SentenceTransformer, size: int, texts: list[str]) -> torch.Tensor:
    """Encode with sentence-transformers; vectors are copied to the host once."""
    vectors = towers.encode_document(
        texts, batch_size=size, convert_to_tensor=True, show_progress_bar=False
    )
    return vectors.float().cpu()


def encode_ours(towers: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    """Encode with ours, and fetch the vectors from the device."""
    return DocumentEncoder(towers)(texts).cpu()


def seconds(encode: Callable[[list[str]], torch.Tensor], texts: list[str]) -> float:
    """Time one call; fetching the vectors waits for the device."""
    start = time.perf_counter()
    encode(texts)
    return time.perf_counter() - start


def fastest(plain: SentenceTransformer, texts: list[str], device: str) -> tuple[torch.dtype, int]:
    """Time all settings of ``encode``; return the precision and batch size of the fastest."""
    took = {}
    for dtype, size in product(PRECISIONS[device], BATCH_SIZES[device]):
        encode = partial(encode_theirs, deepcopy(plain).to(dtype), size)
        encode(texts[:N_WARM])
        took[dtype, size] = seconds(encode, texts)
        print(f"  encode, {dtype}, batch {size}: {took[dtype, size]:.3f} s", flush=True)
    return min(took, key=took.__getitem__)


def read_texts(folder: Path, n: int) -> list[str]:
    """Return a random sample of the texts, because a corpus may be sorted."""
    if (folder / "manifest.json").is_file():
        documents = open_dataset("taxa", DataOptions(folder=folder)).documents
    else:  # QUEST-intro, without its queries
        documents = list(read_documents(folder))
    rows = np.random.default_rng(0).permutation(len(documents))[:n]
    return [documents[row].text for row in rows]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", help="folder; default: the installed MiniLM")
    parser.add_argument("--data", type=Path, required=True, help="folder of QUEST-intro or taxa")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--trial", type=int, default=4_000, help="texts to compare settings with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    texts = read_texts(options.data, options.texts)
    trial, source = texts[: options.trial], options.encoder or minilm_folder()
    towers = build_towers(source, BoolAttnConfig(gate="lexicon", rank=16)).to(device).eval()
    plain = build_towers(source).to(device).eval()
    print(f"{where}, torch {torch.__version__}; {len(texts)} texts", flush=True)
    dtype, size = fastest(plain, trial, device)
    ours = partial(encode_ours, towers)
    expected, given = encode_theirs(plain, size, trial), ours(trial)
    theirs = partial(encode_theirs, deepcopy(plain).to(dtype), size)
    pairs = [(seconds(theirs, texts), seconds(ours, texts)) for _ in range(options.rounds)]
    row = {
        **{"device": where, "torch": torch.__version__, "texts": len(texts)},
        **{"theirs": f"{dtype}, batch {size}", "theirs_s": statistics.median(a for a, _ in pairs)},
        "ours_s": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
        "largest_difference": float((given - expected).abs().max()),
    }
    if options.json:
        options.json.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    limit = f"limit {MIN_RATIO}" if device == "cuda" else "no limit"
    print(f"{row['ours_s']:.2f} s, encode {row['theirs_s']:.2f} s ({row['theirs']}): "
          f"{row['ratio']:.2f} times as fast ({limit}); vectors differ by at most "
          f"{row['largest_difference']:.1e} (limit {MAX_DIFFERENCE[device]:.0e})")  # fmt: skip


if __name__ == "__main__":
    main()
