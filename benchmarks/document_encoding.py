"""``DocumentEncoder`` and ``SentenceTransformer.encode`` of the same documents, in one run.

    python -m benchmarks.document_encoding --encoder FOLDER --data FOLDER [--texts 100000]
        [--trial 4000] [--rounds 2] [--seconds 90] [--quick] [--json FILE]

Settings are compared on some of the texts: ``encode`` of plain towers in each precision with two
batch sizes, and ours. The fastest of each then encode all texts in turns; a ratio is taken within a
round. Each setting has a warm-up. With --quick, there are as many texts as the time allows. Both
return one float32 array in the memory of the host. Loading the model is not timed; making our
half-precision copy is. Vectors are compared with those of ``encode`` in float32.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
import traceback
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

from boolattn import BoolAttnConfig
from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.data.quest import load_quest_intro
from boolattn.encoder.document_encoder import DocumentEncoder
from boolattn.encoder.towers import build_towers
from boolattn.encoders.models import minilm_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentence_transformers import SentenceTransformer

#: Lowest acceptable ratio on a GPU, and largest acceptable difference of vectors.
MIN_RATIO = 1.3
MAX_DIFFERENCE = {"cuda": 1e-3, "cpu": 1e-6}
BATCH_SIZES = {"cuda": (256, 1024), "cpu": (32, 128)}
#: Texts of the warm-up of each setting.
N_WARM = 1024
PRECISIONS = {
    "cuda": {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16},
    "cpu": {"float32": torch.float32},
}
#: Settings of ours, by name.
OURS: dict[str, dict[str, dict[str, Any]]] = {
    "cuda": {
        "32k tokens": {"n_tokens": 32_768},
        "64k tokens": {"n_tokens": 65_536},
        "128k tokens": {"n_tokens": 131_072},
        "64k tokens, bfloat16": {"n_tokens": 65_536, "dtype": torch.bfloat16},
    },
    "cpu": {"1k tokens": {"n_tokens": 1024}, "2k tokens": {"n_tokens": 2048}},
}


def seconds(call: Callable[[], object]) -> float:
    """Time one call, with the work of the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def encode_theirs(
    towers: SentenceTransformer, texts: Sequence[str], batch_size: int
) -> torch.Tensor:
    """Encode with sentence-transformers; vectors are copied to the host once."""
    found = towers.encode_document(
        list(texts), batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False
    )
    return found.float().cpu()


