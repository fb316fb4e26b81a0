"""Recorded passes against passes as usual: the same vectors and gradients on real batches?

    python -m benchmarks.recorded --encoder FOLDER --data FOLDER [--preset minilm-quest-intro]

The test of the same is ``tests/training/test_graphs.py``; this one needs no pytest and no tiny
encoder. Dropout and noise are off, in float32 and in bfloat16. A difference is shown as a share of
the longest vector or gradient of its kind.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.utils.logging import disable_progress_bar

from boolattn.training.corpus import Corpus
from boolattn.training.cuda_graphs import Captured
from boolattn.training.launch import make_steps, open_data
from boolattn.training.preset_files import load_preset
from boolattn.training.tower_pass import Both
from boolattn.training.towers import load_encoder, make_towers

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

#: How far recorded passes may be off, as a share.
MOST = {"float32": 1e-3, "bfloat16": 3e-2}


def moved(value: Any, device: torch.device) -> Any:  # noqa: ANN401 - nested features
    """Bring a step's features to a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(part, device) for name, part in value.items()}
    return [moved(part, device) for part in value]


def quiet(towers: SentenceTransformer) -> SentenceTransformer:
    """Switch dropout off, but leave the towers training: only then are passes recorded."""
    for module in towers.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return towers.train()


def passed(model: Both, inputs: dict[str, Any], *, is_bf16: bool) -> dict[str, Tensor]:
    """Go forward and back; return vectors and gradients."""
    model.towers.zero_grad()
    with torch.autocast(model.towers.device.type, torch.bfloat16, enabled=is_bf16):
        queries, documents = model(**inputs)
    (queries.float() @ documents.float().T).square().sum().backward()
    found = {"queries": queries, "documents": documents}
    found = {name: value.detach().float().clone() for name, value in found.items()}
    for name, parameter in model.towers.named_parameters():
        if parameter.grad is not None:
            found[name] = parameter.grad.detach().clone()
    return found


def largest(found: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[float, str]:
    """Say how far the worst is off, and its name; an expert that a batch leaves shut has 0."""
    worst, where = 0.0, ""
    scale = max(float(value.norm()) for name, value in expected.items() if "." in name)
    for name in found.keys() | expected.keys():
        one, other = found.get(name), expected.get(name)
        base = one if one is not None else other
        if base is None:
            continue
        gap = (one if one is not None else 0 * base) - (other if other is not None else 0 * base)
        size = scale if "." in name else float(base.norm())
        if (share := float(gap.norm()) / size) > worst:
            worst, where = share, name
    return worst, where


def main() -> None:
    """Compare."""
    options = _options()
    disable_progress_bar()
    if not torch.cuda.is_available():
        print("no GPU: nothing is recorded, so nothing can differ")
    changes = [f"model.encoder={options.encoder}", "plugin.use_noise=false", "keep=last"]
    preset = load_preset(options.preset, [*changes, "data.validation=", "max_steps=4"])
    _, tokenizer = load_encoder(preset.model.encoder)
    corpus = Corpus(open_data(preset, options.data), tokenizer, preset.model.document_length)
    for use_plugin in (False, True):
        one = replace(preset, model=replace(preset.model, use_plugin=use_plugin))
        towers = quiet(make_towers(one).to("cuda" if torch.cuda.is_available() else "cpu"))
        steps = make_steps(one, corpus)
        for name, most in MOST.items():
            recorded = Captured(towers, ("query", "document"))
            for number in (0, 1, 2, 0):
                batch = moved(steps[number], towers.device)
                inputs = {key: batch[key] for key in ("queries", "documents", "places")}
                is_bf16 = name == "bfloat16"
                expected = passed(Both(towers), inputs, is_bf16=is_bf16)
                found = passed(Both(towers, recorded), inputs, is_bf16=is_bf16)
                share, where = largest(found, expected)
                what = "plug-in" if use_plugin else "plain"
                verdict = f"bar {most}: {'met' if share <= most else 'missed'}"
                print(f"{what}, {name}, step {number}: {share:.1e} at {where} ({verdict})")
            if recorded.failure is not None:
                print(f"recording failed, the passes above ran as usual: {recorded.failure}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="minilm", help="folder; default: the installed MiniLM")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="minilm-quest-intro")
    return parser.parse_args()


if __name__ == "__main__":
    main()
