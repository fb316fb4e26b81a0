"""Encoding with and without BoolAttn, in one run.

    python -m benchmarks.encoding [--rounds 30] [--device cuda] [--compile] [--largest]

Every round times every system once, in turn, so that a busy machine slows all of them; a ratio is
taken within its round, and the table shows the median and the middle 80%. All experts are active,
which is the most expensive case.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoConfig, AutoModel, PreTrainedModel

from boolattn import BoolAttnConfig, attach
from boolattn.embedding.models import minilm_folder
from boolattn.errors import MissingDataError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Plug-in settings by row; None is the plain encoder.
SYSTEMS: dict[str, BoolAttnConfig | None] = {
    "plain": None,
    "light, factored": BoolAttnConfig(rank=16),
    "light, dense": BoolAttnConfig(rank=16, form="dense"),
    "full, factored": BoolAttnConfig(),
    "full, dense": BoolAttnConfig(form="dense"),
}
SIZES = {
    "minilm": {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
    },
    "bert-base": {},
}
SHAPES = ((1, 16), (1, 64), (32, 16), (32, 64))
#: Highest acceptable ratio to the plain encoder, at 32 texts of 64 tokens.
JUDGED = {"cpu": "forward", "cuda": "forward, captured"}
LIMITS = {"cpu": {"light": 1.10, "full": 1.25}, "cuda": {"light": 1.25, "full": 1.50}}


def encoder(name: str, device: str) -> PreTrainedModel:
    """Load all-MiniLM-L6-v2, or return an encoder of the named shape with random weights."""
    if name == "minilm":
        try:
            return AutoModel.from_pretrained(minilm_folder(), local_files_only=True).to(device)
        except MissingDataError:
            pass  # only the shape matters for the speed
    config = AutoConfig.for_model("bert", **SIZES[name])
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


def captured(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> Callable[[], None]:
    """Capture a forward pass as a CUDA graph."""
    inputs = {name: value.cuda() for name, value in inputs.items()}
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.inference_mode():
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(**inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(**inputs)
    return graph.replay


def measure(
    models: dict[str, PreTrainedModel], shape: tuple[int, int], args: argparse.Namespace, mode: str
) -> list[dict[str, object]]:
    """Time every system on one shape."""
    calls: dict[str, Callable[[], None]] = {}
    for name, model in models.items():
        inputs = batch(*shape, args.device)
        if SYSTEMS[name] is not None:
            inputs["operators"] = torch.ones(shape[0], 3)
        model.train(mode.endswith("backward"))
        calls[name] = (
            captured(model, inputs)
            if mode == "forward, captured"
            else partial(job, model, inputs, is_training=model.training)
        )
    memory = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            memory[name] = (torch.cuda.max_memory_allocated() - before) / 2**20
    once = timed(calls["plain"], 3, args.device)
    n_calls = max(1, round(0.05 / once))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(args.rounds):
        for name, call in calls.items():
            seconds[name].append(timed(call, n_calls, args.device))
    rows = []
    for name, took in seconds.items():
        ratios = sorted(t / b for t, b in zip(took, seconds["plain"], strict=True))
        rows.append(
            {
                "mode": mode,
                "shape": f"{shape[0]} x {shape[1]}",
                "system": name,
                "ms": 1000 * statistics.median(took),
                "ratio": statistics.median(ratios),
                "low": ratios[len(ratios) // 10],
                "high": ratios[-1 - len(ratios) // 10],
                "peak_MiB": memory.get(name),
            }
        )
    return rows


def show(rows: list[dict[str, object]], device: str) -> None:
    """Print the table, with limits where they apply."""
    print("mode                texts    system                 ms  ratio  80% of rounds     MiB")
    for row in rows:
        size, _, form = str(row["system"]).partition(", ")
        limit = LIMITS[device].get(size)
        note = ""
        if limit and (row["mode"], row["shape"], form) == (JUDGED[device], "32 x 64", "factored"):
            note = f"limit {limit:.2f}: {'met' if row['ratio'] <= limit else 'missed'}"
        peak = f"{row['peak_MiB']:6.0f}" if row["peak_MiB"] is not None else "     -"
        print(
            f"{row['mode']:19} {row['shape']:8} {row['system']:16} {row['ms']:8.2f} "
            f"{row['ratio']:6.2f}  {row['low']:.2f} to {row['high']:.2f}   {peak}  {note}"
        )


def profile(models: dict[str, PreTrainedModel]) -> None:
    """Print time and number of the kernels of a forward pass of 32 x 64 on the GPU."""
    for name, model in models.items():
        inputs = batch(*SHAPES[-1], "cuda")
        if SYSTEMS[name] is not None:
            inputs["operators"] = torch.ones(SHAPES[-1][0], 3)
        call = partial(job, model.eval(), inputs, is_training=False)
        timed(call, 5, "cuda")
        with torch.profiler.profile() as profiler:
            timed(call, 10, "cuda")
        events = profiler.key_averages()
        launches = sum(e.count for e in events if "aunchKernel" in e.key) / 10
        kernels = sum(e.self_device_time_total for e in events if not e.key.startswith("aten::"))
        print(f"{name:16} {kernels / 10:8.0f} us in kernels, {launches:5.0f} launches")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--encoder", choices=SIZES, default="minilm")
    parser.add_argument("--compile", action="store_true", help="compile the plug-in's parts")
    parser.add_argument("--largest", action="store_true", help="only 32 texts of 64 tokens")
    parser.add_argument("--profile", action="store_true", help="count kernels (GPU only)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    models = {}
    for name, config in SYSTEMS.items():
        models[name] = encoder(args.encoder, args.device)
        if config is not None:
            plugin = attach(models[name], config)
            if args.compile:
                plugin.compile_parts()
    threads = f"{torch.get_num_threads()} threads" if args.device == "cpu" else "GPU"
    print(f"{args.encoder}, torch {torch.__version__}, {threads}, {args.rounds} rounds")
    rows = []
    jobs = [("forward", shape) for shape in (SHAPES[-1:] if args.largest else SHAPES)]
    if args.device == "cuda":
        jobs.append(("forward, captured", SHAPES[-1]))
    jobs.append(("forward + backward", SHAPES[-1]))
    for mode, shape in jobs:
        rows += measure(models, shape, args, mode)
    show(rows, args.device)
    if args.profile and args.device == "cuda":
        profile(models)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
