"""Memory and processor time of this process and of those it started."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def family() -> list[int]:
    """Return this process and all below it."""
    found, waiting = [], [os.getpid()]
    while waiting:
        own = waiting.pop()
        found.append(own)
        for task in Path(f"/proc/{own}/task").glob("*/children"):
            waiting += [int(child) for child in task.read_text().split()]
    return found


def memory_mb() -> dict[str, int]:
    """Return memory of their own, and pages of files that they share with others."""
    found = {"own": 0, "mapped files": 0}
    for process in family():
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        for name, field in (("own", "RssAnon"), ("mapped files", "RssFile")):
            found[name] += int(fields[field].split()[0]) >> 10
    return found


def cpu_seconds() -> float:
    """Return the processor's time so far; of children in hundredths of a second."""
    # The times follow the name, which may hold blanks, in parentheses.
    below = [Path(f"/proc/{own}/stat").read_text().rpartition(")")[2] for own in family()[1:]]
    ticks = sum(int(stat.split()[11]) + int(stat.split()[12]) for stat in below)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + ticks / _TICKS


def peak_mb() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
