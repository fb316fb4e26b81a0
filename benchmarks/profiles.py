"""What a device did while something ran: its dearest kernels, how many, and how long it idled."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
_GRAPHS = ("cudaGraphLaunch",)


def profiled(call: Callable[[], object]) -> torch.profiler.profile:
    """Run something under the profiler."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as seen:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return seen


def summary(seen: torch.profiler.profile, n_times: int = 1, n_rows: int = 12) -> dict[str, Any]:
    """Sum a profile up.

    Args:
        seen: The finished profile.
        n_times: How often the thing was done in it; numbers are for one time.
        n_rows: How many kernels are named.
    """
    events = seen.events() or []
    spans, kernels, times = [], Counter[str](), Counter[str]()
    counts: Counter[str] = Counter()
    for event in events:
        name = str(event.name)
        start, end = event.time_range.start, event.time_range.end
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spans.append((start, end))
            kernels[name] += 1
            times[name] += end - start
        else:
            counts["operators"] += name.startswith("aten::")
            counts["launches"] += name in _LAUNCHES
            counts["graphs"] += name in _GRAPHS
    if not spans:  # no GPU: the operators themselves
        for event in events:
            kernels[event.name] += 1
            times[event.name] += event.self_cpu_time_total
    busy, wall = _union(spans)
    return {
        **{name: count / n_times for name, count in counts.items()},
        "kernels": sum(kernels.values()) / n_times if spans else None,
        "busy_ms": busy / 1000 / n_times if spans else None,
        "idle": 1 - busy / wall if spans else None,
        "top": [
            {"name": name, "ms": took / 1000 / n_times, "times": kernels[name] / n_times}
            for name, took in times.most_common(n_rows)
        ],
    }


def show(title: str, found: dict[str, Any]) -> None:
    """Print a summary."""
    line = f"profile: {title}: {found.get('operators', 0):.0f} aten operators"
    if found["kernels"] is not None:
        line += (
            f", {found.get('launches', 0):.0f} launches, {found.get('graphs', 0):.0f} graphs, "
            f"{found['kernels']:.0f} kernels and copies, GPU busy {found['busy_ms']:.2f} ms, "
            f"idle {found['idle']:.0%} of the time between its first and its last kernel"
        )
    print(line)
    for row in found["top"]:
        print(f"  {row['ms']:9.3f} ms {row['times']:8.1f} x  {row['name'][:100]}")


def operator_count(model: PreTrainedModel, inputs: dict[str, Any]) -> dict[str, float]:
    """Count the aten operators of one pass forward and of one back."""
    model.train()
    model(**inputs).last_hidden_state.sum().backward()  # the first time does more
    out: list[torch.Tensor] = []
    forward = summary(profiled(lambda: out.append(model(**inputs).last_hidden_state.sum())))
    backward = summary(profiled(lambda: out[0].backward()))
    model.zero_grad(set_to_none=True)
    return {"forward": forward["operators"], "backward": backward["operators"]}


def _union(spans: list[tuple[float, float]]) -> tuple[float, float]:
    """Length of what spans cover, and from the first start to the last end."""
    if not spans:
        return 0.0, 0.0
    spans = sorted(spans)
    covered, end = 0.0, spans[0][0]
    for first, last in spans:
        covered += max(0.0, last - max(first, end))
        end = max(end, last)
    return covered, end - spans[0][0]
