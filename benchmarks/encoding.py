"""Encoding with and without BoolAttn, in one run.

    python -m benchmarks.encoding [--rounds 30] [--device cuda] [--half] [--long]

Every round times every system once, in turn, so that a busy machine slows all of them; a ratio is
taken within its round, and the table shows the median and the middle 80%. All experts are active,
which is the most expensive case.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel, PreTrainedModel

from boolattn import BoolAttnConfig, attach
from boolattn.encoders.models import minilm_folder
from boolattn.errors import MissingDataError

#: Plug-in settings by size, and how the weights are used.
PLUGINS = {"light": BoolAttnConfig(rank=16), "full": BoolAttnConfig()}
WAYS = ("folded", "reference")
SIZES = {
    "minilm": {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
    },
    "bert-base": {},
    "modernbert": {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "intermediate_size": 576,
    },
}
SHAPES = {"cpu": ((1, 16), (1, 64), (32, 16), (32, 64)), "cuda": ((32, 64), (256, 32))}
#: Texts and tokens of the measurement of memory.
LONG = ((8, 512), (2, 2048), (1, 8192))
TRAINING = "forward + backward"
#: Highest acceptable ratio to the plain encoder, on a GPU.
LIMITS = {
    (mode, f"{n} x {length}"): {"light": 1.15, "full": 1.25}
    for mode in ("forward", "forward, captured")
    for n, length in SHAPES["cuda"]
}


def encoder(name: str, device: str) -> PreTrainedModel:
    """Load all-MiniLM-L6-v2, or return an encoder of the named shape with random weights."""
    if name == "minilm":
        try:
            return AutoModel.from_pretrained(minilm_folder(), local_files_only=True).to(device)
        except MissingDataError:
            pass  # only the shape matters for the speed
    family = "modernbert" if name == "modernbert" else "bert"
    config = AutoConfig.for_model(family, **SIZES[name])
    return AutoModel.from_config(config).to(device)


def batch(n_texts: int, n_tokens: int, device: str) -> dict[str, torch.Tensor]:
    """Return token ids with an eighth of padding in every second text."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 20000, (n_texts, n_tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[1::2, n_tokens * 7 // 8 :] = 0
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def job(model: PreTrainedModel, inputs: dict[str, torch.Tensor], *, is_training: bool) -> None:
    """Run a forward pass, and in training a backward pass."""
    if not is_training:
        with torch.inference_mode():
            model(**inputs)
        return
    model(**inputs).last_hidden_state.square().mean().backward()
    model.zero_grad(set_to_none=True)


def timed(call: Callable[[], None], n_calls: int, device: str) -> float:
    """Seconds for one call, over ``n_calls``."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n_calls):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / n_calls


def captured(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], *, is_training: bool
) -> Callable[[], None]:
    """Capture a pass as a CUDA graph."""
    inputs = {name: value.cuda() for name, value in inputs.items()}
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            job(model, inputs, is_training=is_training)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.inference_mode(not is_training), torch.cuda.graph(graph):
        output = model(**inputs).last_hidden_state
        if is_training:
            output.square().mean().backward()
    return graph.replay


def calls_of(
    models: dict[str, PreTrainedModel], shape: tuple[int, int], device: str, mode: str
) -> dict[str, Callable[[], None]]:
    """Return one call for each system."""
    calls: dict[str, Callable[[], None]] = {}
    is_training = mode.startswith(TRAINING)
    for name, model in models.items():
        inputs = batch(*shape, device)
        if name != "plain":
            inputs["operators"] = torch.ones(shape[0], 3)
        model.train(is_training)
        if mode.endswith("captured"):
            calls[name] = captured(model, inputs, is_training=is_training)
        else:
            calls[name] = partial(job, model, inputs, is_training=is_training)
    return calls


def measure(
    calls: dict[str, Callable[[], None]], device: str, rounds: int
) -> list[dict[str, object]]:
    """Time every system."""
    memory = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            memory[name] = (torch.cuda.max_memory_allocated() - before) / 2**20
    once = timed(calls["plain"], 3, device)
    n_calls = max(1, round(0.05 / once))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seconds[name].append(timed(call, n_calls, device))
    rows = []
    for name, took in seconds.items():
        ratios = sorted(t / b for t, b in zip(took, seconds["plain"], strict=True))
        rows.append(
            {
                "system": name,
                "ms": 1000 * statistics.median(took),
                "ratio": statistics.median(ratios),
                "low": ratios[len(ratios) // 10],
                "high": ratios[-1 - len(ratios) // 10],
                "peak_MiB": memory.get(name),
            }
        )
    return rows


def show(rows: list[dict[str, object]]) -> None:
    """Print the table, with limits where they apply."""
    print(
        "mode                         texts     system              ms  ratio  80% of rounds   MiB"
    )
    for row in rows:
        limits = LIMITS.get((row["mode"], row["shape"]), {})
        limit, note = limits.get(row["system"]), ""
        if limit:
            note = f"limit {limit:.2f}: {'met' if row['ratio'] <= limit else 'missed'}"
        peak = f"{row['peak_MiB']:6.0f}" if row["peak_MiB"] is not None else "     -"
        print(
            f"{row['mode']:28} {row['shape']:9} {row['system']:16} {row['ms']:8.2f} "
            f"{row['ratio']:6.2f}  {row['low']:.2f} to {row['high']:.2f} {peak}  {note}"
        )


def build(name: str, device: str, *, is_half: bool) -> dict[str, PreTrainedModel]:
    """Return the plain encoder, and every size of the plug-in in every way."""
    models = {"plain": encoder(name, device)}
    for size, config in PLUGINS.items():
        for way in WAYS if device == "cuda" else ("reference",):
            model = encoder(name, device)
            plugin = attach(model, config)
            for layer in plugin.layers.values():
                torch.nn.init.ones_(layer.factor)  # as if trained: at 0 a layer is skipped
            if way == "folded":
                plugin.fold()
            models[size if way == "folded" else f"{size}, {way}"] = model
    return {key: model.bfloat16() if is_half else model for key, model in models.items()}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--encoder", choices=SIZES, default="minilm")
    parser.add_argument("--half", action="store_true", help="weights in bfloat16")
    parser.add_argument("--long", action="store_true", help="memory of long texts, ModernBERT")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    name = "modernbert" if args.long else args.encoder
    models = build(name, args.device, is_half=args.half)
    threads = f"{torch.get_num_threads()} threads" if args.device == "cpu" else "GPU"
    print(f"{name}, torch {torch.__version__}, {threads}, {args.rounds} rounds")
    modes = ["forward", TRAINING]
    if args.device == "cuda" and not args.long:
        modes = ["forward", "forward, captured", TRAINING, f"{TRAINING}, captured"]
    rows = []
    for shape in LONG if args.long else SHAPES[args.device]:
        for mode in modes:
            if mode == TRAINING and args.device == "cpu" and shape != SHAPES["cpu"][-1]:
                continue
            calls = calls_of(models, shape, args.device, mode)
            head = {"mode": mode, "shape": f"{shape[0]} x {shape[1]}"}
            rows += [head | row for row in measure(calls, args.device, args.rounds)]
    show(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
