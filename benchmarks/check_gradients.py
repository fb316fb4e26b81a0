"""Are the gradients of a training step right on this GPU, kernel by kernel?

    python -m benchmarks.check_gradients --data FOLDER [--preset minilm-taxa]

One batch, without dropout. The reference is float32 with the plain ("math") attention; each row is
bfloat16 with one attention kernel, plain towers and towers with BoolAttn. A cosine below .99 means
that training with that kernel goes somewhere else.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.utils.logging import disable_progress_bar

from boolattn.training.launch import Corpus, make_steps, make_towers, open_data
from boolattn.training.losses import softmax_loss
from boolattn.training.passes import Both
from boolattn.training.settings import load_preset

KERNELS = {
    "default": None,
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def main() -> None:
    """Print a row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="minilm-taxa")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for use_plugin in ("false", "true"):
        preset = load_preset(options.preset, [*options.set, f"use_plugin={use_plugin}"])
        torch.manual_seed(0)
        towers = make_towers(preset).to(device).eval()
        dataset = open_data(preset, options.data)
        corpus = Corpus(dataset, towers.tokenizer, preset.model.document_length)
        step = _move(make_steps(preset, corpus)[0], device)
        loss, reference = _gradient(towers, step, device, "math", is_half=False)
        print(f"plug-in {use_plugin}: float32 math, loss {loss:.4f}, norm {reference.norm():.3f}")
        for kernel in KERNELS:
            try:
                loss, found = _gradient(towers, step, device, kernel, is_half=True)
            except RuntimeError as error:
                print(f"  {kernel:10} refused: {str(error).splitlines()[0][:70]}")
                continue
            cosine = torch.cosine_similarity(reference.double(), found.double(), dim=0).item()
            print(f"  {kernel:10} loss {loss:.4f}, norm {found.norm():.3f}, cosine {cosine:.5f}")


def _gradient(
    towers: torch.nn.Module, step: dict[str, object], device: str, kernel: str, *, is_half: bool
) -> tuple[float, torch.Tensor]:
    backend = KERNELS[kernel]
    towers.zero_grad()
    with sdpa_kernel(backend) if backend is not None else nullcontext():
        with torch.autocast(device, torch.bfloat16, enabled=is_half):
            queries, documents = Both(towers)(step["queries"], step["documents"], step["places"])
        loss = softmax_loss(queries, documents, step["targets"], step["blocked"])
        loss.backward()
    parts = [p.grad.flatten() for p in towers.parameters() if p.grad is not None]
    return loss.item(), torch.cat(parts).clone()


def _move(value: object, device: str) -> object:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _move(item, device) for name, item in value.items()}
    return [_move(item, device) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