def attempt(name: str, call: Callable[[], float]) -> float | None:
    """Time a call, or print its error."""
    try:
        took = call()
    except Exception as error:  # noqa: BLE001 - the other rows go on
        logging.warning("%s", traceback.format_exc())
        print(f"  {name}: failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return None
    print(f"  {name}: {took:.3f} s", flush=True)
    return took


def try_theirs(
    towers: SentenceTransformer, texts: list[str], device: str
) -> tuple[dict[str, float], dict[str, SentenceTransformer]]:
    """Time all settings of ``encode``; also return the model in each precision."""
    took, models = {}, {}
    for name, dtype in PRECISIONS[device].items():
        models[name] = towers if name == "float32" else deepcopy(towers).to(dtype)
        for size in BATCH_SIZES[device]:
            encode = partial(encode_theirs, models[name], batch_size=size)
            found = attempt(f"encode, {name}, batch {size}", partial(warmed, encode, texts))
            if found is not None:
                took[f"{name} {size}"] = found
    return took, models


def try_ours(towers: SentenceTransformer, texts: list[str], device: str) -> dict[str, float]:
    """Time all settings of ours."""
    took = {}
    for name, options in OURS[device].items():
        encode = partial(encode_ours, towers, **options)
        found = attempt(f"DocumentEncoder, {name}", partial(warmed, encode, texts))
        if found is not None:
            took[name] = found
    return took


def encode_ours(towers: SentenceTransformer, texts: Sequence[str], **options: Any) -> torch.Tensor:
    """Encode with ours, and fetch the vectors from the device."""
    return DocumentEncoder(towers, **options)(texts).cpu()


def warmed(encode: Callable[[list[str]], object], texts: list[str]) -> float:
    """Time a call after a warm-up."""
    encode(texts[:N_WARM])
    return seconds(lambda: encode(texts))


def compare(
    texts: list[str],
    theirs: Callable[[list[str]], object],
    ours: Callable[[list[str]], object],
    rounds: int,
    ends: float,
) -> dict[str, Any]:
    """Time both in turns."""
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        if pairs and time.perf_counter() + sum(pairs[-1]) > ends:
            print(f"  no time for round {number + 1}")
            break
        calls = [theirs, ours] if number % 2 == 0 else [ours, theirs]
        took = {id(call): seconds(lambda c=call: c(texts)) for call in calls}
        pairs.append((took[id(theirs)], took[id(ours)]))
        print(f"  round {number + 1}: {pairs[-1][0]:.3f} s, {pairs[-1][1]:.3f} s", flush=True)
    ratios = [a / b for a, b in pairs]
    return {
        "theirs_s": statistics.median(a for a, _ in pairs),
        "ours_s": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def _affordable(
    found: dict[str, Any], n_tried: int, options: argparse.Namespace, started: float
) -> int:
    """Return how many texts both can encode in all rounds, within half the time."""
    left = max(0.0, started + options.seconds - time.perf_counter()) / 2
    a_text = sum(min(found[name].values()) for name in ("trial_theirs_s", "trial_ours_s")) / n_tried
    return max(n_tried, int(left / a_text / options.rounds))


def read_texts(options: argparse.Namespace) -> list[str]:
    """Return a random sample of the texts, because a corpus may be sorted."""
    if any(options.data.glob("manifest.json*")):  # taxa
        documents = open_dataset("taxa", DataOptions(folder=options.data)).documents
    else:  # without its queries
        documents = load_quest_intro(options.data).documents
    texts = [document.text for document in documents]
    if len(texts) > options.texts:
        rng = np.random.default_rng(0)
        texts = [texts[row] for row in rng.choice(len(texts), options.texts, replace=False)]
    return texts


def main() -> None:
    """Run the benchmark."""
    options = _options()
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    disable_progress_bar()
    started = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = read_texts(options)
    trial = texts[: options.trial]
    config = BoolAttnConfig(gate="lexicon", rank=16)
    source = options.encoder or minilm_folder()
    towers = build_towers(source, config).float().to(device).eval()
    plain = build_towers(source).float().to(device).eval()
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    lengths = [len(text) for text in texts]
    print(
        f"{where}, torch {torch.__version__}; {len(texts)} texts, {statistics.median(lengths):.0f} "
        f"characters (median); {time.perf_counter() - started:.0f} s to open",
        flush=True,
    )
    found: dict[str, Any] = {"device": where, "torch": torch.__version__, "texts": len(texts)}
    encode_ours(towers, trial[:512])
    print(f"{len(trial)} texts:")
    found["trial_theirs_s"], models = try_theirs(plain, trial, device)
    found["trial_ours_s"] = try_ours(towers, trial, device)
    best = min(found["trial_theirs_s"], key=found["trial_theirs_s"].__getitem__)
    own = min(found["trial_ours_s"], key=found["trial_ours_s"].__getitem__)
    precision, size = best.split()
    if options.quick:
        texts = texts[: _affordable(found, len(trial), options, started)]
    print(f"{len(texts)} texts, encode ({precision}, batch {size}) and DocumentEncoder ({own}):")
    found |= {"theirs": best, "ours": own, "texts": len(texts)}
    found |= compare(
        texts,
        lambda some: encode_theirs(models[precision], some, int(size)),
        lambda some: encode_ours(towers, some, **OURS[device][own]),
        options.rounds,
        started + options.seconds,
    )
    verdict = ("met" if found["ratio"] >= MIN_RATIO else "missed") if device == "cuda" else "none"
    print(
        f"{len(texts) / found['theirs_s']:.0f} and {len(texts) / found['ours_s']:.0f} texts a "
        f"second: {found['ratio']:.2f} times as fast (limit {MIN_RATIO}: {verdict})",
        flush=True,
    )
    _write(found, options)  # in case the time runs out
    expected = encode_theirs(plain, trial, BATCH_SIZES[device][0])
    given = encode_ours(towers, trial, **OURS[device][own])
    found["largest_difference"] = float((given - expected).abs().max())
    verdict = "met" if found["largest_difference"] <= MAX_DIFFERENCE[device] else "missed"
    print(
        f"vectors differ by at most {found['largest_difference']:.1e} "
        f"(limit {MAX_DIFFERENCE[device]:.0e}: {verdict})",
        flush=True,
    )
    _write(found, options)


def _write(found: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", help="folder; default: the installed MiniLM")
    parser.add_argument("--data", type=Path, required=True, help="folder of QUEST-intro or taxa")
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--trial", type=int, default=4_000, help="texts to compare settings with")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="fewer texts where time is short")
    parser.add_argument("--seconds", type=float, default=90, help="start no round after this time")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
