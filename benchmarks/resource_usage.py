"""Memory and processor time of a process and its children, and profiles of torch code."""

from __future__ import annotations

import os
import resource
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from transformers import PreTrainedModel

_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
_GRAPHS = ("cudaGraphLaunch",)
_TICKS = os.sysconf("SC_CLK_TCK")


def processes() -> list[int]:
    """Return the ids of this process and all its descendants."""
    found, pending = [], [os.getpid()]
    while pending:
        own = pending.pop()
        found.append(own)
        for task in Path(f"/proc/{own}/task").glob("*/children"):
            pending += [int(child) for child in task.read_text().split()]
    return found


def memory_mb() -> dict[str, int]:
    """Return anonymous memory and mapped files of all processes."""
    found = {"own": 0, "mapped files": 0}
    for process in processes():
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        for name, field in (("own", "RssAnon"), ("mapped files", "RssFile")):
            found[name] += int(fields[field].split()[0]) >> 10
    return found


def cpu_seconds() -> float:
    """Return the processor time so far of all processes."""
    # The times follow the name, which is in parentheses and may contain blanks.
    children = [Path(f"/proc/{own}/stat").read_text().rpartition(")")[2] for own in processes()[1:]]
    ticks = sum(int(stat.split()[11]) + int(stat.split()[12]) for stat in children)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + ticks / _TICKS


def peak_mb() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def profiled(call: Callable[[], object]) -> torch.profiler.profile:
    """Run a call under torch's profiler."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return profile


def profile_summary(
    profile: torch.profiler.profile, n_times: int = 1, n_rows: int = 12
) -> dict[str, Any]:
    """Summarise a profile.

    Args:
        profile: A finished one.
        n_times: How often the call ran; the values are for one run.
        n_rows: Number of kernels that are listed.
    """
    import torch

    events = profile.events() or []
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
    if not spans:  # no GPU: list the operators
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


def show_profile(title: str, found: dict[str, Any]) -> None:
    """Print a summary of a profile."""
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
    """Count the aten operators of one forward and one backward pass."""
    model.train()
    model(**inputs).last_hidden_state.sum().backward()  # warm-up
    out: list[Any] = []
    forward = profile_summary(profiled(lambda: out.append(model(**inputs).last_hidden_state.sum())))
    backward = profile_summary(profiled(lambda: out[0].backward()))
    model.zero_grad(set_to_none=True)
    return {"forward": forward["operators"], "backward": backward["operators"]}


def _union(spans: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the length that spans cover, and the length from first start to last end."""
    if not spans:
        return 0.0, 0.0
    spans = sorted(spans)
    covered, end = 0.0, spans[0][0]
    for first, last in spans:
        covered += max(0.0, last - max(first, end))
        end = max(end, last)
    return covered, end - spans[0][0]
